"""What the embedded model thinks: a pure function of the history and the tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from antiphon.content import Message, Messages, ToolResult, ToolSpec, text_of
from antiphon.models.embedded.slots import Filling, Slot, Tool, fill, fill_answer, read_tool
from antiphon.models.embedded.talk import (
    GO_ON,
    REPEAT,
    STOP,
    may_be_question,
    not_understood,
    plain,
    question,
    say_result,
    small_talk,
)
from antiphon.models.embedded.words import GENERIC_VERBS, STOP_WORDS, Utterance

INAUDIBLE = "[inaudible]"

_SURE = 0.55  # what a tool must score when no slot was filled
_SURE_WITH_SLOTS = 0.45
_SWITCHES_TOPIC = 0.75  # what another tool must score when a question is open
_MOST_UNTRUSTED_WORDS = 3
_MOST_QUESTIONS = 12  # how far back a chain of questions, or of "go on", is followed

_SOMEBODY = frozenset(("i", "he", "she", "we", "they", "it", "my", "his", "her", "their", "our", "there"))
_PAST = frozenset(("was", "were", "wasn't", "weren't", "had", "yesterday"))
_ASKS_PAST = frozenset(("did", "didn't", "was", "were", "have", "has", "had", "why", "who"))
_ASKS = frozenset(("is", "are", "what", "what's", "which", "how", "where", "when", "do", "does"))
_ACTS = frozenset(
    "set turn switch book send delete create add cancel start stop end open close play buy order pay move make".split()  # noqa: SIM905 - as a line it can be read
)


@dataclass(frozen=True, slots=True)
class Ask:
    """A question for a value that a call needs.

    Attributes:
        tool: The tool.
        slot: The value.
        values: Those there are already; a list per call to make.
    """

    tool: Tool
    slot: Slot
    values: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do next.

    Attributes:
        text: What to say.
        calls: Tools to call: name and input.
        ask: What the text asks for.
    """

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    ask: Ask | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """How well an utterance fits a tool."""

    tool: Tool
    score: float
    filling: Filling = field(compare=False)


def decide(messages: Messages, tool_specs: Sequence[ToolSpec] | None = None, *, trusted: bool = True) -> Decision:
    """Decide what to do after the last message.

    Args:
        messages: The history. It is all that is known: the same history and tools give the same decision.
        tool_specs: The tools.
        trusted: Whether the last message is surely what was said. If not, it calls no tool, save that a few words
            answer the question for a free text.
    """
    return _decide(messages, [read_tool(spec) for spec in tool_specs or ()], 0, trusted=trusted)


def _decide(messages: Messages, tools: Sequence[Tool], depth: int, *, trusted: bool = True) -> Decision:
    if not messages or messages[-1]["role"] != "user":
        return Decision()
    last = messages[-1]
    results = [block["toolResult"] for block in last["content"] if "toolResult" in block]
    text = text_of(last).strip()
    told = _tell_results(results, messages)
    if not text:
        if not told and any("image" in block for block in last["content"]):
            return Decision(text="You sent a picture, but I cannot see: I only read and hear words.")
        return Decision(text=told or "I did not get any words.")
    decision = _answer(text, messages, tools, depth, trusted=trusted)
    return replace(decision, text=f"{told} {decision.text}".strip()) if told else decision


def _answer(text: str, messages: Messages, tools: Sequence[Tool], depth: int, *, trusted: bool) -> Decision:
    if text == INAUDIBLE:
        return Decision(text="I heard you, but I could not make out the words.")
    said = Utterance(text)
    if not said.words and not plain(text) and not any(character.isalnum() for character in text):
        return Decision(text="I did not get any words.")
    full = " ".join(word.lower() for word in text.replace("’", "'").split()).strip(" .!?,")
    said_plainly = plain(text)
    if STOP.fullmatch(full) or STOP.fullmatch(said_plainly):
        return Decision(text="All right.")
    before = messages[:-1]
    asked = _open_question(before, tools, depth)
    if asked is not None and (trusted or (asked.slot.kind == "text" and len(said.words) <= _MOST_UNTRUSTED_WORDS)):
        decision = _take_answer(asked, said, tools)
        if decision is not None:
            return decision
    decision = _call(said, tools) if trusted else None
    if decision is not None:
        return decision
    if GO_ON.fullmatch(full) or GO_ON.fullmatch(said_plainly):
        return Decision(text=_rest_of_answer(before, tools, depth) or "There is nothing to go on with.")
    if REPEAT.fullmatch(full) or REPEAT.fullmatch(said_plainly):
        return Decision(text=_last_words(before) or "I have not said anything yet.")
    small = small_talk(text, tools)
    if small is not None:
        return Decision(text=small)
    if asked is not None:
        return Decision(text=f"I did not get that. {question(asked.slot)}", ask=asked)
    return Decision(text=not_understood(text, tools))


