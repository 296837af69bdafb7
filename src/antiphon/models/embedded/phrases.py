"""What may be said to tools, as phrases for the ears' grammar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antiphon.content import ToolSpec
from antiphon.models.embedded.grammar import Choice, Optional, Part, Phrase
from antiphon.models.embedded.mind import best_match
from antiphon.models.embedded.slots import Slot, Tool, cues, fill, read_tool
from antiphon.models.embedded.words import STOP_WORDS, WEEKDAYS, Utterance, name_words, same_meaning, spoken_number

_PLEASE = Optional("please")
_ASKING = frozenset(("get", "show", "find", "list", "check", "tell", "look", "fetch", "read", "what"))

_ARTICLES = ("a", "an", "the")
_ARTICLE = Choice("article", _ARTICLES)
_LONGEST_TITLE = 6

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
                _ARTICLE,
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
            value = _value(slot, tool) if slot is not None else ()
            parts.extend(value or (" ".join(said.words[index:end]),))
            index = end
        yield (*parts, _PLEASE)


def _of_names(tool: Tool) -> Iterator[Phrase]:
    """What the tool's name or description asks for, then its slots, each once or twice, so that most orders of them are there.

    One phrase with parts that may be left out, and not one for each order: the recogniser's time at the end of a
    sentence grows with the words of the grammar.
    """
    slots = [slot for slot in tool.slots if _value(slot, tool)]
    tail = [Optional(_slot_parts(slot, tool)) for slot in [*slots, *slots[:-1]]]
    for head in (*_heads(tool), *_titles(tool)):
        yield (_PLEASE, *head, *tail, _PLEASE)


def _heads(tool: Tool) -> Iterator[Phrase]:
    names = name_words(tool.name)
    verb, noun = names[0], names[1:] or names
    things = [" ".join([*noun[:-1], word]) for word in (same_meaning(noun[-1]) if len(noun) == 1 else noun[-1:])]
    # Nouns made of a verb are no orders.
    acts = [act for act in same_meaning(verb) if len(names) > 1 and not act.endswith(("ing", "ion"))]
    asks = ["what is", "what's", "how is", "tell me"] if verb in _ASKING else []
    alone = tuple(thing for thing in things if best_match(Utterance(thing), [tool]) is not None)
    article = Optional((_ARTICLE,))
    if acts or asks:
        yield (Choice("ask", (*acts, *asks)), article, Choice("thing", tuple(things)))
    if alone:
        yield (Optional("the"), Choice("thing", alone))
    if not tool.slots and asks:
        yield (Choice("ask", tuple(f"what {thing}" for thing in things)), "is it")
    if "alarm" in tool.words:
        yield (Choice("ask", ("wake me",)), Optional("up"))


def _titles(tool: Tool) -> Iterator[Phrase]:
    """The first sentence of the description, where it is a short order that the name does not stand for already."""
    content = [word for word in tool.title if word not in STOP_WORDS]
    if len(content) < 2 or len(tool.title) > _LONGEST_TITLE or set(content) <= set(name_words(tool.name)):
        return
    if best_match(Utterance(" ".join(tool.title)), [tool]) is None:
        return
    yield tuple(Optional((_ARTICLE,)) if word in _ARTICLES else word for word in tool.title)


def _of_switches(tool: Tool) -> Iterator[Phrase]:
    """Sentences such as "turn on the kitchen light", for what has a slot for on and off and at most one more."""
    switch = next((slot for slot in tool.slots if {"on", "off"} <= set(_wordings(slot, tool))), None)
    others = [slot for slot in tool.slots if slot is not switch and (slot.required or slot.kind == "choice")]
    if switch is None or len(others) > 1 or (others and not _value(others[0], tool)):
        return
    noun = name_words(tool.name)[-1]
    things = [*same_meaning(noun), f"{noun}s"]
    thing = Choice("thing", tuple(dict.fromkeys(word for word in things if not word.endswith("ss"))))
    act = Choice("turn", ("turn", "switch", "put"))
    state = Choice(switch.name, ("on", "off"))
    which = _value(others[0], tool) if others else ()
    yield (_PLEASE, act, state, Optional("the"), *which, thing, _PLEASE)
    yield (_PLEASE, act, Optional("the"), *which, thing, state, _PLEASE)
    if which:
        yield (_PLEASE, act, state, Optional("the"), thing, "in the", *which, _PLEASE)
        yield (_PLEASE, act, Optional("the"), thing, "in the", *which, state, _PLEASE)
        yield (_PLEASE, act, state, Optional("the"), thing, _PLEASE)


def _answers(tool: Tool) -> Iterator[Phrase]:
    """The answers to the questions that a tool leads to."""
    for slot in tool.slots:
        if slot.required and _value(slot, tool):
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
    link: tuple[Part, ...] = (Choice("link", links),) if links else ()
    if slot.kind != "text":  # a free text is known only by the word before it
        link = (Optional(link),) if link else ()
    unit: tuple[Part, ...] = (Optional(name),) if slot.kind == "integer" else ()
    return (*link, *_value(slot, tool), *unit)


def _value(slot: Slot, tool: Tool) -> Phrase:
    """How a value of a slot is said; nothing where anything can be said.

    Numbers and times are put together from parts, although that lets through some that do not exist ("half past
    noon"): a list of all of them makes the recogniser ten times slower at the end of a sentence.
    """
    match slot.kind:
        case "integer" | "number":
            return _number(slot)
        case "hour" | "time":
            return _time(halves=slot.kind == "time")
        case _:
            wordings = _wordings(slot, tool)
            return (Choice(slot.name, wordings),) if wordings else ()


def _wordings(slot: Slot, tool: Tool) -> tuple[str, ...]:
    match slot.kind:
        case "choice":
            return tuple(" ".join(name_words(str(choice.value))) for choice in slot.choices if choice.words)
        case "boolean":
            return ("on", "off")
        case "date":
            return ("today", "tomorrow", *WEEKDAYS)
        case "text":
            return _texts_of_examples(slot, tool)
        case _:
            return ()


def _number(slot: Slot) -> Phrase:
    least = max(0, int(slot.minimum if slot.minimum is not None else 1))
    most = int(slot.maximum if slot.maximum is not None else 100)
    if most < 20:
        return (Choice(slot.name, tuple(spoken_number(value) for value in range(least, most + 1))),)
    small = tuple(spoken_number(value) for value in range(min(least, 19), 20))
    tens = tuple(spoken_number(value) for value in range(20, min(most, 99) + 1, 10))
    hundreds = (Optional((Choice("hundreds", ("one hundred", "two hundred")),)),) if most > 100 else ()
    whole = ("one hundred",) if most == 100 else ()
    return (*hundreds, Choice(slot.name, (*small, *tens, *whole)), Optional((Choice("units", _UNITS),)))


_UNITS = tuple(spoken_number(value) for value in range(1, 10))
_HOURS = (*(spoken_number(value) for value in range(1, 13)), "noon", "midnight")
_AFTER_HOUR = ("o'clock", "in the morning", "in the evening")


def _time(*, halves: bool) -> Phrase:
    after = Optional((Choice("day", (*_AFTER_HOUR, "thirty") if halves else _AFTER_HOUR),))
    before = (Optional((Choice("past", ("half past", "quarter past", "quarter to")),)),) if halves else ()
    return (*before, Choice("hour", _HOURS), after)


def _texts_of_examples(slot: Slot, tool: Tool) -> tuple[str, ...]:
    texts: dict[str, None] = {}
    for example in tool.examples:
        said = Utterance(example)
        place = fill(tool, said).places.get(slot.name)
        if place is not None:
            texts[" ".join(said.words[place[0] : place[1]])] = None
    return tuple(texts)
