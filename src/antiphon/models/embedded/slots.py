"""Tools as somebody who listens sees them: names, examples, and slots that words fill."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from antiphon.content import ToolSpec
from antiphon.models.embedded.words import DAYS, GENERIC_VERBS, STOP_WORDS, Time, Utterance, meaning, name_words

Kind = Literal["choice", "integer", "number", "boolean", "time", "hour", "date", "text", "other"]

_TIME_NAMES = frozenset(("time", "when", "start", "begin", "clock"))
_DATE_NAMES = frozenset(("date", "day", "weekday"))
_PLACE_NAMES = frozenset(("city", "place", "location", "town", "country", "where", "destination", "address", "region"))
_TOPIC_NAMES = frozenset(("topic", "subject", "about", "query", "theme"))
_PERSON_NAMES = frozenset(("name", "title", "called", "label"))
_RECIPIENT_NAMES = frozenset(("recipient", "receiver", "to", "contact", "person"))
_SPEECH_NAMES = frozenset(("message", "text", "note", "content", "body", "sentence", "reminder", "reason", "comment"))
_TRUE = frozenset(("on", "yes", "true", "enable", "open", "sure", "yeah", "yep", "okay", "right"))
_FALSE = frozenset(("off", "no", "false", "disable", "close", "closed", "shut", "without", "nope"))
_END_OF_TEXT = frozenset(
    (
        "at",
        "on",
        "in",
        "for",
        "from",
        "with",
        "is",
        "are",
        "was",
        "were",
        "and",
        "because",
        "please",
        "when",
        "by",
        "to",
    )
)
_ARTICLES = frozenset(("the", "a", "an", "my", "some", "of"))
_MOST_WORDS = 6


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a slot, and the words that mean it."""

    value: Any
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One parameter of a tool.

    Attributes:
        name: The parameter.
        kind: What fills it; `other` cannot be said.
        required: Whether a call needs it.
        choices: The values of a `choice`.
        many: Whether it takes a list.
        minimum: The least number.
        maximum: The greatest.
    """

    name: str
    kind: Kind
    required: bool
    choices: tuple[Choice, ...] = ()
    many: bool = False
    minimum: float | None = None
    maximum: float | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """What its name means."""
        return tuple(meaning(word) for word in name_words(self.name))

    @property
    def spoken(self) -> str:
        """Its name as people say it."""
        return " ".join(name_words(self.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What is known of a tool.

    Attributes:
        name: As the model must call it.
        words: What the words of its name mean.
        title: The words of its description's first sentence.
        described: What the words of its description mean.
        examples: Sentences that call it.
        slots: Its parameters.
    """

    name: str
    words: tuple[str, ...]
    title: tuple[str, ...]
    described: frozenset[str]
    examples: tuple[str, ...]
    slots: tuple[Slot, ...]

    @property
    def spoken(self) -> str:
        """Its name as people say it."""
        return " ".join(name_words(self.name))

    @property
    def sayable(self) -> bool:
        """Whether speech can fill all it needs."""
        return not any(slot.required and slot.kind == "other" for slot in self.slots)


def read_tool(spec: ToolSpec) -> Tool:
    """What a listener makes of a tool's description and schema."""
    text, examples = _split_examples(spec.get("description", ""))
    schema = cast("dict[str, Any]", spec["inputSchema"].get("json", spec["inputSchema"]))
    required = cast("list[str]", schema.get("required", []))
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties", {}))
    slots = [_read_slot(name, each, schema, required=name in required) for name, each in properties.items()]
    first = text.strip().split("\n\n", 1)[0]
    described = {
        meaning(word)
        for word in Utterance(first).words
        if word not in STOP_WORDS and word not in GENERIC_VERBS and len(word) > 2
    }
    return Tool(
        name=spec["name"],
        words=tuple(meaning(word) for word in name_words(spec["name"])),
        title=tuple(Utterance(re.split(r"[.:;]\s|\n", first.strip() + " ", maxsplit=1)[0]).words),
        described=frozenset(described),
        examples=examples,
        slots=tuple(slots),
    )


def _split_examples(description: str) -> tuple[str, tuple[str, ...]]:
    """The description without its examples, and they."""
    kept: list[str] = []
    examples: list[str] = []
    inside = False
    for line in description.splitlines():
        heading = re.match(r"\s*([A-Z]\w*(?: \w+)?):\s*(.*)$", line)
        if heading:
            inside = heading[1].lower() in {"example", "examples", "for example"}
            if inside:
                examples.extend(_cut_examples(heading[2]))
                continue
        if inside:
            examples.extend(_cut_examples(line))
        else:
            kept.append(line)
    return "\n".join(kept), tuple(examples)


