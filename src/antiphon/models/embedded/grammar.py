"""Phrases that may be said, and the grammar for the ears that is made from them.

A phrase is a tuple of parts: words that must be said, words that may be left out, and a choice of one of several::

    ("turn", Choice("state", ("on", "off")), "the", Choice("room", ("kitchen", "living room")), "lights", Optional("please"))

Numbers are spelled out ("forty two"), as everything is that has a sound. What can be anything has no place here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from antiphon.models.embedded.words import spoken_number


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several wordings, each of one or more words.

    Attributes:
        name: What is chosen, for people who read the grammar.
        options: The wordings.
    """

    name: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Optional:
    """Words, or a whole phrase, that may be left out."""

    words: str | tuple[Part, ...]


Part = str | Choice | Optional
Phrase = tuple[Part, ...]

_CLOCK = re.compile(r"\b(\d{1,2}):(\d\d)\b")
_NOT_SPOKEN = re.compile(r"[^a-z0-9']+")


def normalise(text: str) -> str:
    """The words of a text as they are spoken: lower case, numbers spelled out, no marks but the apostrophe within a word.

    >>> normalise("Wake me at 7:00, please!"), normalise("It's 7:05 in São-Paulo")
    ("wake me at seven o'clock please", "it's seven oh five in s o paulo")
    """
    text = _CLOCK.sub(_spoken_clock, text.lower().replace("’", "'"))
    words = (word.strip("'") for word in _NOT_SPOKEN.sub(" ", text).split())
    spelled = (_spelled(word) for word in words if word)
    return " ".join(spelled)


def _spoken_clock(found: re.Match[str]) -> str:
    hour, minute = int(found[1]), int(found[2])
    if minute == 0:
        return f"{hour} o'clock"
    return f"{hour} oh {minute}" if minute < 10 else f"{hour} {minute}"


def _spelled(word: str) -> str:
    """Digits in words: as a number up to four of them, else one by one."""
    pieces = re.findall(r"\d+|[^\d]+", word)
    spoken = [_spelled_number(piece) if piece.isdigit() else piece for piece in pieces]
    return " ".join(spoken)


def _spelled_number(digits: str) -> str:
    if len(digits) <= 4 and (digits == "0" or not digits.startswith("0")):
        return spoken_number(int(digits))
    return " ".join(spoken_number(int(digit)) for digit in digits)


@dataclass(frozen=True)
class Grammar:
    """Phrases in their spoken form, with what had to be left out of them.

    Attributes:
        phrases: What may be said.
        unknown: Words that the ears do not know; the options and phrases that need them are not in `phrases`.
    """

    phrases: tuple[Phrase, ...]
    unknown: tuple[str, ...] = ()

    @cached_property
    def jsgf(self) -> str:
        """The grammar in the JSpeech Grammar Format (W3C note of 5 June 2000), with one public rule.

        Empty when nothing may be said: the format has no grammar without a sentence.
        """
        if not self.phrases:
            return ""
        rules: dict[tuple[str, ...], str] = {}
        wordings = " |\n    ".join(_jsgf(phrase, rules) for phrase in self.phrases)
        choices = "".join(f"<{rule}> = {' | '.join(options)};\n" for options, rule in rules.items())
        return f"#JSGF V1.0;\ngrammar antiphon;\n{choices}public <sentence> =\n    {wordings};\n"

    def accepts(self, text: str) -> bool:
        """Whether `text` is the whole of one of the phrases, whatever its case and punctuation."""
        words = normalise(text).split()
        return any(len(words) in _ends(phrase, words, 0) for phrase in self.phrases)


def build_grammar(phrases: Iterable[Sequence[Part]], *, knows: Callable[[str], bool] = lambda _: True) -> Grammar:
    """The grammar of these phrases.

    Args:
        phrases: What may be said; words may be written in any way that `normalise` understands.
        knows: Whether the ears have a pronunciation for a word. An option with an unknown word is left out, and so is
            an optional part; a phrase that cannot be said without one is left out whole.
    """
    unknown: dict[str, None] = {}

    def spoken(text: str) -> str | None:
        words = normalise(text)
        strange = [word for word in words.split() if not knows(word)]
        unknown.update(dict.fromkeys(strange))
        return None if strange else words

    kept: dict[Phrase, None] = {}
    for phrase in phrases:
        parts = _spoken_phrase(phrase, spoken)
        # A phrase that silence fulfils would be heard everywhere.
        if parts and 0 not in _ends(parts, [], 0):
            kept[parts] = None
    return Grammar(tuple(kept), tuple(unknown))


def _spoken_phrase(phrase: Sequence[Part], spoken: Callable[[str], str | None]) -> Phrase | None:
    parts: list[Part] = []
    for part in phrase:
        match part:
            case Choice(name, options):
                wordings = tuple(dict.fromkeys(words for option in options if (words := spoken(option))))
                if not wordings:
                    return None
                parts.append(Choice(name, wordings))
            case Optional(words):
                inner = _spoken_phrase((words,) if isinstance(words, str) else words, spoken)
                if inner:
                    parts.append(Optional(inner))
            case _:
                text = spoken(part)
                if text is None:
                    return None
                if text:
                    parts.append(text)
    return tuple(parts)


def _jsgf(phrase: Phrase, rules: dict[tuple[str, ...], str]) -> str:
    written: list[str] = []
    for part in phrase:
        match part:
            case Choice(name, options):
                rule = rules.setdefault(options, f"{re.sub('[^a-z0-9]', '', name.lower())}{len(rules)}")
                written.append(f"<{rule}>")
            case Optional(words):
                written.append(f"[ {words if isinstance(words, str) else _jsgf(words, rules)} ]")
            case _:
                written.append(part)
    return " ".join(written)


def _ends(phrase: Phrase, words: Sequence[str], start: int) -> set[int]:
    """Where the phrase may end when it begins at word `start`."""
    places = {start}
    for part in phrase:
        match part:
            case Choice(_, options):
                places = {end for place in places for option in options for end in _after(option, words, place)}
            case Optional(inner):
                nested: Phrase = (inner,) if isinstance(inner, str) else inner
                places |= {end for place in places for end in _ends(nested, words, place)}
            case _:
                places = {end for place in places for end in _after(part, words, place)}
    return places


def _after(text: str, words: Sequence[str], place: int) -> tuple[int, ...]:
    wanted = text.split()
    return (place + len(wanted),) if list(words[place : place + len(wanted)]) == wanted else ()
