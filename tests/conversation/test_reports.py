"""How much was heard: reports that come often, rarely, late, out of range, or never."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.content import text_of
from antiphon.conversation.heard import FASTEST_CHARS_PER_S
from antiphon.conversation.history import FINAL_REPORT_S, STALL_S, Truncate
from antiphon.conversation.repair import problems
from antiphon.events import BidiTranscriptStartEvent, BidiTranscriptStopEvent
from tests.conversation.talk import Talk

WORD_MS = 300
anything = st.one_of(st.floats(), st.floats(-500, 4000), st.integers(0, 12).map(lambda count: float(count * WORD_MS)))


def words(count: int, name: str = "w") -> str:
    return " ".join(f"{name}{index}" for index in range(count))


def heard_words(talk: Talk) -> list[str]:
    return [word for message in talk.messages if message["role"] == "assistant" for word in text_of(message).split()]


@settings(max_examples=300)
@given(
    count=st.integers(1, 10),
    early=st.lists(st.tuples(st.floats(0, 1), anything), max_size=4),
    cut=st.booleans(),
    late=st.lists(st.tuples(st.floats(0, 4), anything, st.booleans()), max_size=4),
    seen=st.booleans(),
    behind=st.booleans(),
)
def test_the_last_word_of_the_loudspeaker_decides_whenever_it_comes(count, early, cut, late, seen, behind):
    talk = Talk()
    talk.type("go")
    talk.say("r", words(count), word_ms=WORD_MS)
    reported = None
    for pause, ms in early:
        talk.wait(pause)
        talk.played("r", ms)
        if math.isfinite(ms):
            reported = max(reported or 0.0, min(max(ms, 0.0), count * WORD_MS))
    was_cut = cut and bool(talk.cut())
    if was_cut and seen:
        talk.conversation.cut_seen(talk.now)
    at_cut = talk.conversation.speech("r", talk.now).position_ms(talk.now)
    if behind:
        talk.type("behind")
    last = None
    for pause, ms, type_more in late:
        talk.wait(pause)
        talk.played("r", ms)
        if math.isfinite(ms):
            last = min(max(ms, 0.0), count * WORD_MS)
        if type_more:
            talk.type("later")
    talk.wait(60)
    talk.close()
    assert problems(talk.messages) == []
    typed = [text_of(message) for message in talk.messages if message["role"] == "user"]
    assert typed == ["go", *["behind"] * behind, *["later" for _, _, more in late if more]]
    if was_cut:
        until = at_cut if last is None else last
        assert heard_words(talk) == words(count).split()[: int((until + 1e-6) // WORD_MS)]
    elif reported is None and not any(math.isfinite(ms) for _, ms, _ in late):
        assert heard_words(talk) == words(count).split()
    if heard_words(talk):
        assert talk.messages[1]["role"] == "assistant"  # in its place, whatever was said since
    assert all(0 <= told.played_ms <= count * WORD_MS for told in talk.truncated)


@pytest.mark.parametrize("behind", [False, True])
def test_a_report_after_nothing_counted_as_heard_puts_the_words_in_their_place(behind):
    talk = Talk()
    talk.type("go")
    talk.say("r", words(4), word_ms=500)
    talk.played("r", 0)
    talk.wait(1)
    talk.cut()
    talk.conversation.cut_seen(talk.now)
    if behind:
        talk.type("stop")
    talk.wait(FINAL_REPORT_S)
    assert "a: w0" not in talk.texts
    talk.played("r", 600)
    assert talk.texts == ["u: go", "a: w0", *["u: stop"] * behind]
    talk.played("r", 0)
    assert talk.texts == ["u: go", *["u: stop"] * behind]
    talk.played("r", 1100)
    assert talk.texts == ["u: go", "a: w0 w1", *["u: stop"] * behind]


@settings(max_examples=150)
@given(
    count=st.integers(1, 12),
    every=st.floats(20, 150),
    offset=st.floats(0, 100),
    lag=st.floats(0, 100),
    timed=st.booleans(),
)
@example(count=7, every=100.0, offset=0.0, lag=0.0, timed=True)
def test_a_loudspeaker_that_reports_now_and_then_need_not_report_the_end(count, every, offset, lag, timed):
    talk = Talk()
    if timed:
        talk.say("r", words(count), word_ms=WORD_MS)
    else:
        talk.begin("r")
        talk.write(words(count))
        talk.sound("r", count * WORD_MS)
        talk.end("r")
    whole = count * WORD_MS
    at = offset
    while at < whole:
        talk.wait((at + lag) / 1000 - talk.now)
        talk.played("r", at)
        at += every
    talk.wait((whole + lag) / 1000 + 0.5 - talk.now)
    assert heard_words(talk) == words(count).split()
    assert "interrupted" not in talk.messages[-1]["metadata"]


def test_a_loudspeaker_that_stopped_far_from_the_end_did_not_play_it():
    talk = Talk()
    talk.say("r", words(10), word_ms=WORD_MS)
    talk.wait(1)
    talk.played("r", 1000)
    talk.wait(STALL_S)
    assert talk.texts == ["a: w0 w1 w2"]
    assert talk.messages[-1]["metadata"]["interrupted"] is True


@settings(max_examples=150)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.floats(0, 30), st.booleans())
def test_answers_that_come_at_once_are_played_one_after_the_other(counts, cut_at, behind):
    talk = Talk()
    for number, count in enumerate(counts):
        talk.say(f"r{number}", words(count, f"r{number}w"), word_ms=WORD_MS)
    if behind:
        talk.type("meanwhile")
    talk.wait(cut_at)
    talk.cut()
    whole = [word for number, count in enumerate(counts) for word in words(count, f"r{number}w").split()]
    heard = heard_words(talk)
    assert heard == whole[: len(heard)]
    assert abs(len(heard) - min(cut_at * 1000 / WORD_MS, len(whole))) <= 1
    talk.close()
    assert heard_words(talk) == heard


def test_an_answer_is_not_given_up_before_it_is_its_turn():
    talk = Talk()
    talk.say("r1", words(30), word_ms=WORD_MS, deliver=False)
    talk.say("r2", words(3, "v"), word_ms=WORD_MS, deliver=False)
    for response, count in (("r1", 30), ("r2", 3)):
        for index in range(count):  # played by somebody who takes what it plays, and says so
            talk.conversation.speech(response, talk.now).deliver(WORD_MS, talk.now)
            talk.wait(WORD_MS / 1000)
            talk.played(response, (index + 1) * WORD_MS)
    assert talk.texts == [f"a: {words(30)}", f"a: {words(3, 'v')}"]


def test_a_long_answer_is_not_given_up_while_it_plays():
    talk = Talk()
    talk.say("r", words(40), word_ms=WORD_MS)
    talk.wait(STALL_S + 1)
    talk.type("well")
    talk.wait(10)
    assert talk.texts == [f"a: {words(40)}", "u: well"]


def test_a_slow_loudspeaker_holds_the_next_answer_back():
    talk = Talk()
    talk.say("r1", words(10), word_ms=WORD_MS)
    talk.say("r2", words(10, "v"), word_ms=WORD_MS)
    for index in range(10):
        talk.wait(2 * WORD_MS / 1000)
        talk.played("r1", (index + 1) * WORD_MS)
    assert talk.texts == [f"a: {words(10)}"]
    talk.wait(WORD_MS / 1000)
    talk.cut()
    assert talk.texts == [f"a: {words(10)}", "a: v0"]


@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.sampled_from(["before", "with", "after"]), st.integers(0, 3000)),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
    st.floats(0, 1),
)
def test_text_is_not_heard_before_its_sound(sentences, complete, share):
    """Sentences whose text comes before, with or after their sound, or whose sound never came."""
    talk = Talk()
    talk.begin("r")
    speech = talk.conversation.responding
    begins = []
    for number, (count, when, ms) in enumerate(sentences):
        begins.append(speech.audio_ms)
        if when == "after":
            talk.sound("r", ms)
        talk.event(BidiTranscriptStartEvent(content_id=f"s{number}"))
        text = words(count, f"s{number}w")
        for index, word in enumerate(text.split()):
            talk.write(f" {word}" if index else word, f"s{number}")
            if when == "with":
                talk.sound("r", ms / count)
        talk.event(BidiTranscriptStopEvent(content_id=f"s{number}"))
        if when == "before":
            talk.sound("r", ms)
    if complete:
        talk.end("r")
    played = share * speech.audio_ms
    talk.wait(played / 1000)
    if not talk.cut():
        assert complete
        return
    said = {text_of(message).split("w")[0]: text_of(message) for message in talk.messages}
    if not complete and all(when != "after" for _, when, _ in sentences):
        for number, begin in enumerate(begins):
            assert len(said.get(f"s{number}", "")) <= max(0.0, FASTEST_CHARS_PER_S * (played - begin) / 1000) + 1e-6
    total = sum(len(text_of(message)) for message in talk.messages)
    if not complete:
        assert total <= FASTEST_CHARS_PER_S * played / 1000 + 1e-6


def test_sentences_whose_text_comes_before_their_sound_are_heard_one_by_one():
    talk = Talk()
    talk.begin("r")
    for number in range(3):
        talk.event(BidiTranscriptStartEvent(content_id=f"s{number}"))
        talk.write(words(4, f"s{number}w"), f"s{number}")
        talk.event(BidiTranscriptStopEvent(content_id=f"s{number}"))
        if number == 0:
            talk.sound("r", 2000)
    talk.played("r", 1000)
    talk.wait(1)
    talk.cut()
    talk.wait(3)
    assert talk.texts == ["a: s0w0 s0w1"]
    assert talk.truncated == [Truncate("r", 1000)]


def test_a_new_connection_is_told_of_a_cut_answer_what_was_heard():
    talk = Talk()
    talk.say("r", words(10), word_ms=WORD_MS)
    talk.wait(0.7)
    talk.played("r", 650)
    talk.cut()
    assert talk.messages == []  # the loudspeaker has not said its last word
    assert [text_of(message) for message in talk.conversation.expected()] == ["w0 w1"]


LATE = {
    "report": lambda talk: talk.played("r", 900),
    "report of nothing": lambda talk: talk.played("r", 0),
    "user's words": lambda talk: talk.heard("so it was this"),
    "words of the answer": lambda talk: (talk.write(" more", "r"), talk.wait(1)),
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("key", ["content", "generated_text"])
def test_a_message_that_somebody_changed_in_place_is_left_alone(late, key):
    talk = Talk()
    talk.hearing()
    talk.say("r", words(5), word_ms=500, stop=False)
    talk.end("r")
    talk.wait(1.6)
    talk.cut()
    talk.wait(3)
    assert talk.texts == ["u: [inaudible]", "a: w0 w1 w2"]
    for message in talk.messages:
        if key == "content":
            message["content"] = [{"text": "[redacted]"}]
        else:
            message["metadata"]["generated_text"] = "[redacted]"
    before = [dict(message) for message in talk.messages]
    LATE[late](talk)
    assert talk.messages == before


def test_a_correction_keeps_what_others_wrote_beside_the_words():
    talk = Talk()
    talk.say("r", words(5), word_ms=500)
    talk.wait(1.6)
    talk.cut()
    talk.messages[0]["tracking_id"] = "m1"
    talk.messages[0]["metadata"]["custom"] = {"mood": "calm"}
    talk.played("r", 900)
    assert talk.texts == ["a: w0"]
    assert talk.messages[0]["tracking_id"] == "m1"
    assert talk.messages[0]["metadata"]["custom"] == {"mood": "calm"}
    assert talk.messages[0]["metadata"]["heard_ms"] == 900


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, 2)), min_size=1, max_size=6),
)
def test_a_barge_in_that_names_an_answer_cuts_it_and_those_before_it_once(counts, cuts):
    talk = Talk()
    ids = [f"r{number}" for number in range(len(counts))]
    for response_id, count in zip(ids, counts, strict=True):
        talk.say(response_id, words(count), word_ms=WORD_MS)
    over = 0
    for number, pause in cuts:
        talk.wait(pause)
        played = [talk.conversation.speech(key, talk.now).all_played(talk.now) for key in ids]
        if number >= len(ids):
            assert talk.cut() == [key for index, key in enumerate(ids) if index >= over and not played[index]]
            return
        old = number < over or played[number]
        if old and not all(played[over:]):
            assert talk.conversation.is_old(ids[number], talk.now)
        expected = (
            [] if old else [key for index, key in enumerate(ids) if over <= index <= number and not played[index]]
        )
        assert talk.cut(ids[number]) == expected
        over = over if old else number + 1


def test_what_is_played_next_after_a_named_barge_in_begins_then():
    talk = Talk()
    talk.say("r1", words(10), word_ms=WORD_MS)
    talk.say("r2", words(4, "v"), word_ms=WORD_MS)
    talk.wait(1)
    assert talk.cut("r1") == ["r1"]
    talk.wait(0.7)
    assert talk.cut() == ["r2"]
    assert talk.texts == ["a: w0 w1 w2", "a: v0 v1"]


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("say"), st.integers(1, 6), st.booleans()),
            st.tuples(st.just("wait"), st.floats(0, 7), st.booleans()),
            st.tuples(st.just("report"), st.floats(-1, 4000), st.booleans()),
            st.tuples(st.just("hear"), st.integers(0, 1), st.booleans()),
            st.tuples(st.just("cut"), st.integers(0, 1), st.booleans()),
            st.tuples(st.just("lose"), st.floats(1, 900), st.booleans()),
        ),
        max_size=14,
    ),
    st.floats(0, 1e6),
)
def test_time_alone_settles_what_is_complete_and_never_rings_in_vain(steps, start):
    talk = Talk(now=start)
    number = 0
    for step, value, flag in steps:
        match step:
            case "say":
                number += 1
                talk.say(f"r{number}", words(value), word_ms=333, deliver=flag)
            case "wait":
                talk.wait(value)
            case "report" if number:
                talk.played(f"r{number}", value)
            case "hear":
                talk.hear("words" * value)
            case "cut" if talk.cut() and flag:
                talk.conversation.cut_seen(talk.now)
            case "lose" if number:
                speech = talk.conversation.speech(f"r{number}", talk.now)
                speech.audio_ms += value
                speech.lose(value)
        talk.do(talk.conversation.tick(talk.now))
        due = talk.conversation.due(talk.now)
        assert due is None or due > talk.now
    talk.wait(60)
    assert not talk.conversation.open
    assert talk.conversation.due(talk.now) is None