def best_match(said: Utterance, tools: Sequence[Tool]) -> Match | None:
    """The tool that an utterance fits, if it fits one well enough."""
    matches = [match_tool(said, tool) for tool in tools if tool.sayable]
    sure = [
        match
        for match in matches
        if match.score >= (_SURE_WITH_SLOTS if match.filling.values or match.filling.several else _SURE)
    ]
    return max(sure, key=lambda match: (match.score, len(match.filling.values)), default=None)


def match_tool(said: Utterance, tool: Tool) -> Match:
    """How well an utterance fits a tool: how sure it is meant, times how much of the utterance that explains."""
    filling = fill(tool, said)
    meanings = said.meanings
    named = {index for index, word in enumerate(meanings) if word in tool.words}
    weights = {word: 0.3 if word in GENERIC_VERBS or word in STOP_WORDS else 1.0 for word in tool.words}
    total = sum(weights.values())
    anchor = sum(weight for word, weight in weights.items() if word in meanings) / total if total else 0.0
    described = {index for index, word in enumerate(meanings) if word in tool.described and index not in named}
    extra = len({meanings[index] for index in described & said.content})
    if meanings[:1] == tool.words[:1] and tool.words[0] not in GENERIC_VERBS:
        anchor = max(anchor, 0.8)  # it begins as an order does: "add milk" for add_item
    anchor = min(1.0, max(anchor + 0.25 * extra if anchor else 0.0, min(0.3 * extra, 0.75)))
    explained = named | described
    if filling.refused:
        explained |= {index for span in said.numbers for index in range(span.start, span.end)}
    for example in tool.examples:
        alike, shared = _compare(said, filling, tool, Utterance(example))
        anchor = max(anchor, alike)
        if alike > 0.5:
            explained |= shared
    dated = {index for start, end in said.dates for index in range(start, end)}
    content = said.content - (dated - filling.used)
    weight = sum(
        (0.5 if index in filling.guessed else 1.0) for index in content if index in explained or index in filling.used
    )
    coverage = weight / len(content) if content else 1.0
    score = anchor * coverage
    if score > 0:
        score = min(1.0, score + min(0.2, 0.1 * len(filling.values)) * coverage)
    return Match(tool, score * _doubt(said, tool), filling)


def _compare(said: Utterance, filling: Filling, tool: Tool, example: Utterance) -> tuple[float, set[int]]:
    """How much of two sentences is the same, what fills slots left out, and where in the first one that is."""
    own = fill(tool, example)
    theirs = {example.meanings[index] for index in example.content - own.used}
    ours = {said.meanings[index] for index in said.content - filling.used}
    shared = ours & theirs
    if not shared:
        return 0.0, set()
    alike = 2 * len(shared) / (len(ours) + len(theirs))
    return alike, {index for index in said.content if said.meanings[index] in shared}


def _doubt(said: Utterance, tool: Tool) -> float:
    """How far the form of a sentence is from that of a wish."""
    first = said.words[0] if said.words else ""
    if first in _ASKS_PAST:
        return 0.0
    doubt = 0.6 if first in _SOMEBODY else 1.0
    if _PAST & set(said.words):
        doubt *= 0.6
    if first in _ASKS and tool.words[:1] and tool.words[0] in _ACTS:
        doubt *= 0.3
    return doubt


def _call(said: Utterance, tools: Sequence[Tool]) -> Decision | None:
    """The calls that an utterance wants, or the question for what they lack; None when it wants none."""
    several = _call_parts(said, tools)
    if several is not None:
        return several
    match = best_match(said, tools)
    if match is None:
        return None
    if said.negated:
        return Decision(text=f"All right, I will not {match.tool.spoken}.")
    values = [match.filling.values]
    if match.filling.several is not None:
        name, named = match.filling.several
        values = [{**match.filling.values, name: value} for value in named]
    return _complete(match.tool, tuple(values), match.filling.refused)


