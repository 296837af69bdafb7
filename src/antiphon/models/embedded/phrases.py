"""What may be said to tools, as phrases for the ears' grammar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

from antiphon.content import ToolSpec
from antiphon.models.embedded.grammar import Choice, Optional, Part, Phrase
from antiphon.models.embedded.mind import best_match
from antiphon.models.embedded.slots import Slot, Tool, cues, fill, read_tool
from antiphon.models.embedded.words import WEEKDAYS, Utterance, name_words, same_meaning, spoken_number

_PLEASE = Optional("please")
_ASKING = frozenset(("get", "show", "find", "list", "check", "tell", "look", "fetch", "read", "what"))
_MOST_SLOTS_TO_PERMUTE = 3
_LONGEST_HEAD = 7

_COMMON: tuple[Phrase, ...] = (
    ("hello", Optional("there")),
    (Choice("day", ("good morning", "good afternoon", "good evening", "goodbye", "thank you", "thanks")),),
    (_PLEASE, Choice("halt", ("stop", "stop it", "cancel", "cancel that", "never mind", "be quiet", "that is enough"))),
    (_PLEASE, Choice("on", ("go on", "continue", "carry on", "keep going"))),
    (Choice("again", ("repeat that", "say that again", "what did you say")), _PLEASE),
    (Choice("help", ("help", "help me", "what can you do", "what can i say", "how are you", "who are you")),),
    (Choice("yes", ("yes", "no")), _PLEASE),
    (
        _PLEASE,
        "tell me a",
        Optional("short"),
        "story",
        Optional(
            (
                "about",
                Choice("article", ("a", "an", "the")),
                Choice("hero", ("dragon", "cat", "dog", "fox", "bear", "mouse", "owl", "horse", "princess", "king")),
            )
        ),
    ),
    (
        _PLEASE,
        "count to",
        Choice("count", tuple(spoken_number(value) for value in (*range(2, 21), *range(30, 101, 10)))),
    ),
)


def phrases(tool_specs: Sequence[ToolSpec]) -> list[Phrase]:
    """What may be said to these tools, to answer their questions, and to the model itself.

    Each phrase of a tool is one that `mind` takes for that tool. Free texts are in a phrase only with the words that a
    tool's examples have for them.
    """
    found = list(_COMMON)
    for tool in map(read_tool, tool_specs):
        if tool.sayable:
            found.extend(_of_examples(tool))
            found.extend(_of_names(tool))
            found.extend(_of_switches(tool))
            found.extend(_answers(tool))
    return found


def _of_examples(tool: Tool) -> Iterator[Phrase]:
    """The examples, any other value in the place of theirs."""
    for example in tool.examples:
        said = Utterance(example)
        if not said.words:
            continue
        starts = {start: (end, slot) for slot, (start, end) in fill(tool, said).places.items()}
        parts: list[Part] = [_PLEASE]
        index = 0
        while index < len(said.words):
            end, name = starts.get(index, (index + 1, ""))
            slot = next((slot for slot in tool.slots if slot.name == name), None)
            options = _options(slot, tool) if slot is not None else ()
            parts.append(Choice(name, options) if options else " ".join(said.words[index:end]))
            index = end
        yield (*parts, _PLEASE)


def _of_names(tool: Tool) -> Iterator[Phrase]:
    """What the tool's name and the first line of its description ask for, then its slots in any order."""
    heads = tuple(head for head in _heads(tool) if best_match(Utterance(head), [tool]) is not None)
    if not heads:
        return
    sayable = [slot for slot in tool.slots if _options(slot, tool)]
    required = [slot for slot in sayable if slot.required]
    for slots in ([*required, *(slot for slot in sayable if not slot.required)], required):
        orders = permutations(slots) if len(slots) <= _MOST_SLOTS_TO_PERMUTE else iter([tuple(slots)])
        for order in orders:
            parts: list[Part] = [_PLEASE, Choice("ask", heads)]
            for slot in order:
                parts.extend(_slot_parts(slot, tool))
            yield (*parts, _PLEASE)
    yield (_PLEASE, Choice("ask", heads), _PLEASE)


def _heads(tool: Tool) -> Iterator[str]:
    seen: dict[str, None] = {}
    names = name_words(tool.name)
    verb, noun = names[0], names[1:] or names
    for word in same_meaning(noun[-1]) if len(noun) == 1 else (noun[-1],):
        thing = " ".join([*noun[:-1], word])
        article = "an" if thing[0] in "aeiou" else "a"
        seen.update(dict.fromkeys((thing, f"the {thing}")))
        if len(names) > 1:
            for act in same_meaning(verb):
                seen.update(dict.fromkeys((f"{act} {thing}", f"{act} {article} {thing}", f"{act} the {thing}")))
        if verb in _ASKING:
            seen.update(dict.fromkeys(f"{ask} the {thing}" for ask in ("what is", "what's", "how is", "tell me")))
            seen[f"what is the {thing} like"] = None
            if not tool.slots:
                seen[f"what {thing} is it"] = None
    if "alarm" in tool.words:
        seen.update(dict.fromkeys(("wake me", "wake me up")))
    words = {word for slot in tool.slots for word in slot.words}
    if 0 < len(tool.summary.split()) <= _LONGEST_HEAD and not words & set(Utterance(tool.summary).meanings):
        seen[tool.summary] = None
    yield from seen


