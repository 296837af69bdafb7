"""Providers that announce what they will say, and tell afterwards what they said."""

from __future__ import annotations

import pytest

from antiphon.events import BidiTranscriptDeltaEvent, BidiTranscriptStartEvent, BidiTranscriptStopEvent
from tests.conversation.talk import Talk

PLAN = "once upon a time a dragon lived in a cave"


@pytest.fixture
def talk() -> Talk:
    talk = Talk()
    talk.hear("tell me a story")
    talk.begin("r")
    talk.event(BidiTranscriptStartEvent(content_id="c"))
    talk.event(BidiTranscriptDeltaEvent(delta=PLAN, content_id="c"))
    talk.sound("r", 4000)
    return talk


def account(talk: Talk, said: str | None) -> None:
    talk.event(BidiTranscriptStopEvent(content_id="c", said=said))


def test_of_an_answer_that_is_cut_the_history_has_what_the_provider_says_was_said(talk):
    talk.wait(1.5)
    talk.cut("r")
    account(talk, "once upon a time")
    talk.wait(3)
    assert talk.texts == ["u: tell me a story", "a: once upon a time"]
    metadata = talk.messages[-1]["metadata"]
    assert metadata["interrupted"]
    assert metadata["generated_text"] == PLAN


def test_an_account_that_comes_late_corrects_what_was_reckoned(talk):
    talk.wait(1.5)
    talk.cut("r")
    talk.played("r", 1500)
    talk.hear("stop", "u2")
    talk.wait(3)
    assert talk.texts[1] == "a: once upon a"
    account(talk, "once upon a time")
    assert talk.texts == ["u: tell me a story", "a: once upon a time", "u: stop"]


def test_an_account_does_not_hold_where_the_loudspeaker_was_far_behind(talk):
    talk.wait(0.5)
    talk.cut("r")
    talk.played("r", 500)
    account(talk, "once upon a time a dragon lived in a")
    talk.wait(3)
    assert talk.texts[1] == "a: once"


def test_nothing_was_heard_of_an_answer_of_which_the_provider_said_nothing(talk):
    talk.wait(0.1)
    talk.cut("r")
    account(talk, "")
    talk.wait(3)
    assert talk.texts == ["u: tell me a story"]


def test_other_words_of_the_same_length_take_the_place_of_those_announced(talk):
    other = "once upon a time, a dragon lived in a big cave"
    account(talk, other)
    talk.end("r")
    talk.wait(5)
    assert talk.texts[1] == f"a: {other}"
    assert "interrupted" not in talk.messages[-1]["metadata"]


def test_without_an_account_the_words_announced_were_said(talk):
    account(talk, None)
    talk.end("r")
    talk.wait(5)
    assert talk.texts[1] == f"a: {PLAN}"