def _cut_examples(line: str) -> Iterator[str]:
    for part in re.split(r"[;|]|[\"“”]\s*,\s*[\"“”]", line):
        example = part.strip().strip("-*•>").strip().strip("\"“”'`.").strip()
        if example:
            yield example


def _read_slot(name: str, schema: dict[str, Any], root: dict[str, Any], *, required: bool) -> Slot:
    schema = _resolve(schema, root)
    many = schema.get("type") == "array"
    if many:
        schema = _resolve(cast("dict[str, Any]", schema.get("items", {})), root)
    values = cast("list[Any]", [schema["const"]] if "const" in schema else schema.get("enum", []))
    choices = tuple(
        Choice(value, tuple(meaning(word) for word in name_words(str(value)))) for value in values if value is not None
    )
    return Slot(
        name=name,
        kind="choice" if choices else _kind(name, schema),
        required=required,
        choices=choices,
        many=many,
        minimum=_bound(schema, "minimum", "exclusiveMinimum", 1),
        maximum=_bound(schema, "maximum", "exclusiveMaximum", -1),
    )


def _bound(schema: dict[str, Any], inclusive: str, exclusive: str, step: int) -> float | None:
    if inclusive in schema:
        return float(schema[inclusive])
    return float(schema[exclusive]) + step if exclusive in schema and schema.get("type") == "integer" else None