def _of_switches(tool: Tool) -> Iterator[Phrase]:
    """Sentences such as "turn on the kitchen light", for what has a slot for on and off and at most one more."""
    switch = next((slot for slot in tool.slots if {"on", "off"} <= set(_options(slot, tool))), None)
    others = [slot for slot in tool.slots if slot is not switch and (slot.required or slot.kind == "choice")]
    if switch is None or len(others) > 1 or (others and not _options(others[0], tool)):
        return
    noun = name_words(tool.name)[-1]
    things = [*same_meaning(noun), f"{noun}s"]
    thing = Choice("thing", tuple(dict.fromkeys(word for word in things if not word.endswith("ss"))))
    act = Choice("turn", ("turn", "switch", "put"))
    state = Choice(switch.name, ("on", "off"))
    which: tuple[Part, ...] = (Choice(others[0].name, _options(others[0], tool)),) if others else ()
    yield (_PLEASE, act, state, Optional("the"), *which, thing, _PLEASE)
    yield (_PLEASE, act, Optional("the"), *which, thing, state, _PLEASE)
    if which:
        yield (_PLEASE, act, state, Optional("the"), thing, "in the", *which, _PLEASE)
        yield (_PLEASE, act, Optional("the"), thing, "in the", *which, state, _PLEASE)
        yield (_PLEASE, act, state, Optional("the"), thing, _PLEASE)


def _answers(tool: Tool) -> Iterator[Phrase]:
    """The answers to the questions that a tool leads to."""
    for slot in tool.slots:
        if slot.required and _options(slot, tool):
            yield (*_slot_parts(slot, tool), _PLEASE)


def _slot_parts(slot: Slot, tool: Tool) -> tuple[Part, ...]:
    name = slot.spoken
    links = {
        "hour": ("at", "for"),
        "time": ("at", "for"),
        "date": ("on", "for"),
        "boolean": (),
        "integer": ("for", "to", name, f"with {name}"),
        "number": ("for", "to", name),
        "text": cues(slot),
    }.get(slot.kind, ("for", "for the", "in", "in the", "with", "as", "to the", name, f"with {name}", f"for {name}"))
    value = Choice(slot.name, _options(slot, tool))
    link: tuple[Part, ...] = (Choice("link", links),) if links else ()
    if slot.kind != "text":  # a free text is known only by the word before it
        link = (Optional(link),) if link else ()
    unit: tuple[Part, ...] = (Optional(name),) if slot.kind == "integer" else ()
    return (*link, value, *unit)


def _options(slot: Slot, tool: Tool) -> tuple[str, ...]:
    """The wordings for a slot; none where anything can be said."""
    match slot.kind:
        case "choice":
            return tuple(" ".join(name_words(str(choice.value))) for choice in slot.choices if choice.words)
        case "boolean":
            return ("on", "off")
        case "integer" | "number":
            return _numbers(slot)
        case "hour":
            return tuple(_times(halves=False))
        case "time":
            return tuple(_times(halves=True))
        case "date":
            return ("today", "tomorrow", *WEEKDAYS)
        case "text":
            return _texts_of_examples(slot, tool)
        case _:
            return ()


def _numbers(slot: Slot) -> tuple[str, ...]:
    least = max(0, int(slot.minimum if slot.minimum is not None else 1))
    most = min(9999, int(slot.maximum if slot.maximum is not None else 100))
    values = range(least, most + 1)
    if len(values) > 101:
        values = range(least, least + 101)
    return tuple(spoken_number(value) for value in values)


def _times(*, halves: bool) -> Iterator[str]:
    yield from ("noon", "midnight")
    for hour in range(1, 13):
        name = spoken_number(hour)
        yield from (name, f"{name} o'clock", f"{name} in the morning", f"{name} in the evening")
        if halves:
            yield from (f"{name} thirty", f"half past {name}", f"quarter past {name}", f"quarter to {name}")


def _texts_of_examples(slot: Slot, tool: Tool) -> tuple[str, ...]:
    texts: dict[str, None] = {}
    for example in tool.examples:
        said = Utterance(example)
        place = fill(tool, said).places.get(slot.name)
        if place is not None:
            texts[" ".join(said.words[place[0] : place[1]])] = None
    return tuple(texts)
