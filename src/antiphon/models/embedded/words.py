"""What words mean: numbers, times of day, words of one meaning. English only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_TOKEN = re.compile(r"\d+(?:[.:]\d+)?|[^\W\d_]+(?:['’][^\W\d_]+)*")
_HALF_OF_DAY = re.compile(r"\b([ap])\.\s?m\b\.?|(?<=\d)([ap])m\b", re.IGNORECASE)
_POLITE = re.compile(
    r"^\s*(?:(?:ok(?:ay)?|hey|well|so|and|now|then|please|i'd like(?: you)? to|i would like(?: you)? to|i'd like|i would like|"
    r"i want(?: you)? to|i need(?: you)? to|can you|could you|would you|will you|can i|could i|may i|let's|go ahead and)"
    r"\b[\s,]*)+",
    re.IGNORECASE,
)


def _words(text: str) -> list[str]:
    return text.split()


_UNITS = {
    word: value
    for value, word in enumerate(
        _words(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen"
        )
    )
}
_TENS = {
    word: 20 + 10 * index
    for index, word in enumerate(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"])
}

# Each line: words of one meaning; the first one stands for all.
_MEANINGS = """
light lights lamp lamps lighting bulb
weather forecast
book reserve booking reservation reserving
on enable enabled activate
off disable disabled deactivate
alarm wake waken
people persons person guests guest
message text sms
play start
stop end halt
delete remove erase
buy purchase
music song songs
temperature heating thermostat
home house
note notes memo
remind reminder
hour clock
"""
_SAME = {word: line.split()[0] for line in _MEANINGS.splitlines() if line for word in line.split()}

_GROUPS = {line.split()[0]: tuple(line.split()) for line in _MEANINGS.splitlines() if line}

STOP_WORDS = frozenset(
    _words("""a an the of to in at for on off by with from into about up down out as than per i me my mine you your we us our it
    its he him his she her they them their this that these those there here is are am be been was were do does did done
    has have had can could would will shall should may might must please kindly and or but then so if because what which
    who whom how when where why now just also too some any all only very really thing things o'clock am pm oh hey ok okay
    um uh er well let let's what's it's i'm i'd i'll that's there's who's where's""")
)
"""Words that say little about what is wanted."""

GENERIC_VERBS = frozenset(
    _words("get set do make run show find list check create tell give put turn switch change look fetch know see")
)
"""Verbs that fit many tools."""

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAYS = frozenset(("today", "tomorrow", "tonight", "yesterday", *WEEKDAYS))
_MONTHS = frozenset(_words("january february march april may june july august september october november december"))
_NEGATIONS = frozenset(("not", "don't", "dont", "never", "won't", "shouldn't", "doesn't", "can't"))


def singular(word: str) -> str:
    """A word without the s of a plural.

    >>> singular("lights"), singular("glass"), singular("cities")
    ('light', 'glass', 'city')
    """
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def meaning(word: str) -> str:
    """The word that stands for all words of its meaning.

    >>> meaning("Lamps"), meaning("reserve")
    ('light', 'book')
    """
    word = word.lower().replace("’", "'")
    one = singular(word)
    return _SAME.get(word) or _SAME.get(one) or one


def same_meaning(word: str) -> tuple[str, ...]:
    """All words of one meaning, the given one first.

    >>> same_meaning("reserve")
    ('reserve', 'book', 'booking', 'reservation', 'reserving')
    """
    group = _GROUPS.get(meaning(word), ())
    return (word, *(each for each in group if each != word))


def name_words(name: str) -> list[str]:
    """The words of a name as programmers write it.

    >>> name_words("set_living-roomLight")
    ['set', 'living', 'room', 'light']
    """
    return [word.lower() for word in _TOKEN.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " "))]


@dataclass(frozen=True, slots=True)
class Span:
    """A number in an utterance: tokens `start` to `end` (exclusive)."""

    start: int
    end: int
    value: float


@dataclass(frozen=True, slots=True)
class Time:
    """A time of day in an utterance.

    Attributes:
        start: First token.
        end: The token after the last one.
        hour: 0 to 23.
        minute: 0 to 59.
        sure: Whether it can only be a time; a bare number could be anything.
    """

    start: int
    end: int
    hour: int
    minute: int
    sure: bool


@dataclass(frozen=True)
class Utterance:
    """What somebody said or wrote."""

    text: str

    @cached_property
    def raw(self) -> tuple[str, ...]:
        """The words as written, polite beginnings left out."""
        text = _HALF_OF_DAY.sub(lambda found: f" {(found[1] or found[2]).lower()}m", self.text)
        return tuple(_TOKEN.findall(_POLITE.sub("", text)))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words in lower case."""
        return tuple(word.lower().replace("’", "'") for word in self.raw)

    @cached_property
    def meanings(self) -> tuple[str, ...]:
        """The words that stand for them."""
        return tuple(meaning(word) for word in self.words)

    @cached_property
    def content(self) -> frozenset[int]:
        """Which words say something."""
        return frozenset(
            index for index, word in enumerate(self.words) if word not in STOP_WORDS and word not in GENERIC_VERBS
        )

    @cached_property
    def negated(self) -> bool:
        """Whether it says what not to do."""
        return any(word in _NEGATIONS for word in self.words)

    @cached_property
    def numbers(self) -> tuple[Span, ...]:
        """The numbers in it, in order.

        >>> [span.value for span in Utterance("twenty five or one hundred and two, not 3.5").numbers]
        [25.0, 102.0, 3.5]
        """
        found: list[Span] = []
        index = 0
        while index < len(self.words):
            span = _number_at(self.words, index)
            if span is None:
                index += 1
            else:
                found.append(span)
                index = span.end
        return tuple(found)

    @cached_property
    def times(self) -> tuple[Time, ...]:
        """The times of day in it, in order.

        >>> [(t.hour, t.minute) for t in Utterance("at half past seven in the evening, or at 9:15").times]
        [(19, 30), (9, 15)]
        """
        found: list[Time] = []
        index = 0
        while index < len(self.words):
            time = self._time_at(index)
            if time is None:
                index += 1
            else:
                found.append(time)
                index = time.end
        return tuple(found)

    @cached_property
    def dates(self) -> tuple[tuple[int, int], ...]:
        """Where days are named: first token, and the one after the last."""
        found: list[tuple[int, int]] = []
        for index, word in enumerate(self.words):
            if word in DAYS or singular(word) in DAYS:
                start = index - 1 if index and self.words[index - 1] in {"next", "this", "last"} else index
                found.append((start, index + 1))
            elif word in _MONTHS and index + 1 < len(self.words) and (day := _number_at(self.words, index + 1)):
                found.append((index, day.end))
        return tuple(found)

    def _time_at(self, start: int) -> Time | None:
        words = self.words
        word = words[start]
        if word in {"noon", "midday"}:
            return Time(start, start + 1, 12, 0, sure=True)
        if word == "midnight":
            return Time(start, start + 1, 0, 0, sure=True)
        clock = re.fullmatch(r"(\d{1,2})[:.](\d\d)", word)
        if clock and int(clock[1]) < 24 and int(clock[2]) < 60:
            return self._half_of_day(Time(start, start + 1, int(clock[1]), int(clock[2]), sure=True))
        if word in {"half", "quarter"} and start + 2 < len(words) and words[start + 1] in {"past", "to"}:
            hour = _number_at(words, start + 2)
            if hour and _is_hour(hour.value):
                minutes = (30 if word == "half" else 15) * (1 if words[start + 1] == "past" else -1)
                total = (int(hour.value) * 60 + minutes) % 1440
                return self._half_of_day(Time(start, hour.end, total // 60, total % 60, sure=True))
        hour = _number_at(words, start)
        if hour is None or not _is_hour(hour.value):
            return None
        sure = start > 0 and words[start - 1] in {"at", "by", "until", "around"}
        minute, end = 0, hour.end
        if end < len(words) and words[end] == "o'clock":
            sure, end = True, end + 1
        else:
            late = _number_at(words, end) if end < len(words) else None
            if late and 10 <= late.value < 60 and late.value == int(late.value) and (sure or start == 0):
                minute, end = int(late.value), late.end
        return self._half_of_day(Time(start, end, int(hour.value) % 24, minute, sure=sure))

    def _half_of_day(self, time: Time) -> Time:
        rest = self.words[time.end : time.end + 3]
        hour, end, sure = time.hour, time.end, time.sure
        if rest[:1] in {("am",), ("pm",)}:
            late, end, sure = rest[0] == "pm", end + 1, True
        elif rest[:2] == ("in", "the") and rest[2:] in {("morning",), ("afternoon",), ("evening",)}:
            late, end, sure = rest[2] != "morning", end + 3, True
        elif rest[:1] == ("tonight",) or rest[:2] == ("at", "night"):
            late, end, sure = True, end + len(rest[:1] if rest[0] == "tonight" else rest[:2]), True
        else:
            return time
        if late and hour < 12:
            hour += 12
        elif not late and hour == 12:
            hour = 0
        return Time(time.start, end, hour, time.minute, sure=sure)


def _is_hour(value: float) -> bool:
    return value == int(value) and 0 <= value <= 24


def _number_at(words: tuple[str, ...], start: int) -> Span | None:
    if start >= len(words):
        return None
    word = words[start]
    if word[0].isdecimal():
        return None if ":" in word else Span(start, start + 1, float(word))
    total, end = _below_hundred(words, start)
    if end == start:
        if not (word == "a" and words[start + 1 : start + 2] in {("hundred",), ("thousand",)}):
            return None
        total, end = 1, start + 1
    done = 0  # thousands
    while end < len(words) and words[end] in {"hundred", "thousand"}:
        if words[end] == "hundred":
            total *= 100
        else:
            done, total = done + total * 1000, 0
        end += 1
        after = end + 1 if words[end : end + 1] == ("and",) else end
        more, more_end = _below_hundred(words, after)
        if more_end > after and words[more_end : more_end + 1] == ("hundred",):
            done, total, end = done + total, more, more_end
        elif more_end > after:
            total, end = total + more, more_end
    total += done
    if words[end : end + 1] == ("point",):
        digits, digit_end = _below_hundred(words, end + 1)
        if digit_end > end + 1:
            return Span(start, digit_end, float(f"{total}.{digits}"))
    return Span(start, end, float(total))


def _below_hundred(words: tuple[str, ...], start: int) -> tuple[int, int]:
    """The number that begins at a token, and the token after it; the same token when there is none."""
    if start >= len(words):
        return 0, start
    word = words[start]
    if word in _TENS:
        unit = _UNITS.get(words[start + 1], 0) if start + 1 < len(words) else 0
        return (_TENS[word] + unit, start + 2) if 0 < unit < 10 else (_TENS[word], start + 1)
    if word in _UNITS:
        return _UNITS[word], start + 1
    return 0, start


def spoken_number(value: int) -> str:
    """A whole number from 0 to 9999 in words; others as digits.

    >>> spoken_number(42), spoken_number(105)
    ('forty two', 'one hundred five')
    """
    if not 0 <= value < 10000:
        return str(value)
    names = list(_UNITS)
    if value < 20:
        return names[value]
    if value < 100:
        tens = list(_TENS)[value // 10 - 2]
        return tens if value % 10 == 0 else f"{tens} {names[value % 10]}"
    size, name = (100, "hundred") if value < 1000 else (1000, "thousand")
    head = f"{spoken_number(value // size)} {name}"
    return head if value % size == 0 else f"{head} {spoken_number(value % size)}"