def _call_parts(said: Utterance, tools: Sequence[Tool]) -> Decision | None:
    """The calls of a sentence such as "turn on the lamp and tell me the weather", when each part is a whole wish."""
    if said.negated:
        return None
    lowered = said.text
    for word in (" and then ", " and ", " then "):
        parts = [part for part in lowered.split(word) if part.strip()]
        if 2 <= len(parts) <= 4:
            decisions = [_call_one(Utterance(part), tools) for part in parts]
            if all(decision is not None and decision.calls for decision in decisions):
                return Decision(calls=tuple(call for decision in decisions if decision for call in decision.calls))
    return None


def _call_one(said: Utterance, tools: Sequence[Tool]) -> Decision | None:
    match = best_match(said, tools)
    if match is None or match.filling.several is not None:
        return None
    return _complete(match.tool, (match.filling.values,), match.filling.refused)


def _complete(tool: Tool, values: tuple[dict[str, Any], ...], refused: set[str]) -> Decision:
    for slot in tool.slots:
        wrong = slot.name in refused and slot.name not in values[0]
        if wrong or (slot.required and slot.name not in values[0]):
            return Decision(text=question(slot, refused=wrong), ask=Ask(tool, slot, values))
    return Decision(calls=tuple((tool.name, each) for each in values))


def _open_question(messages: Messages, tools: Sequence[Tool], depth: int) -> Ask | None:
    """What our last message asked for. It is found by thinking again what we thought then."""
    if depth >= _MOST_QUESTIONS or not messages or messages[-1]["role"] != "assistant":
        return None
    spoken = _one_line(text_of(messages[-1]))
    asked_at = _last_of(messages, "user")
    if asked_at is None or not spoken or not may_be_question(spoken):
        return None
    decision = _decide(messages[: asked_at + 1], tools, depth + 1)
    # Who heard only the beginning of a question may know the rest.
    return decision.ask if decision.ask is not None and _one_line(decision.text).startswith(spoken) else None


def _take_answer(asked: Ask, said: Utterance, tools: Sequence[Tool]) -> Decision | None:
    other = best_match(said, [tool for tool in tools if tool.name != asked.tool.name])
    if other is not None and other.score >= _SWITCHES_TOPIC:
        return None
    again = fill(asked.tool, said)
    found, value = fill_answer(asked.slot, said)
    if not found:
        if asked.slot.name in again.refused or _is_refused(asked.slot, said):
            return Decision(text=question(asked.slot, refused=True), ask=asked)
        return None
    if asked.slot.kind == "text" and small_talk(said.text, tools) is not None:
        return None
    rest = {name: each for name, each in again.values.items() if name != asked.slot.name}
    values = tuple({**rest, **each, asked.slot.name: value} for each in asked.values)
    return _complete(asked.tool, values, set())


def _is_refused(slot: Slot, said: Utterance) -> bool:
    return slot.kind in {"integer", "number", "hour"} and bool(said.numbers)


def _rest_of_answer(messages: Messages, tools: Sequence[Tool], depth: int) -> str:
    """What the listener did not hear of our last answer: it was cut, and is thought again."""
    at = _last_of(messages, "assistant", with_text=True)
    if at is None or depth >= _MOST_QUESTIONS:
        return ""
    asked_at = _last_of(messages[:at], "user")
    if asked_at is None:
        return ""
    heard = _one_line(text_of(messages[at]))
    whole = _one_line(_decide(messages[: asked_at + 1], tools, depth + 1).text)
    return whole[len(heard) :].strip() if whole.startswith(heard) else ""


def _one_line(text: str) -> str:
    # What was spoken comes back without the line breaks it was written with.
    return " ".join(text.split())


def _last_words(messages: Messages) -> str:
    at = _last_of(messages, "assistant", with_text=True)
    return "" if at is None else text_of(messages[at])


def _last_of(messages: Messages, role: str, *, with_text: bool = False) -> int | None:
    for index in range(len(messages) - 1, -1, -1):
        if messages[index]["role"] == role and (not with_text or text_of(messages[index]).strip()):
            return index
    return None


def _tell_results(results: Sequence[ToolResult], messages: Messages) -> str:
    names = _names_of_calls(messages[:-1])
    return " ".join(say_result(result, names.get(result["toolUseId"], "")) for result in results)


def _names_of_calls(messages: Sequence[Message]) -> dict[str, str]:
    return {
        block["toolUse"]["toolUseId"]: block["toolUse"]["name"]
        for message in messages
        for block in message["content"]
        if "toolUse" in block
    }
