"""A talk comes out the same, whatever the model says of it and whatever it leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.content import text_of
from antiphon.conversation.history import INAUDIBLE, TRANSCRIPT_WAIT_S
from antiphon.conversation.repair import problems
from antiphon.events import BidiResponseStopEvent, BidiTranscriptStartEvent, BidiTranscriptStopEvent
from tests.conversation.talk import Talk


@dataclass(frozen=True)
class Style:
    """What a model says.

    Attributes:
        ids: Whether transcripts have ids.
        hears_start: Whether it says that the user begins to speak.
        hears_stop: Whether it says that the user's words are complete.
        responses: Whether it says when responses begin and end; else only when their sound ends.
        starts: Whether it says that a transcript of its own begins.
        stops: Whether it says that it is complete.
        tail: Whether the last words of an answer come after its end.
    """

    ids: bool
    hears_start: bool
    hears_stop: bool
    responses: bool
    starts: bool
    stops: bool
    tail: bool


styles = st.builds(Style, *[st.booleans()] * 7)


@dataclass(frozen=True)
class Turn:
    """What happens in one exchange.

    Attributes:
        asked: When the user's words come: before the answer, while it is made, after it was made, long after it was heard,
            or never. `greeting`: the user says nothing.
        words: How many words the answer has.
        cut_ms: When the user speaks over it.
    """

    asked: str
    words: int
    cut_ms: int | None


@dataclass
class Speaker:
    """Plays a talk in a style."""

    style: Style
    talk: Talk = field(default_factory=Talk)
    expected: list[tuple[str, int | None]] = field(default_factory=list)

    def user(self, number: int, *, begin: bool, words: bool) -> None:
        key = f"u{number}" if self.style.ids else ""
        if begin:
            self.talk.conversation.sound_in = True
            if self.style.hears_start:
                self.talk.hearing(key)
        if words:
            self.talk.words(f"question {number}", key)
            if self.style.hears_stop:
                self.talk.event(BidiTranscriptStopEvent(role="user", content_id=key))

    def take(self, number: int, turn: Turn) -> None:
        style, talk = self.style, self.talk
        talk.conversation.sound_in = True  # the microphone is always on
        if turn.asked != "greeting":
            self.user(number, begin=True, words=turn.asked == "before")
        words = [f"w{number}x{index}" for index in range(turn.words)]
        self.answer(number, words, turn)
        if turn.cut_ms is not None:
            talk.wait(turn.cut_ms / 1000)
            talk.cut()
            talk.wait(1.0)
        else:
            if turn.asked == "made":
                talk.wait(min(1.0, TRANSCRIPT_WAIT_S / 2))
                self.user(number, begin=False, words=True)
            talk.wait(0.4 * turn.words + TRANSCRIPT_WAIT_S + 1)
            if turn.asked == "heard":
                self.user(number, begin=False, words=True)
                talk.wait(1.0)

    def answer(self, number: int, words: list[str], turn: Turn) -> None:
        style, talk = self.style, self.talk
        key = f"a{number}" if style.ids else ""
        response = f"r{number}" if style.responses else ""
        if style.responses:
            talk.begin(response)
        if style.starts:
            talk.event(BidiTranscriptStartEvent(content_id=key))
        talk.sound(response, 400)
        kept = len(words) - 1 if style.tail else len(words)
        for index, word in enumerate(words):
            if index:
                talk.sound(response, 400)
            if index < kept:
                talk.write(f" {word}" if index else word, key)
        if turn.asked == "made" and turn.cut_ms is not None:
            self.user(number, begin=False, words=True)
        if style.responses:
            talk.event(BidiResponseStopEvent(response_id=response))
        else:
            talk.sound_stops()
        if style.tail:
            talk.write(f" {words[-1]}" if kept else words[-1], key)
        if style.stops:
            talk.event(BidiTranscriptStopEvent(content_id=key))


@st.composite
def talks(draw):
    style = draw(styles)
    turns = []
    for number in range(draw(st.integers(1, 5))):
        cut_ms = draw(st.one_of(st.none(), st.integers(0, 3000)))
        kinds = ["before"]
        if style.hears_start or number == 0:
            kinds.append("greeting")
        if style.hears_start:
            kinds.append("never")
        if cut_ms is None or style.hears_start:
            kinds.append("made")
        if cut_ms is None and style.hears_start:
            kinds.append("heard")
        turns.append(Turn(draw(st.sampled_from(kinds)), draw(st.integers(1, 5)), cut_ms))
    return style, turns


@settings(max_examples=400)
@given(talks())
def test_what_was_said_comes_out_in_order_whatever_the_model_leaves_out(talk):
    style, turns = talk
    speaker = Speaker(style)
    for number, turn in enumerate(turns):
        speaker.take(number, turn)
    speaker.talk.close()
    assert problems(speaker.talk.messages) == []
    said = iter(speaker.talk.messages)
    message = next(said, None)
    for number, turn in enumerate(turns):
        if turn.asked != "greeting":
            assert message is not None
            assert text_of(message) == (INAUDIBLE if turn.asked == "never" else f"question {number}"), (
                speaker.talk.texts
            )
            message = next(said, None)
        words = " ".join(f"w{number}x{index}" for index in range(turn.words))
        heard = "" if message is None or not text_of(message).startswith(f"w{number}x") else text_of(message)
        if turn.cut_ms is None or turn.cut_ms >= 400 * turn.words:
            assert heard == words, speaker.talk.texts
        else:
            assert words.startswith(heard), speaker.talk.texts
        if heard:
            message = next(said, None)
    assert message is None, speaker.talk.texts
    assert not speaker.talk.conversation.open


@pytest.mark.parametrize("label", ["u", ""])
def test_words_slower_than_the_answer_stay_together(label):
    talk = Talk()
    talk.hearing(label)
    talk.words("I would", label)
    talk.say("r", "two words")
    talk.wait(5)
    assert talk.texts == ["u: I would", "a: two words"] or not label
    talk.words(" like", label)
    talk.words(" tea", label)
    talk.wait(1)
    assert talk.texts[-2:] == ["u: I would like tea", "a: two words"] or not label
    talk.words(", please", label)
    talk.close()
    if label:
        assert talk.texts == ["u: I would like tea, please", "a: two words"]
