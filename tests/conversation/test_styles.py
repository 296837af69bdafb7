"""A talk comes out the same, whatever the model says of it and whatever it leaves out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.content import text_of
from antiphon.conversation.history import INAUDIBLE, TRANSCRIPT_WAIT_S
from antiphon.conversation.repair import problems
from antiphon.events import (
    BidiAudioStartEvent,
    BidiAudioStopEvent,
    BidiReasoningDeltaEvent,
    BidiReasoningStartEvent,
    BidiReasoningStopEvent,
    BidiResponseStopEvent,
    BidiTextDeltaEvent,
    BidiTextStartEvent,
    BidiTextStopEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
)
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
        talk = self.talk
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


@pytest.mark.parametrize(("label", "hears_stop"), [("u", False), ("u", True), ("", True)])
def test_words_slower_than_the_answer_stay_together(label, hears_stop):
    talk = Talk()
    if hears_stop:
        talk.hear("good morning", label)
        talk.wait(1)
        talk.messages.clear()
    talk.hearing(label)
    talk.words("I would", label)
    talk.say("r", "two words")
    talk.wait(5)
    assert talk.texts == ["u: I would", "a: two words"]
    talk.words(" like", label)
    talk.words(" tea", label)
    talk.wait(1)
    assert talk.texts == ["u: I would like tea", "a: two words"]
    talk.words(", please", label)
    if hears_stop:
        talk.event(BidiTranscriptStopEvent(role="user", content_id=label))
    talk.close()
    assert talk.texts == ["u: I would like tea, please", "a: two words"]


def test_where_neither_ids_nor_ends_are_told_words_after_an_answer_are_another_question():
    talk = Talk()
    talk.words("what is it", "")
    talk.say("r1", "one thing")
    talk.wait(5)
    talk.words("and then", "")
    talk.say("r2", "another thing")
    talk.wait(5)
    assert talk.texts == ["u: what is it", "a: one thing", "u: and then", "a: another thing"]


def test_a_stop_event_without_a_beginning_begins_nothing():
    talk = Talk()
    talk.event(BidiTranscriptStopEvent(content_id="x"))
    talk.event(BidiTextStopEvent(content_id="x"))
    talk.event(BidiTranscriptStopEvent(role="user", content_id="x"))
    assert talk.conversation.at_boundary
    assert not talk.conversation.open


def test_noise_owes_no_answer():
    talk = Talk()
    talk.hearing()
    assert not talk.conversation.at_boundary
    talk.heard("")
    assert talk.conversation.at_boundary
    talk.type("hello")
    talk.hear("")
    assert not talk.conversation.at_boundary  # the typed text waits for one


@pytest.mark.parametrize("spoken_to", [False, True])
def test_the_last_words_of_an_answer_find_it_after_its_end(spoken_to):
    talk = Talk()
    talk.begin("r")
    talk.event(BidiTranscriptStartEvent(content_id="a"))
    talk.write("once upon", "a")
    talk.sound("r", 1000)
    talk.end("r")
    talk.write(" a time", "a")
    talk.wait(1.1)
    assert talk.texts == ["a: once upon a time"]
    if spoken_to:
        talk.hearing()
    talk.write(" there", "a")
    talk.write(" was", "a")
    talk.event(BidiTranscriptStopEvent(content_id="a"))
    if spoken_to:
        talk.heard("stop")
    assert talk.texts == ["a: once upon a time there was"] + ["u: stop"] * spoken_to
    assert "interrupted" not in talk.messages[0]["metadata"]
    assert talk.conversation.at_boundary != spoken_to


def test_a_transcript_that_comes_wholly_after_its_sound_is_that_of_the_sound():
    talk = Talk()
    talk.begin("r")
    talk.sound("r", 4000)
    talk.end("r")
    talk.wait(1)
    talk.write("one two three", "late")
    talk.write(" four five six", "late")
    talk.cut()
    assert talk.texts == ["a: one"]


def test_the_last_words_of_an_answer_that_was_cut_change_how_much_of_it_a_quarter_is():
    talk = Talk()
    talk.begin("r")
    talk.write("one two", "a")
    talk.sound("r", 4000)
    talk.end("r")
    talk.wait(1)
    talk.cut()
    assert talk.texts == []
    talk.type("wait")
    talk.write(" three four five six", "a")
    talk.wait(1)
    assert talk.texts == ["a: one", "u: wait"]


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("reasoning", [False, True])
def test_text_whose_end_is_not_told_ends_with_its_response(stop, reasoning):
    talk = Talk()
    start, delta, end = (
        (BidiReasoningStartEvent, BidiReasoningDeltaEvent, BidiReasoningStopEvent)
        if reasoning
        else (BidiTextStartEvent, BidiTextDeltaEvent, BidiTextStopEvent)
    )
    talk.begin("r")
    talk.event(start(content_id="t"))
    talk.event(delta(delta="a note", content_id="t"))
    talk.end("r")
    assert len(talk.messages) == 1
    talk.type("thanks")
    talk.event(delta(delta=" of mine", content_id="t"))
    if stop:
        talk.event(end(content_id="t"))
        assert "a note of mine" in {getattr(event, "text", "") for event in talk.emitted}
    talk.wait(1)
    block = talk.messages[0]["content"][0]
    text = block["reasoningContent"]["reasoningText"]["text"] if reasoning else block["text"]
    assert text == "a note of mine"
    assert talk.texts[1:] == ["u: thanks"]
    assert "interrupted" not in talk.messages[0].get("metadata", {})
    assert talk.conversation.responding is None


NEWS = {
    "response start": lambda talk: talk.begin("new"),
    "audio start": lambda talk: talk.event(BidiAudioStartEvent()),
    "transcript start": lambda talk: talk.event(BidiTranscriptStartEvent(content_id="n")),
    "text start": lambda talk: talk.event(BidiTextStartEvent(content_id="n")),
    "user's words": lambda talk: talk.hear("stop"),
    "typed": lambda talk: talk.type("stop"),
    "results": lambda talk: talk.do(talk.conversation.said([{"role": "user", "content": [{"text": "-"}]}], talk.now)),
    "silence": lambda talk: talk.wait(0.5),
    "audio stop": lambda talk: talk.event(BidiAudioStopEvent()),
}


@pytest.mark.parametrize("news", NEWS)
def test_sound_without_a_label_belongs_to_the_answer_that_was_cut_until_something_new_begins(news):
    talk = Talk()
    talk.write("one two three")
    talk.sound("", 1500)
    old = talk.conversation.responding
    talk.wait(0.6)
    assert talk.cut() == ["response-1"]
    talk.wait(0.4)
    assert talk.conversation.speech("", talk.now) is old
    talk.wait(0.4)
    assert talk.conversation.speech("", talk.now) is old  # still on its way
    talk.write(" four")
    assert talk.conversation.responding is None
    NEWS[news](talk)
    talk.write("new words")
    assert talk.conversation.speech("", talk.now) is talk.conversation.responding is not old
    talk.sound("", 500)
    talk.close()
    assert talk.texts[0] == "a: one"


@given(st.text("a\U0001f600é\ud83d\ude00 ", max_size=12), st.lists(st.integers(0, 24), max_size=4))
def test_text_can_always_be_stored_however_its_characters_are_cut(text, cuts):
    halves = [half for char in text for half in _halves(char)]
    edges = sorted({0, len(halves), *(cut for cut in cuts if cut <= len(halves))})
    pieces = ["".join(halves[begin:end]) for begin, end in itertools.pairwise(edges)]
    talk = Talk()
    talk.begin("r")
    talk.event(BidiTextStartEvent())
    talk.event(BidiTranscriptStartEvent(content_id="s"))
    for piece in pieces:
        talk.words(piece)
        talk.write(piece, "s")
        talk.event(BidiTextDeltaEvent(delta=piece))
    talk.close()
    for message in talk.messages:
        stored = text_of(message).encode().decode()
        if message["role"] == "user" and stored != INAUDIBLE:
            joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            assert stored == joined


def _halves(char):
    pair = char.encode("utf-16-le", "surrogatepass")
    return [pair[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(pair), 2)]
