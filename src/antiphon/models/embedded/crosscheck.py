"""Whether what a grammar made of some speech is what was said.

A recogniser that knows a few sentences takes everything for one of them. So a second one, which knows English and not
the grammar, hears the same sound. Its words are often wrong, but they *sound* like what was said, and its score says
how well the sound can be explained at all. The grammar is believed when both agree in three ways:

- the phones of its sentence and of the free text are alike as a whole;
- no word that matters fits the sound much worse than what the free recogniser heard in its place;
- little was said beside its words.

The bounds were chosen on sentences of four synthetic voices; docs/decisions/0007-voice-extra.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from antiphon.models.embedded.sphinx import Segment

PHONES_ALIKE = 0.42
WORST_WORD = -105.0
WORST_PER_FRAME = -2.6
MISSED_FRAMES = 25

# They decide nothing and are swallowed in fluent speech, so that their fit says nothing.
_SMALL = frozenset(["a", "an", "the", "is", "in", "on", "of", "for", "at", "to", "it", "and"])


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two recognisers agree.

    Attributes:
        alike: Likeness of the phones, 0 to 1.
        worst: How much worse than the free recogniser's words the worst word fits, as a logarithm; 0 or less.
        worst_per_frame: The same for each hundredth of a second.
        missed: Frames in which the free recogniser heard words, and the grammar none.
    """

    alike: float
    worst: float
    worst_per_frame: float
    missed: int

    @property
    def holds(self) -> bool:
        """Whether the grammar's sentence may be believed."""
        return (
            self.alike >= PHONES_ALIKE
            and self.worst >= WORST_WORD
            and self.worst_per_frame >= WORST_PER_FRAME
            and self.missed <= MISSED_FRAMES
        )


def compare(
    grammar: Sequence[Segment], free: Sequence[Segment], pronunciation: Callable[[str], Sequence[str]]
) -> Agreement:
    """How far the free recogniser confirms the grammar's sentence; both heard the same frames."""
    said = [segment for segment in grammar if segment.is_word]
    heard = [segment for segment in free if segment.is_word]
    phones, others = (
        [phone for segment in words for phone in pronunciation(segment.word) or pronunciation(segment.text)]
        for words in (said, heard)
    )
    longest = max(len(phones), len(others))
    alike = 1 - distance(phones, others) / longest if longest else 0.0
    frames = max((segment.end + 1 for segment in [*grammar, *free]), default=0)
    gains = list(accumulate(map(float.__sub__, _scores(grammar, frames), _scores(free, frames)), initial=0.0))
    worst = worst_per_frame = 0.0
    for word in said:
        if word.text not in _SMALL and not _confirmed(word, heard):
            gain = gains[word.end + 1] - gains[word.start]
            worst = min(worst, gain)
            worst_per_frame = min(worst_per_frame, gain / (word.end + 1 - word.start))
    covered = {frame for word in said for frame in range(word.start, word.end + 1)}
    missed = sum(frame not in covered for word in heard for frame in range(word.start, word.end + 1))
    return Agreement(alike, worst, worst_per_frame, missed)


def _confirmed(word: Segment, heard: Sequence[Segment]) -> bool:
    """Whether the same word was heard in at least half of the same place."""
    length = word.end + 1 - word.start
    return any(
        other.text == word.text and min(other.end, word.end) + 1 - max(other.start, word.start) >= length / 2
        for other in heard
    )


def _scores(segments: Sequence[Segment], frames: int) -> list[float]:
    """Each frame's part of its segment's score."""
    scores = [0.0] * frames
    for segment in segments:
        length = segment.end + 1 - segment.start
        if length > 0:
            scores[segment.start : segment.end + 1] = [segment.acoustic / length] * length
    return scores


def distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Levenshtein's distance: how many items must be put in, taken out or replaced.

    >>> distance("kitten", "sitting")
    3
    """
    row = list(range(len(second) + 1))
    for number, item in enumerate(first, 1):
        before, row = row, [number]
        for place, other in enumerate(second, 1):
            row.append(min(before[place] + 1, row[-1] + 1, before[place - 1] + (item != other)))
    return row[-1]