def _resolve(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """A schema without references, and without the alternative of leaving the value out."""
    for _ in range(8):  # a reference may lead to a reference; a circle ends here
        if "$ref" in schema:
            found = root.get("$defs", {}).get(str(schema["$ref"]).rsplit("/", 1)[-1], {})
            schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
        elif "anyOf" in schema or "oneOf" in schema:
            either = cast("list[dict[str, Any]]", schema.get("anyOf") or schema.get("oneOf") or [])
            options = [option for option in either if option.get("type") != "null"]
            literals = [option["const"] for option in options if "const" in option]
            schema = {"enum": literals} if literals and len(literals) == len(options) else options[0] if options else {}
        elif len(schema.get("allOf", ())) == 1:
            schema = schema["allOf"][0]
        else:
            break
    return schema


def _kind(name: str, schema: dict[str, Any]) -> Kind:
    words = set(name_words(name))
    kind = schema.get("type", "string")
    if kind == "integer":
        return "hour" if "hour" in words and not words & {"many", "number"} else "integer"
    if kind == "number":
        return "number"
    if kind == "boolean":
        return "boolean"
    if kind != "string":
        return "other"
    if schema.get("format") == "time" or words & _TIME_NAMES:
        return "time"
    if schema.get("format") == "date" or words & _DATE_NAMES:
        return "date"
    return "text"


@dataclass(slots=True)
class Filling:
    """What an utterance gives for a tool.

    Attributes:
        values: By slot.
        used: The words that filled slots.
        guessed: Those of them that were taken for free text only because of where they stand.
        places: Where the words for each slot stand: first word, and the one after the last.
        several: A choice of which several values were named: the slot's name and the values.
        refused: Slots that were named with a value out of range: their names.
    """

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    used: set[int] = field(default_factory=set[int])
    guessed: set[int] = field(default_factory=set[int])
    places: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    several: tuple[str, list[Any]] | None = None
    refused: set[str] = field(default_factory=set[str])


def fill(tool: Tool, said: Utterance) -> Filling:
    """Fill a tool's slots from what was said, each word at most once."""
    filling = Filling()
    for slot in tool.slots:
        if slot.kind == "choice":
            _fill_choice(slot, said, filling)
    for slot in tool.slots:
        if slot.kind == "boolean":
            _fill_boolean(slot, said, filling)
        elif slot.kind in {"time", "hour"}:
            _fill_time(slot, said, filling)
        elif slot.kind == "date":
            _fill_date(slot, said, filling)
    _fill_numbers([slot for slot in tool.slots if slot.kind in {"integer", "number"}], said, filling)
    for slot in tool.slots:
        if slot.kind in {"time", "hour"} and slot.name not in filling.values:
            _fill_time(slot, said, filling, unsure=True)
    # What is said to the end of the sentence comes first: "to Bob saying ..." has two cues.
    texts = sorted((slot for slot in tool.slots if slot.kind == "text"), key=lambda slot: not _is_speech(slot))
    for slot in texts:
        _fill_text(slot, said, filling)
    missing = [slot for slot in texts if slot.required and slot.name not in filling.values]
    if len(missing) == 1:
        _guess_text(missing[0], tool, said, filling)
    return filling


def fill_answer(slot: Slot, said: Utterance) -> tuple[bool, Any]:
    """The value that an answer to a question for one slot gives: whether there is one, and it."""
    alone = Tool(name="", words=(), title=(), described=frozenset(), examples=(), slots=(slot,))
    filling = fill(alone, said)
    if filling.refused:
        return False, None
    if slot.name in filling.values:
        return True, filling.values[slot.name]
    if filling.several and slot.many:
        return True, filling.several[1]
    if slot.kind == "text" and said.words:
        words = list(said.raw)
        while len(words) > 1 and words[0].lower() in {*_ARTICLES, "in", "for", "to", "at", "it's", "it", "is", "that"}:
            words.pop(0)
        return True, _listed(slot, _written(slot, words))
    return False, None


def _listed(slot: Slot, value: Any) -> Any:
    return [value] if slot.many else value


def _take(filling: Filling, slot: Slot, value: Any, start: int, end: int) -> None:
    filling.values[slot.name] = _listed(slot, value)
    filling.places[slot.name] = (start, end)
    filling.used.update(range(start, end))


def _free(filling: Filling, start: int, end: int) -> bool:
    return filling.used.isdisjoint(range(start, end))


def _fill_choice(slot: Slot, said: Utterance, filling: Filling) -> None:
    found: list[tuple[int, int, Any]] = []
    # The longest first, so that "living room" is not taken for "room".
    for choice in sorted(slot.choices, key=lambda choice: -len(choice.words)):
        for start, end in _places(choice, said):
            if _free(filling, start, end) and all(end <= other[0] or start >= other[1] for other in found):
                found.append((start, end, choice.value))
    found.sort(key=lambda place: place[0])
    values = list({str(value): value for _, _, value in found}.values())
    if not values:
        return
    for start, end, _ in found:
        filling.used.update(range(start, end))
    filling.places[slot.name] = found[0][:2]
    if slot.many:
        filling.values[slot.name] = values
    elif len(values) == 1:
        filling.values[slot.name] = values[0]
    elif filling.several is None:
        filling.several = (slot.name, values)


def _places(choice: Choice, said: Utterance) -> Iterator[tuple[int, int]]:
    size = len(choice.words)
    for start in range(len(said.meanings) - size + 1):
        if size and said.meanings[start : start + size] == choice.words:
            yield start, start + size
    if isinstance(choice.value, (int, float)) and not isinstance(choice.value, bool):
        for span in said.numbers:
            if span.value == choice.value:
                yield span.start, span.end


def _fill_boolean(slot: Slot, said: Utterance, filling: Filling) -> None:
    for index, word in enumerate(said.meanings):
        if index in filling.used:
            continue
        if word in _FALSE or (word in _TRUE and _is_switch(said, index)):
            _take(filling, slot, word in _TRUE, index, index + 1)
            return
    for index, word in enumerate(said.meanings):
        if index not in filling.used and word in slot.words and word not in {"on", "off", "is"}:
            _take(filling, slot, True, index, index + 1)
            return


def _is_switch(said: Utterance, index: int) -> bool:
    """Whether a word such as `on` says a state: "turn it on", and not "on Monday" or "on the table"."""
    if said.words[index] != "on":
        return True
    before, after = said.words[:index], said.words[index + 1 : index + 2]
    verbs = {"turn", "switch", "put", "set", "keep", "leave", "lights", "light"}
    return not after or bool(verbs & set(before[-4:])) or not before


def _value_of(slot: Slot, time: Time) -> Any:
    return time.hour if slot.kind == "hour" else f"{time.hour:02d}:{time.minute:02d}"


def _fill_time(slot: Slot, said: Utterance, filling: Filling, *, unsure: bool = False) -> None:
    for time in said.times:
        if (time.sure or unsure) and _free(filling, time.start, time.end):
            value = _value_of(slot, time)
            if slot.kind == "hour" and not _in_range(slot, value):
                filling.refused.add(slot.name)
            else:
                _take(filling, slot, value, time.start, time.end)
                return
    if slot.kind == "hour" and unsure:
        # A number that is no hour of the day was meant for it all the same, if nothing else wanted it.
        filling.refused.update(slot.name for span in said.numbers if _free(filling, span.start, span.end))


def _fill_date(slot: Slot, said: Utterance, filling: Filling) -> None:
    for start, end in said.dates:
        if _free(filling, start, end):
            _take(filling, slot, " ".join(said.words[start:end]), start, end)
            return


def _in_range(slot: Slot, value: float) -> bool:
    return (slot.minimum is None or value >= slot.minimum) and (slot.maximum is None or value <= slot.maximum)


def _fill_numbers(slots: Sequence[Slot], said: Utterance, filling: Filling) -> None:
    """Numbers go to the slot whose name stands beside them, and else to the slots in order."""
    for near in (True, False):
        for slot in slots:
            if slot.name in filling.values:
                continue
            for span in said.numbers:
                if not _free(filling, span.start, span.end):
                    continue
                beside = {*said.meanings[max(0, span.start - 2) : span.start], *said.meanings[span.end : span.end + 2]}
                if near and not beside & set(slot.words):
                    continue
                if slot.kind == "integer" and span.value != int(span.value):
                    continue
                if not _in_range(slot, span.value):
                    filling.refused.add(slot.name)
                    continue
                _take(filling, slot, int(span.value) if slot.kind == "integer" else span.value, span.start, span.end)
                filling.refused.discard(slot.name)
                names = set(slot.words)
                filling.used.update(
                    i for i in range(span.end, span.end + 2) if said.meanings[i : i + 1] and said.meanings[i] in names
                )
                break


def cues(slot: Slot) -> tuple[str, ...]:
    """The words after which a free text for this slot stands."""
    words = set(name_words(slot.name))
    own = tuple(word for word in name_words(slot.name) if word not in STOP_WORDS)
    if words & _PLACE_NAMES:
        return (*own, "in", "near", "to", "for", "at")
    if words & _SPEECH_NAMES:
        return ("saying", "says", "that", *own, "to")
    if words & _RECIPIENT_NAMES:
        return (*own, "to", "with")
    if words & _TOPIC_NAMES:
        return (*own, "about", "for", "on")
    if words & _PERSON_NAMES:
        return (*own, "called", "named", "for", "name")
    return (*own, "called", "named", "about")


def _fill_text(slot: Slot, said: Utterance, filling: Filling) -> None:
    quoted = re.search(r"[\"“]([^\"”]+)[\"”]", said.text)
    if quoted:
        words = Utterance(quoted[1]).words
        for start in range(len(said.words)):
            if said.words[start : start + len(words)] == words and _free(filling, start, start + len(words)):
                _take(filling, slot, quoted[1].strip(), start, start + len(words))
                return
    whole = _is_speech(slot)
    for cue in cues(slot):
        for index, word in enumerate(said.words):
            if word != cue or index in filling.used:
                continue
            start, end = _run(said, filling, index + 1, whole=whole)
            if whole and said.words[start : start + 1] == ("to",):
                continue  # "a message to Bob": what follows is no message
            if end > start:
                _take(filling, slot, _written(slot, said.raw[start:end]), start, end)
                filling.used.add(index)
                return


def _is_speech(slot: Slot) -> bool:
    return bool(set(name_words(slot.name)) & _SPEECH_NAMES)


def _written(slot: Slot, words: Sequence[str]) -> str:
    """Words as one writes them: who only hears does not know that Paris has a capital letter."""
    text = " ".join(words)
    return text.title() if text.islower() and set(name_words(slot.name)) & _PLACE_NAMES else text


def _run(said: Utterance, filling: Filling, start: int, *, whole: bool = False) -> tuple[int, int]:
    """The free words from `start` on that belong together."""
    while start < len(said.words) and (said.words[start] in _ARTICLES or said.words[start] in {"is", "it"}):
        start += 1
    end = start
    while (
        end < len(said.words)
        and end not in filling.used
        and (
            whole or (end - start < _MOST_WORDS and said.words[end] not in _END_OF_TEXT and said.words[end] not in DAYS)
        )
    ):
        end += 1
    while end > start and said.words[end - 1] in STOP_WORDS and not whole:
        end -= 1
    return start, end


def _guess_text(slot: Slot, tool: Tool, said: Utterance, filling: Filling) -> None:
    """Take the words right after a word of the tool's name: "weather Paris", "add milk"."""
    for index, word in enumerate(said.meanings):
        if word not in tool.words or index in filling.used:
            continue
        after = index + 1
        while after < len(said.words) and said.words[after] in _ARTICLES:
            after += 1
        start, end = _run(said, filling, after)
        if end > start == after and not any(said.meanings[i] in tool.words for i in range(start, end)):
            _take(filling, slot, _written(slot, said.raw[start:end]), start, end)
            filling.guessed.update(range(start, end))
            return
