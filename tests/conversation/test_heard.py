"""What of an answer reached the listener's ear."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.conversation.heard import Part, Speech, heard_text
from antiphon.events import Word

words_with_times = st.lists(
    st.tuples(st.text("abcdé.,", min_size=1, max_size=6), st.integers(1, 400)), min_size=1, max_size=12
)


def timed(parts: list[tuple[str, int]]) -> tuple[Word, ...]:
    at = 0
    found = []
    for text, length in parts:
        found.append(Word(text, start_ms=at, end_ms=at + length))
        at += length
    return tuple(found)


def speech_of(words: tuple[Word, ...], *, exact: bool = True) -> tuple[Speech, Part]:
    speech = Speech("r", 0.0)
    part = Part("c")
    speech.parts.append(part)
    for index, word in enumerate(words):
        part.add(("" if index == 0 else " ") + word.text, (word,) if exact else ())
    speech.audio_ms = words[-1].end_ms
    return speech, part


@given(words_with_times, st.floats(0, 6000))
def test_a_timed_answer_is_heard_up_to_the_last_word_that_ended(parts, ms):
    words = timed(parts)
    speech, part = speech_of(words)
    assert speech.heard(part, ms) == heard_text(words, ms)


@given(words_with_times, st.floats(0, 6000), st.floats(0, 6000))
def test_more_sound_never_means_fewer_words(parts, one, other):
    for exact in (True, False):
        speech, part = speech_of(timed(parts), exact=exact)
        assert speech.heard(part, max(one, other)).startswith(speech.heard(part, min(one, other)))


@given(words_with_times, st.floats(0, 6000))
def test_an_untimed_answer_is_cut_at_the_end_of_a_word(parts, ms):
    words = timed(parts)
    speech, part = speech_of(words, exact=False)
    heard = speech.heard(part, ms).split()
    assert heard == [word.text for word in words][: len(heard)]


@given(words_with_times, st.floats(0, 1))
def test_an_untimed_answer_is_heard_in_proportion_to_its_sound(parts, share):
    speech, part = speech_of(timed(parts), exact=False)
    heard = speech.heard(part, share * speech.audio_ms)
    assert len(heard) <= max(
        share * len(part.text) + 1e-6, len(part.text) if share * speech.audio_ms >= speech.audio_ms - 1 else 0
    )


def test_sound_counts_as_heard_by_the_report_of_the_loudspeaker_first():
    speech, _ = speech_of(timed([("one", 500), ("two", 500)]))
    speech.deliver(1000, now=0.0)
    assert speech.position_ms(now=0.7) == 700
    speech.report(400, now=0.7)
    assert speech.position_ms(now=5.0) == 400


def test_without_a_report_no_more_is_heard_than_was_handed_out():
    speech, _ = speech_of(timed([("one", 500), ("two", 500)]))
    assert speech.position_ms(now=9.0) == 0
    speech.deliver(300, now=9.0)
    assert speech.position_ms(now=20.0) == 300


def test_sound_that_comes_after_a_pause_is_not_played_before_it_came():
    speech, _ = speech_of(timed([("one", 500), ("two", 500)]))
    speech.deliver(500, now=0.0)
    speech.deliver(500, now=2.0)
    assert speech.position_ms(now=1.0) == 500
    assert speech.position_ms(now=2.1) == pytest.approx(600)
    assert speech.position_ms(now=9.0) == 1000


def test_dropped_sound_does_not_hurry_what_is_still_to_be_played():
    speech, part = speech_of(timed([("one", 500), ("two", 500), ("three", 500)]))
    speech.deliver(500, now=0.0)
    speech.lose(500)
    assert speech.heard(part, speech.heard_ms(now=0.3)) == ""
    assert speech.position_ms(now=0.3) == 300


@given(st.lists(st.tuples(st.floats(0, 900), st.booleans(), st.floats(0, 1)), max_size=8), st.floats(0, 5))
def test_no_more_is_played_than_was_handed_out_and_than_time_allows(pieces, later):
    speech = Speech("r", 0.0)
    now = 0.0
    positions = [0.0]
    for ms, lost, pause in pieces:
        speech.audio_ms += ms
        if lost:
            speech.lose(ms)
        else:
            speech.deliver(ms, now)
        now += pause
        positions.append(speech.heard_ms(now))
    positions.append(speech.heard_ms(now + later))
    assert positions == sorted(positions)
    given = sum(ms for ms, lost, _ in pieces if not lost)
    assert positions[-1] <= min(given, (now + later) * 1000) + 1e-6


def test_nothing_after_dropped_sound_counts_as_heard():
    speech, part = speech_of(timed([("one", 500), ("two", 500), ("three", 500)]))
    speech.deliver(500, now=0.0)
    speech.lose(500)
    speech.deliver(500, now=0.5)
    assert speech.heard(part, speech.heard_ms(now=9.0)) == "one"


def test_words_of_a_second_part_lie_behind_those_of_the_first_one():
    speech, first = speech_of(timed([("aaaa", 400), ("bbbb", 400)]), exact=False)
    second = Part("d")
    second.add("cccc dddd", ())
    speech.parts.append(second)
    speech.audio_ms = 1600
    assert (speech.heard(first, 1000), speech.heard(second, 1000)) == ("aaaa bbbb", "")
    assert speech.heard(second, 1599.5) == "cccc dddd"


def test_of_an_answer_that_is_not_complete_no_more_is_heard_than_can_be_said():
    speech, part = speech_of(timed([("word", 5)] * 100), exact=False)
    assert speech.audio_ms == 500
    assert speech.heard(part, 500) == "word word"
    speech.complete = True
    assert speech.heard(part, 500) == part.text  # its sound is as long as it is


def test_text_that_lags_behind_its_sound_shares_the_sound_before_it():
    speech = Speech("r", 0.0)
    for index, begin_ms in enumerate((2000.0, 4000.0)):
        part = Part(str(index), begin_ms)
        part.add(f"aaaa{index} bbbb{index} cccc{index}", ())
        speech.parts.append(part)
    speech.audio_ms = 4000.0
    speech.complete = True
    first, second = speech.parts
    assert (speech.heard(first, 1000), speech.heard(second, 1000)) == ("aaaa0", "")
    assert (speech.heard(first, 3000), speech.heard(second, 3000)) == (first.text, "aaaa1")


def test_a_full_stop_goes_with_the_last_word():
    part = Part("c")
    part.add("Done", (Word("Done", end_ms=300),))
    part.add(".", ())
    part.stopped = True
    assert part.until(300) == "Done."
