"""Law 7 through a live agent: how the model slices sound and words changes nothing of what is remembered."""

import asyncio
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import BidiAgent
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiAudioStopEvent,
    BidiBargeInEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTextDeltaEvent,
    BidiTextStartEvent,
    BidiTextStopEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    Word,
)
from antiphon.testing import ScriptedBidiModel, VirtualClock

SAID = "Alpha, beta gamma. Delta epsilon zeta! Eta theta?"
WORD_MS = 250.0
WORDS = tuple(Word(word, (index + 1) * WORD_MS, index * WORD_MS) for index, word in enumerate(SAID.split()))
TOTAL_MS = WORD_MS * len(WORDS)
RATE = 3_000
SOUND = b"".join(number.to_bytes(2, "little") for number in range(int(RATE * TOTAL_MS / 1000)))
WROTE = "As written: one, two."
ASKED = "Good morning, please"


@dataclass(frozen=True)
class Slices:
    """Where a turn is cut into pieces, and in which order the pieces of its three streams come."""

    asked: list[int]
    said: list[int]
    wrote: list[int]
    sound: list[int]
    order: list[int]


def places(length):
    found = st.sets(st.integers(0, length), max_size=12) | st.integers(1, 40).map(
        lambda size: set(range(0, length, size))
    )
    return found.map(lambda chosen: sorted(chosen | {0, length}))


slices = st.builds(
    Slices,
    asked=places(len(ASKED)),
    said=places(len(SAID)),
    wrote=places(len(WROTE)),
    sound=places(len(SOUND)),
    order=st.lists(st.integers(0, 2), max_size=40),
)


def pieces(whole, at):
    return [whole[start:end] for start, end in pairwise(at)]


def spoken(at, *, timed):
    """The transcript in pieces; the time of a word comes with the piece that its last letter is in."""
    ends, end = [], 0
    for word in WORDS:
        end = SAID.index(word.text, end) + len(word.text)
        ends.append(end)
    for start, stop in pairwise(at):
        words = tuple(word for word, last in zip(WORDS, ends, strict=True) if start < last <= stop)
        yield BidiTranscriptDeltaEvent(delta=SAID[start:stop], content_id="t", words=words if timed else ())


def merged(order, *streams):
    """The events of several streams, each in its order: whose turn it is says `order`, then they come one by one."""
    waiting = [list(stream) for stream in streams]
    for choice in order:
        if waiting[choice]:
            yield waiting[choice].pop(0)
    for stream in waiting:
        yield from stream


def a_turn(cut, *, timed):
    """A question and its answer, with sound, a transcript and a written text."""
    sound = [BidiAudioDeltaEvent(audio=piece, response_id="r", sample_rate=RATE) for piece in pieces(SOUND, cut.sound)]
    wrote = [BidiTextDeltaEvent(delta=piece, content_id="w") for piece in pieces(WROTE, cut.wrote)]
    return [
        BidiTranscriptStartEvent(role="user", content_id="u"),
        *(BidiTranscriptDeltaEvent(delta=piece, role="user", content_id="u") for piece in pieces(ASKED, cut.asked)),
        BidiTranscriptStopEvent(role="user", content_id="u"),
        BidiResponseStartEvent(response_id="r"),
        BidiTranscriptStartEvent(content_id="t"),
        BidiTextStartEvent(content_id="w"),
        *merged(cut.order, sound, spoken(cut.said, timed=timed), wrote),
        BidiTextStopEvent(content_id="w"),
        BidiTranscriptStopEvent(content_id="t"),
        BidiAudioStopEvent(response_id="r"),
        BidiResponseStopEvent(response_id="r"),
    ]


async def remembered(events, cut_ms, report_ms, *, listened=True):
    """What remains of the events when the user speaks over the answer after `cut_ms`.

    Returns:
        The history, what the model was told was heard, and the sound and texts that the application was handed.
    """
    clock = VirtualClock()
    model = ScriptedBidiModel(clock=clock)
    agent = BidiAgent(model, clock=clock)
    got = []

    async def listen():
        async for event in agent.receive():
            got.append(event)

    async with asyncio.TaskGroup() as group, agent:
        if listened:
            group.create_task(listen())
        model.feed(*events)
        await clock.sleep(cut_ms / 1000)
        if report_ms is not None:
            agent.played("r", report_ms)
        model.feed(BidiBargeInEvent(response_id="r"))
        await clock.sleep(10)
    sound = b"".join(event.audio for event in got if isinstance(event, BidiAudioDeltaEvent))
    texts = {"t": "", "u": "", "w": ""}
    for event in got:
        if isinstance(event, (BidiTranscriptDeltaEvent, BidiTextDeltaEvent)):
            texts[event.content_id] += event.delta
    return agent.messages, model.truncations, sound, texts


moments = st.floats(1, TOTAL_MS + 500).map(lambda ms: round(ms, 1)) | st.sampled_from([word.end_ms for word in WORDS])


@settings(max_examples=80)
@given(slices, slices, moments, st.booleans(), st.booleans(), st.booleans())
def test_however_a_model_slices_its_sound_and_its_words_the_same_is_remembered(
    one, other, cut_ms, reported, timed, listened
):
    report_ms = min(cut_ms, TOTAL_MS) if reported else None
    first, second = (
        asyncio.run(remembered(a_turn(cut, timed=timed), cut_ms, report_ms, listened=listened)) for cut in (one, other)
    )
    assert first[0] == second[0]
    assert first[1] == second[1]
    assert first[2:] == second[2:]


async def test_of_an_answer_that_is_cut_the_words_that_were_heard_are_remembered():
    events = [
        BidiResponseStartEvent(response_id="r"),
        BidiTranscriptStartEvent(content_id="t"),
        BidiAudioDeltaEvent(audio=SOUND, response_id="r", sample_rate=RATE),
        *spoken([0, len(SAID)], timed=True),
    ]
    messages, truncations, sound, _ = await remembered(events, 800, 700)
    assert [message["content"][0]["text"] for message in messages] == ["Alpha, beta"]
    assert truncations == [("r", 700)]
    assert sound == SOUND
