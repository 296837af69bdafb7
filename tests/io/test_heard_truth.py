"""Heard truth: a history ends at the last word whose end lies inside the samples that the loudspeaker played."""

import asyncio
import itertools
import wave
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.agent.live import BidiAgent
from antiphon.audio import duration_ms
from antiphon.content import text_of
from antiphon.events import BidiBargeInEvent, Word
from antiphon.io.wav import WavIO
from antiphon.models.embedded.mouth import ToneMouth
from antiphon.models.embedded.script import BargeIn, Say, Wait
from antiphon.testing.clock import VirtualClock
from antiphon.testing.scripted import ScriptedBidiModel

RATE = 24000


def words_lasting(lengths_ms: list[float]) -> tuple[Word, ...]:
    ends = list(itertools.accumulate(lengths_ms))
    starts = [0.0, *ends]
    return tuple(Word(f"word{index}", end, starts[index]) for index, end in enumerate(ends))


def milliseconds(path: Path) -> float:
    with wave.open(str(path)) as reader:
        assert reader.getframerate() == RATE
        return duration_ms(len(reader.readframes(reader.getnframes())), RATE)


@dataclass
class Heard:
    played_ms: float
    text: str
    metadata: dict
    truncations: list[tuple[str, float]]


async def listen(
    path: Path, words: tuple[Word, ...], *, speed: float, real_time: bool, cut_at_s: float | None, others: bool = False
) -> Heard:
    """One answer, played into a file until somebody speaks over it."""
    clock = VirtualClock()
    text = " ".join(word.text for word in words)
    model = ScriptedBidiModel([Say(text, "answer", words=words, real_time=real_time)], clock=clock)
    agent = BidiAgent(model, clock=clock)
    speaker = WavIO(output=path, clock=clock, speed=speed).output()
    seen: list[str] = []

    async def watch(event):
        await asyncio.sleep(0)
        seen.append(event.type)

    async def interrupt():
        if cut_at_s is not None:
            await clock.sleep(cut_at_s)
            model.barge_in("answer")
        await clock.sleep(60)
        agent.cancel()

    async with asyncio.TaskGroup() as group:
        group.create_task(agent.run([], [speaker, watch] if others else [speaker]))
        group.create_task(interrupt())
    played = milliseconds(path)
    assert played == speaker.played_ms
    message = agent.messages[-1] if agent.messages else {"role": "assistant", "content": []}
    assert len(agent.messages) <= 1
    return Heard(played, text_of(message), dict(message.get("metadata", {})), model.truncations)


# Lengths that fall on frames, and lengths that do not.
LENGTHS = st.lists(st.one_of(st.integers(1, 40).map(lambda n: n * 20.0), st.floats(5, 900)), min_size=1, max_size=8)


@settings(max_examples=60)
@given(
    lengths=LENGTHS,
    speed=st.sampled_from([0.5, 1.0]),
    real_time=st.booleans(),
    cut_at_s=st.one_of(st.floats(0, 9), st.integers(0, 200).map(lambda n: n * 0.02)),
    others=st.booleans(),
)
@example(lengths=[100.0, 100.0], speed=0.5, real_time=False, cut_at_s=0.0, others=False)
@example(lengths=[100.0, 100.0], speed=1.0, real_time=False, cut_at_s=0.1, others=True)
@example(lengths=[100.0, 100.0], speed=1.0, real_time=True, cut_at_s=0.2, others=False)
@example(lengths=[100.0, 100.0], speed=0.5, real_time=True, cut_at_s=0.3, others=True)
async def test_the_history_ends_at_the_last_word_whose_end_lies_inside_the_samples(
    tmp_path_factory, lengths, speed, real_time, cut_at_s, others
):
    words = words_lasting(lengths)
    path = tmp_path_factory.mktemp("heard") / "heard.wav"
    heard = await listen(path, words, speed=speed, real_time=real_time, cut_at_s=cut_at_s, others=others)
    whole = words[-1].end_ms
    assert heard.played_ms <= whole + 0.05
    # Played up to the last millisecond is played to the end: word times are not rounded to samples.
    until = whole if heard.played_ms >= whole - 1.05 else heard.played_ms
    inside = [word.text for word in words if word.end_ms <= until + 1e-6]
    assert heard.text.split() == inside
    if inside and len(inside) < len(words):
        assert heard.metadata["interrupted"] is True
        assert heard.metadata["heard_ms"] == pytest.approx(heard.played_ms, abs=0.001)
        assert words[0].text in heard.metadata["generated_text"]
    if heard.played_ms < whole - 1:
        # No more than a frame is lost between what passed by the ear and what is in the file.
        assert heard.played_ms >= min(cut_at_s * 1000 * speed, whole) - 20.01
        assert all(ms <= heard.played_ms + 1e-6 for _, ms in heard.truncations)


async def test_an_answer_that_nobody_cuts_is_heard_whole_at_half_the_speed(tmp_path):
    words = words_lasting([333.0, 400.0, 21.0])
    heard = await listen(tmp_path / "h.wav", words, speed=0.5, real_time=False, cut_at_s=None)
    assert heard.text == "word0 word1 word2"
    assert "interrupted" not in heard.metadata
    assert heard.played_ms == pytest.approx(754, abs=0.05)


@settings(max_examples=25)
@given(cuts=st.lists(st.floats(0.01, 2.5), min_size=1, max_size=4), speed=st.sampled_from([0.5, 1.0]))
async def test_nothing_of_a_cut_answer_is_in_the_file_after_the_cut(tmp_path_factory, cuts, speed):
    clock = VirtualClock()
    path = tmp_path_factory.mktemp("cut") / "cut.wav"
    # Each answer has a tone of its own, so that its samples can be told from those of the others.
    voice = ToneMouth()
    texts = [f"{'abcdefgh'[index] * 9} {'abcdefgh'[index] * 7}" for index in range(len(cuts) + 1)]
    whole = {f"r{index}": b"".join(chunk.pcm for chunk in voice.say(text)) for index, text in enumerate(texts)}
    script = [Say(text, f"r{index}", real_time=False, stop_events=False) for index, text in enumerate(texts)]
    cut_answers = zip(script, cuts, strict=False)
    steps = [step for answer, cut in cut_answers for step in (answer, Wait(cut), BargeIn(answer.response_id))]
    agent = BidiAgent(ScriptedBidiModel([*steps, script[-1]], clock=clock, voice=voice), clock=clock)
    speaker = WavIO(output=path, clock=clock, speed=speed).output()
    at_cut: list[float] = []

    async def watch(event):
        if isinstance(event, BidiBargeInEvent):
            at_cut.append(milliseconds(path))

    async def interrupt():
        await clock.sleep(60)
        agent.cancel()

    async with asyncio.TaskGroup() as group:
        group.create_task(agent.run([], [speaker, watch]))
        group.create_task(interrupt())
    with wave.open(str(path)) as reader:
        heard = reader.readframes(reader.getnframes())
    position = 0
    for span in speaker.spans:
        start, end = round(span.start_ms * 24) * 2, round(span.end_ms * 24) * 2
        assert start == position
        assert heard[start:end] == whole[span.response_id][: end - start]
        position = end
    assert position == len(heard)
    assert speaker.spans[-1].response_id == f"r{len(cuts)}"
    for index, played in enumerate(at_cut):
        following = [span for span in speaker.spans if int(span.response_id[1:]) > index]
        assert following[0].start_ms == pytest.approx(played, abs=0.05)
