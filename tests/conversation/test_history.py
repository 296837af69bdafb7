"""The order in which things enter the history of a live call."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.content import text_of
from antiphon.conversation.history import INAUDIBLE, TRANSCRIPT_WAIT_S, Conversation, Truncate
from antiphon.conversation.repair import problems
from antiphon.events import (
    BidiReasoningDeltaEvent,
    BidiReasoningStartEvent,
    BidiReasoningStopEvent,
    BidiTextDeltaEvent,
    BidiTextStartEvent,
    BidiTextStopEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
)
from tests.conversation.talk import Talk


@pytest.fixture
def talk() -> Talk:
    return Talk()


def test_an_answer_enters_the_history_when_it_was_heard(talk):
    talk.hear("hello")
    talk.say("r", "good morning to you")
    assert talk.texts == ["u: hello"]
    talk.wait(1.9)
    assert talk.texts == ["u: hello"]
    talk.wait(0.1)
    assert talk.texts == ["u: hello", "a: good morning to you"]
    assert "interrupted" not in talk.messages[-1]["metadata"]


def test_a_late_user_transcript_does_not_land_after_the_answer_to_it(talk):
    talk.hearing()
    talk.say("r", "two words")
    talk.wait(1.5)
    talk.heard("what was that")
    assert talk.texts == ["u: what was that", "a: two words"]


@pytest.mark.parametrize("started", [False, True])
def test_a_transcript_that_begins_late_takes_the_place_of_the_speech_it_belongs_to(talk, started):
    talk.conversation.sound_in = True
    talk.say("r", "two words", stop=not started)
    if started:
        talk.hear("what was that")
        talk.end("r")
        talk.wait(1.5)
    else:
        talk.wait(1.5)
        talk.heard("what was that")
    assert talk.texts == ["u: what was that", "a: two words"]


def test_speech_that_begins_after_an_answer_was_made_is_not_what_it_answers(talk):
    talk.conversation.sound_in = True
    talk.say("r", "good morning")
    talk.wait(0.5)
    talk.hear("a table for two")
    talk.wait(5)
    assert talk.texts == ["a: good morning", "u: a table for two"]


@pytest.mark.parametrize("started", [False, True])
def test_what_is_said_over_a_greeting_comes_after_it(talk, started):
    talk.conversation.sound_in = True
    talk.say("r", "good morning to you", stop=False)
    talk.wait(1.1)
    talk.cut()
    if started:
        talk.hearing()
    talk.heard("a table for two")
    talk.wait(5)
    assert talk.texts == ["a: good morning", "u: a table for two"]


def test_a_model_that_announces_speech_is_not_thought_to_have_missed_any(talk):
    talk.hear("hello")
    talk.say("r1", "good morning")
    talk.wait(5)
    talk.conversation.sound_in = True
    talk.say("r2", "still there")
    talk.heard("yes")
    talk.wait(5)
    assert talk.texts == ["u: hello", "a: good morning", "a: still there", "u: yes"]


def test_a_transcript_that_never_comes_holds_the_rest_for_two_seconds_after_the_answer(talk):
    talk.hearing()
    talk.say("r", "two words")
    talk.wait(TRANSCRIPT_WAIT_S - 0.1)
    assert talk.texts == []
    talk.wait(0.2)
    assert talk.texts == [f"u: {INAUDIBLE}", "a: two words"]


def test_a_text_that_comes_after_all_replaces_the_inaudible_one_in_its_place(talk):
    talk.hearing()
    talk.say("r", "two words")
    talk.wait(10)
    talk.type("next")
    talk.heard("so it was this")
    assert talk.texts == ["u: so it was this", "a: two words", "u: next"]


def test_sound_without_any_words_of_the_user_leaves_no_trace(talk):
    talk.conversation.sound_in = True
    talk.say("r", "good morning")
    talk.wait(10)
    assert talk.texts == ["a: good morning"]


def test_noise_that_nobody_answers_leaves_no_trace(talk):
    talk.hear("")
    talk.type("hello")
    assert talk.texts == ["u: hello"]


def test_a_barge_in_keeps_what_was_heard_and_marks_it(talk):
    talk.hear("tell me")
    talk.say("r", "once upon a time")
    talk.wait(1.2)
    assert talk.cut() == ["r"]
    assert talk.texts == ["u: tell me", "a: once upon"]
    assert talk.messages[-1]["metadata"] == {
        "kind": "speech",
        "response_id": "r",
        "interrupted": True,
        "generated_text": "once upon a time",
        "heard_ms": 1200.0,
    }
    assert talk.truncated == [Truncate("r", 1200.0)]


def test_the_loudspeakers_last_word_decides_where_an_answer_was_cut(talk):
    talk.say("r", "once upon a time")
    talk.wait(0.5)
    talk.played("r", 480)
    talk.wait(0.6)
    talk.cut()
    assert talk.texts == []
    talk.played("r", 490)  # was on its way before the barge-in was known
    assert talk.texts == []
    talk.conversation.cut_seen(talk.now)
    talk.played("r", 1040)
    assert talk.texts == ["a: once upon"]
    assert talk.truncated == [Truncate("r", 1040)]


def test_without_a_last_word_the_latest_report_counts(talk):
    talk.say("r", "once upon a time")
    talk.played("r", 510)
    talk.cut()
    talk.conversation.cut_seen(talk.now)
    talk.wait(0.6)
    assert talk.texts == ["a: once"]


def test_a_report_that_comes_too_late_corrects_the_history(talk):
    talk.say("r", "once upon a time")
    talk.wait(1.6)
    talk.cut()
    talk.type("stop")
    talk.played("r", 900)
    assert talk.texts == ["a: once", "u: stop"]


def test_an_answer_of_which_nothing_was_heard_is_not_in_the_history(talk):
    talk.type("go")
    talk.say("r", "never heard", deliver=False)
    talk.cut()
    assert talk.texts == ["u: go"]
    assert talk.truncated == [Truncate("r", 0.0)]


def test_words_made_before_any_sound_were_not_heard(talk):
    talk.begin("r")
    talk.event(BidiTranscriptStartEvent(content_id="r"))
    talk.event(BidiTranscriptDeltaEvent(delta="so many words", content_id="r"))
    talk.cut()
    assert talk.texts == []


def test_speech_that_ends_without_sound_counts_as_heard(talk):
    talk.begin("r")
    talk.event(BidiTranscriptStartEvent(content_id="r"))
    talk.event(BidiTranscriptDeltaEvent(delta="a caption", content_id="r"))
    talk.event(BidiTranscriptStopEvent(content_id="r"))
    assert talk.texts == []
    talk.end("r")
    assert talk.texts == ["a: a caption"]


def test_a_barge_in_cuts_every_answer_that_is_not_heard_yet(talk):
    talk.say("one", "first answer")
    talk.say("two", "second answer")
    talk.wait(0.6)
    assert talk.cut() == ["one", "two"]
    assert talk.texts == ["a: first"]


def test_a_barge_in_after_everything_was_heard_cuts_nothing(talk):
    talk.say("r", "all of it")
    talk.wait(5)
    assert talk.cut() == []
    assert talk.texts == ["a: all of it"]
    assert talk.truncated == []


def test_typed_text_waits_for_what_began_before_it(talk):
    talk.say("r", "one two three")
    talk.wait(0.5)
    talk.type("wait")
    assert talk.texts == []
    assert [text_of(line) for line in talk.conversation.open_lines(talk.now)] == ["one", "wait"]
    talk.wait(1)
    assert talk.texts == ["a: one two three", "u: wait"]


def test_written_text_enters_when_it_ends_and_reasoning_stays_apart(talk):
    talk.begin("r")
    talk.event(BidiReasoningStartEvent(content_id="t"))
    talk.event(BidiReasoningDeltaEvent(delta="hm", content_id="t"))
    talk.event(BidiTextStartEvent(content_id="w"))
    talk.event(BidiTextDeltaEvent(delta="A ", content_id="w"))
    talk.event(BidiTextDeltaEvent(delta="note", content_id="w"))
    talk.event(BidiTextStopEvent(content_id="w"))
    assert talk.texts == []
    talk.event(BidiReasoningStopEvent(content_id="t"))
    assert talk.messages[0]["content"] == [{"reasoningContent": {"reasoningText": {"text": "hm"}}}]
    assert talk.texts[1] == "a: A note"
    assert [event.type for event in talk.emitted] == ["bidi_text_block", "bidi_reasoning_block"]


def test_written_text_that_is_cut_keeps_what_arrived(talk):
    talk.begin("r")
    talk.event(BidiTextStartEvent(content_id="w"))
    talk.event(BidiTextDeltaEvent(delta="half a", content_id="w"))
    talk.cut()
    assert talk.texts == ["a: half a"]
    assert talk.messages[0]["metadata"] == {"interrupted": True}


def test_a_listener_who_stops_taking_sound_does_not_hold_the_history_for_ever(talk):
    talk.say("r", "one two three", deliver=False)
    talk.conversation.speech("r", talk.now).deliver(500, talk.now)
    talk.type("and then")
    talk.wait(20)
    assert talk.texts == ["a: one", "u: and then"]


def test_a_lost_connection_leaves_nothing_open_for_ever(talk):
    talk.hearing()
    talk.say("r", "one two", stop=False)
    talk.do(talk.conversation.disconnected(talk.now))
    talk.wait(3)
    assert talk.texts == [f"u: {INAUDIBLE}", "a: one two"]


def test_a_new_connection_is_told_what_is_still_on_its_way_to_the_ear(talk):
    talk.say("r", "one two three")
    assert [text_of(message) for message in talk.conversation.expected()] == ["one two three"]


def test_a_model_without_response_events_is_understood(talk):
    talk.event(BidiTranscriptStartEvent(content_id="a"))
    talk.sound("", 400)
    talk.event(BidiTranscriptDeltaEvent(delta="hello", content_id="a"))
    talk.event(BidiTranscriptStopEvent(content_id="a"))
    assert talk.conversation.at_boundary
    talk.wait(1)
    assert talk.texts == ["a: hello"]


def test_a_marked_line_is_settled_once():
    talk = Talk(Conversation(mark=7))
    talk.hear("one")
    talk.say("r", "two")
    assert talk.conversation.mark == 8
    talk.wait(1)
    assert talk.conversation.mark == 9


def test_closing_settles_everything_as_it_stands(talk):
    talk.hearing()
    talk.event(BidiTranscriptDeltaEvent(delta="half a sen", role="user", content_id="u"))
    talk.say("r", "one two three")
    talk.wait(0.7)
    talk.close()
    assert talk.texts == ["u: half a sen", "a: one"]
    assert not talk.conversation.open


@st.composite
def schedules(draw):
    """Things that happen in a call, in an order in which they may."""
    steps = []
    for turn in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["voice", "typed", "none"]))
        steps.append((kind, turn, draw(st.sampled_from(["early", "late", "never"]))))
        steps.append(("say", turn, draw(st.integers(1, 5)), draw(st.booleans())))
        steps.extend(
            draw(
                st.lists(st.sampled_from(["cut", "wait", "long", "played", "tool", "late", "type", "lost"]), max_size=3)
            )
        )
    return steps


def replay(steps, conversation=None) -> tuple[Talk, list[str]]:
    """Let it happen; the second value is what was said, in order, each as a prefix of what may stand in the history."""
    talk = Talk(conversation or Conversation())
    said: list[str] = []
    owing: list[tuple[str, str]] = []
    last = ""
    for number, step in enumerate(steps):
        match step:
            case ("typed", turn, _):
                talk.type(f"typed {turn}")
                said.append(f"u: typed {turn}")
            case ("voice", turn, when):
                talk.conversation.sound_in = True
                talk.hearing(f"u{turn}")
                said.append(f"u: spoken {turn}")
                if when == "early":
                    talk.heard(f"spoken {turn}", f"u{turn}")
                elif when == "late":
                    owing.append((f"spoken {turn}", f"u{turn}"))
            case ("none", _, _):
                pass
            case ("say", turn, count, stop):
                last = f"r{turn}"
                words = [f"w{turn}x{index}" for index in range(count)]
                talk.say(last, " ".join(words), stop=stop)
                said.append("a: " + " ".join(words))
            case "cut":
                talk.cut()
            case "wait":
                talk.wait(0.7)
            case "long":
                talk.wait(8)
            case "played":
                talk.played(last, 600)
            case "tool":
                call = {"toolUse": {"toolUseId": f"t{number}", "name": "x", "input": {}}}
                result = {"toolResult": {"toolUseId": f"t{number}", "status": "success", "content": [{"text": "k"}]}}
                pair = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
                talk.do(talk.conversation.said(pair, talk.now, by_user=False))
            case "late":
                for text, key in owing:
                    talk.heard(text, key)
                owing.clear()
            case "type":
                talk.type(f"more {number}")
                said.append(f"u: more {number}")
            case "lost":
                talk.do(talk.conversation.disconnected(talk.now))
    return talk, said


@settings(max_examples=300)
@given(schedules())
def test_whatever_order_events_come_in_the_history_is_legal_and_in_order_of_speech(steps):
    talk, said = replay(steps)
    talk.close()
    assert problems(talk.messages) == []
    spoken = iter(said)
    for text in talk.texts:
        if not text[3:]:
            continue  # a tool call or its result
        if text == f"u: {INAUDIBLE}":
            next(original for original in spoken if original.startswith("u: spoken"))
        else:
            assert any(original.startswith(text) for original in spoken), (text, said)


@settings(max_examples=200)
@given(schedules(), st.integers(0, 30))
def test_a_call_that_ends_anywhere_has_said_a_prefix_of_what_it_would_have(steps, at):
    """What is committed does not change, save that inaudible words are filled in and reports say how much was heard."""
    whole, _ = replay(steps)
    part, _ = replay(steps[:at])
    (others, spoken), (all_others, all_spoken) = apart(part), apart(whole)
    assert len(others) <= len(all_others)
    for early, final in zip(others, all_others, strict=False):
        assert early["role"] == final["role"]
        assert text_of(early) in {INAUDIBLE, text_of(final)}
    for response_id, early in spoken.items():
        if "played" not in steps and "interrupted" not in early["metadata"]:
            assert all_spoken[response_id] == early


def apart(talk):
    """What the model spoke, by response, and everything else."""
    spoken = {}
    others = []
    for message in talk.messages:
        response_id = message.get("metadata", {}).get("response_id")
        if response_id is None:
            others.append(message)
        else:
            spoken[response_id] = message
    return others, spoken


@given(schedules())
def test_a_journal_and_the_history_it_stands_beside_tell_each_line_once(steps):
    talk, _ = replay(steps)
    before = talk.conversation.mark
    lines = talk.conversation.open_lines(talk.now)
    talk.wait(30)
    settled = talk.conversation.mark - before
    assert settled <= len(lines)
    assert not talk.conversation.open or lines
