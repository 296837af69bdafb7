"""Files as microphone and loudspeaker: what they give, what they write, and what they refuse."""

import asyncio
import os
import wave
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.agent.live import BidiAgent
from antiphon.audio import duration_ms, parse_wav, pcm_bytes, wav_header
from antiphon.content import AudioDelta
from antiphon.errors import (
    AgentNotStartedError,
    AudioFileError,
    AudioFormatError,
    InvalidInputError,
    InvalidTypeError,
)
from antiphon.events import BidiAudioDeltaEvent, BidiBargeInEvent
from antiphon.io.wav import WavIO
from antiphon.io.wav_file import WavFile, clip_frames
from antiphon.models.embedded.script import CallTools, Say, Until, Wait
from antiphon.testing.clock import VirtualClock
from antiphon.testing.scripted import ScriptedBidiModel
from antiphon.tools.decorator import tool

CLIPS = Path(__file__).parent.parent / "audio"


def ramp(samples: int, *, first: int = 1) -> bytes:
    """Sound in which every sample is different, and none is silent."""
    return pcm_bytes(array("h", [first + index % 30000 for index in range(samples)]))


def clip(path: Path, pcm: bytes, *, rate: int = 16000, channels: int = 1) -> Path:
    path.write_bytes(wav_header(len(pcm), rate, channels) + pcm)
    return path


def sound_in(path: Path) -> bytes:
    with wave.open(str(path)) as reader:
        return reader.readframes(reader.getnframes())


class Listener:
    """What a stream needs of an agent: its model, and an ear for reports."""

    def __init__(self, model: ScriptedBidiModel | None = None) -> None:
        self.model = model or ScriptedBidiModel()
        self.reports: list[tuple[str, float]] = []
        self.cancelled = False

    def played(self, response_id: str, ms: float) -> None:
        self.reports.append((response_id, ms))

    def cancel(self) -> None:
        self.cancelled = True


def sound(ms: float, *, response_id: str = "r", rate: int = 24000, first: int = 1) -> BidiAudioDeltaEvent:
    return BidiAudioDeltaEvent(
        audio=ramp(round(ms * rate / 1000), first=first), sample_rate=rate, response_id=response_id
    )


# ---------------------------------------------------------------------- the file


@given(pieces=st.lists(st.integers(0, 700), max_size=12))
def test_a_growing_file_can_be_read_after_every_write(tmp_path_factory, pieces):
    path = tmp_path_factory.mktemp("wav") / "grows.wav"
    file = WavFile(path, rate=8000)
    whole = b""
    assert sound_in(path) == b""
    for size in pieces:
        piece = ramp(size)
        file.append(piece)
        whole += piece
        assert sound_in(path) == whole
        assert file.ms == duration_ms(len(whole), 8000)
    file.close()
    assert sound_in(path) == whole


def test_only_its_owner_may_read_what_was_said(tmp_path):
    WavFile(tmp_path / "private.wav", rate=8000).close()
    assert os.stat(tmp_path / "private.wav").st_mode & 0o077 == 0


def test_a_closed_file_takes_no_more_sound(tmp_path):
    file = WavFile(tmp_path / "closed.wav", rate=8000)
    file.close()
    with pytest.raises(AudioFileError, match=r"closed\.wav' is closed"):
        file.append(b"\0\0")


def test_a_full_device_is_an_error_with_the_path():
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with pytest.raises(AudioFileError, match=r"'/dev/full'.*No space left"):
        WavFile("/dev/full", rate=8000)


def test_a_file_as_long_as_its_header_can_say_takes_no_more(tmp_path):
    file = WavFile(tmp_path / "long.wav", rate=8000)
    file.length = 0xFFFFFFFF - 44 - 1
    with pytest.raises(AudioFileError, match="as long as a WAV file can be"):
        file.append(b"\0\0")
    file.close()


def test_a_clip_with_another_rate_and_two_channels_lasts_as_long_as_before(tmp_path):
    path = clip(tmp_path / "stereo.wav", ramp(2 * 22050), rate=22050, channels=2)
    frames = list(clip_frames(path, 16000, 20))
    assert {len(frame) for frame in frames} == {640}
    assert len(frames) == 50


def test_a_clip_that_promises_more_than_it_has_is_played_to_its_end(tmp_path):
    path = tmp_path / "torn.wav"
    path.write_bytes(wav_header(0xFFFFFFFF - 36, 16000) + ramp(400) + b"\1")
    (frame, last) = clip_frames(path, 16000, 20)
    assert frame + last == ramp(400).ljust(1280, b"\0")


# ---------------------------------------------------------------------- the microphone


async def frames_until_the_end(microphone) -> list[bytes]:
    frames = []
    while True:
        try:
            frames.append((await microphone()).audio)
        except StopAsyncIteration:
            return frames


async def test_clips_come_in_order_with_their_pauses_each_frame_when_it_is_over(tmp_path):
    clock = VirtualClock()
    one, two = clip(tmp_path / "1.wav", ramp(320)), clip(tmp_path / "2.wav", ramp(480, first=5000))
    microphone = WavIO([one, 0.06, two], clock=clock, after="end").input()
    await microphone.start(Listener())
    frames = await frames_until_the_end(microphone)
    assert b"".join(frames) == ramp(320) + bytes(640 * 3) + ramp(480, first=5000) + bytes(320)
    assert clock.now() == pytest.approx(0.02 * len(frames))


@pytest.mark.parametrize("speed", [0.5, 1.0, 4.0])
async def test_speed_changes_when_frames_come_and_not_what_they_hold(tmp_path, speed):
    clock = VirtualClock()
    path = clip(tmp_path / "1.wav", ramp(3200))
    microphone = WavIO(path, clock=clock, after="end", speed=speed).input()
    await microphone.start(Listener())
    assert b"".join(await frames_until_the_end(microphone)) == ramp(3200)
    assert clock.now() == pytest.approx(0.2 / speed)


async def test_silence_follows_the_last_clip_and_more_can_be_played(tmp_path):
    clock = VirtualClock()
    path = clip(tmp_path / "1.wav", ramp(320))
    microphone = WavIO(clock=clock).input()
    await microphone.start(Listener())
    heard: list[bytes] = []

    async def listen():
        while len(heard) < 10:
            heard.append((await microphone()).audio)

    async with asyncio.TaskGroup() as group:
        group.create_task(listen())
        await clock.sleep(0.05)
        await microphone.play(path, 0.02, path)
        assert clock.now() == pytest.approx(0.12)
    silent = bytes(640)
    assert heard == [silent, silent, silent, ramp(320), silent, ramp(320), silent, silent, silent, silent]


async def test_whoever_plays_a_clip_into_a_stopped_microphone_is_told(tmp_path):
    microphone = WavIO().input()
    await microphone.start(Listener())
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_refused(microphone.play(1.0), AgentNotStartedError))
        await asyncio.sleep(0)
        await microphone.stop()
    assert "stopped before" in str(waiting.result())


async def _refused(work, kind):
    with pytest.raises(kind) as caught:
        await work
    return caught.value


async def test_a_microphone_gives_what_the_model_asks_for(tmp_path):
    class Stereo(ScriptedBidiModel):
        def get_audio_config(self):
            return {"input": {"sample_rate": 8000, "channels": 2}}

    path = clip(tmp_path / "1.wav", ramp(160), rate=8000)
    microphone = WavIO(path, clock=VirtualClock(), after="end").input()
    await microphone.start(Listener(Stereo()))
    (frame,) = await frames_until_the_end(microphone)
    assert frame == pcm_bytes(array("h", [1 + index // 2 for index in range(320)]))


async def test_a_format_that_no_file_gives_is_refused_at_the_start():
    class Opus(ScriptedBidiModel):
        def get_audio_config(self):
            return {"input": {"sample_rate": 48000, "format": "opus"}}

    with pytest.raises(AudioFormatError, match="opus"):
        await WavIO().input().start(Listener(Opus()))


async def test_after_a_long_stall_the_microphone_goes_on_from_now(tmp_path):
    clock = VirtualClock()
    source = WavIO([60.0], clock=clock).input()
    await source.start(Listener())
    await source()
    await clock.sleep(30)
    began = clock.now()
    for _ in range(100):
        await source()
    assert clock.now() - began == pytest.approx(2.0 - 1.0)


# ---------------------------------------------------------------------- the loudspeaker


@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
async def test_sound_enters_the_file_as_it_is_played_and_is_reported_only_then(tmp_path, speed):
    clock, path = VirtualClock(), tmp_path / "out.wav"
    speaker, listener = WavIO(output=path, clock=clock, speed=speed).output(), Listener()
    in_file: list[float] = []
    told = listener.played

    def played(response_id: str, ms: float) -> None:
        in_file.append(duration_ms(len(sound_in(path)), 24000))
        told(response_id, ms)

    listener.played = played
    await speaker.start(listener)
    await speaker(sound(250))
    assert sound_in(path) == b""
    await clock.sleep(0.1 / speed + 0.001)
    assert sound_in(path) == ramp(2400)
    await clock.sleep(1.0)
    assert sound_in(path) == ramp(6000)
    assert [ms for _, ms in listener.reports] == [0, *(20 * n for n in range(1, 13)), 250]
    assert [ms for _, ms in listener.reports] == in_file
    await speaker.stop()


async def test_a_barge_in_drops_what_waits_and_says_what_was_played_last_of_all(tmp_path):
    clock, path = VirtualClock(), tmp_path / "out.wav"
    speaker, listener = WavIO(output=path, clock=clock).output(), Listener()
    await speaker.start(listener)
    await speaker(sound(500, response_id="a"))
    await speaker(sound(500, response_id="b"))
    await clock.sleep(0.11)
    await speaker(BidiBargeInEvent(response_id="a"))
    assert listener.reports[-2:] == [("a", 100.0), ("b", 0.0)]
    await speaker(sound(500, response_id="a"))
    await clock.sleep(5)
    assert sound_in(path) == ramp(2400)
    assert len(listener.reports) == 9
    await speaker(sound(40, response_id="c", first=9000))
    await clock.sleep(5)
    assert sound_in(path) == ramp(2400) + ramp(960, first=9000)
    assert [(span.response_id, span.start_ms, span.end_ms) for span in speaker.spans] == [
        ("a", 0.0, 100.0),
        ("c", 100.0, 140.0),
    ]
    await speaker.stop()


async def test_with_gaps_the_file_is_as_long_as_the_call(tmp_path):
    clock, path = VirtualClock(), tmp_path / "out.wav"
    speaker = WavIO(output=path, clock=clock, gaps=True).output()
    await speaker.start(Listener())
    await clock.sleep(1.0)
    await speaker(sound(40))
    await clock.sleep(2.0)
    await speaker(sound(40))
    await clock.sleep(3.0)
    await speaker.stop()
    heard = sound_in(path)
    assert duration_ms(len(heard), 24000) == pytest.approx(6000, abs=20)
    assert heard[48000 : 48000 + 1920] == ramp(960)
    assert heard[144000 : 144000 + 1920] == ramp(960)


async def test_sound_at_another_rate_keeps_its_times(tmp_path):
    clock, path = VirtualClock(), tmp_path / "out.wav"
    speaker, listener = WavIO(output=path, sample_rate=8000, clock=clock).output(), Listener()
    await speaker.start(listener)
    for _ in range(10):
        await speaker(sound(50, rate=22050))
    await clock.sleep(1.0)
    assert parse_wav(path.read_bytes()).rate == 8000
    assert listener.reports[-1][1] == pytest.approx(500, abs=2)
    await speaker.stop()


async def test_the_rest_of_an_answer_that_is_too_long_is_dropped_and_never_heard(tmp_path):
    clock, path = VirtualClock(), tmp_path / "out.wav"
    speaker, listener = WavIO(output=path, clock=clock, max_queue_s=0.1).output(), Listener()
    await speaker.start(listener)
    for first in (1, 1000, 2000, 3000):
        await speaker(sound(60, first=first))
    await clock.sleep(1)
    await speaker(sound(60, first=4000))  # there is room again, but it would leave a hole
    await clock.sleep(1)
    assert sound_in(path) == ramp(1440) + ramp(1440, first=1000)
    assert speaker.lost_ms == 180
    assert listener.reports[-1] == ("r", 120.0)
    await speaker.stop()


async def test_a_file_that_cannot_be_written_any_more_is_told_with_the_next_event(tmp_path):
    clock = VirtualClock()
    speaker = WavIO(output=tmp_path / "out.wav", clock=clock).output()
    await speaker.start(Listener())
    speaker._speaker.file.length = 0xFFFFFFFF  # as if it were full
    await speaker(sound(20))
    await clock.sleep(1)
    with pytest.raises(AudioFileError, match="as long as"):
        await speaker(sound(20))
    await speaker.stop()


# ---------------------------------------------------------------------- a whole talk


async def test_a_talk_hangs_up_when_everything_was_said_and_done(tmp_path):
    clock = VirtualClock()

    @tool
    async def think() -> str:
        """Think for a while."""
        await clock.sleep(20)
        return "done"

    script = [
        Until("audio", 100),
        Say("one two three", real_time=False),
        CallTools([("think", {})]),
        Until("tool_result"),
        Wait(1),
        Say("and four"),
    ]
    agent = BidiAgent(ScriptedBidiModel(script, clock=clock), tools=[think], clock=clock)
    question = clip(tmp_path / "question.wav", ramp(16000))
    files = WavIO(question, tmp_path / "answer.wav", clock=clock, after="hang_up", quiet_s=2.0)
    await agent.run([files.input()], [files.output()])
    assert [block for message in agent.messages for block in message["content"] if "text" in block] == [
        {"text": "one two three"},
        {"text": "and four"},
    ]
    assert files.output().played_ms == pytest.approx(5000 / 3, abs=1)
    assert clock.now() == pytest.approx(2 + 20 + 1 + 2 / 3 + 2, abs=0.2)


async def test_the_model_hears_the_clip_sample_for_sample():
    clock = VirtualClock()
    model = ScriptedBidiModel(clock=clock)
    agent = BidiAgent(model, clock=clock)
    path = CLIPS / "flite-s1.wav"
    files = WavIO(path, clock=clock)
    async with asyncio.TaskGroup() as group:
        group.create_task(agent.run([files.input()], [_deaf]))
        await clock.sleep(4)
        agent.cancel()
    heard = b"".join(item.audio for item in model.sent if isinstance(item, AudioDelta))
    whole = sound_in(path)
    assert heard[: len(whole)] == whole
    assert not any(heard[len(whole) :])


async def test_a_cancelled_talk_ends_well_although_the_microphone_still_sends():
    agent = BidiAgent(ScriptedBidiModel())
    sent = 0

    async def frame():
        nonlocal sent
        sent += 1
        if sent == 10:
            agent.cancel()
        await asyncio.sleep(0)
        return AudioDelta("pcm", {"bytes": bytes(640)})

    await agent.run([frame], [_deaf])
    assert sent == 10


async def _deaf(event):
    pass


# ---------------------------------------------------------------------- what is refused


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(AudioFileError, match=r"nowhere\.wav'.*name a WAV file that exists"):
        WavIO(tmp_path / "nowhere.wav")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ID3 something else entirely",
        wav_header(4, 16000)[:30],
        wav_header(4, 16000).replace(b"\x10\0d", b"\x18\0d"),
    ],
)
def test_a_file_that_is_no_16_bit_wav_is_refused_with_what_to_do(tmp_path, data):
    (tmp_path / "odd.wav").write_bytes(data)
    with pytest.raises(AudioFormatError, match=r"odd\.wav' cannot be played.*convert it"):
        WavIO([1.0, tmp_path / "odd.wav"])


async def test_a_folder_that_is_not_there_is_named_when_the_call_begins(tmp_path):
    speaker = WavIO(output=tmp_path / "no" / "out.wav").output()
    with pytest.raises(AudioFileError, match=r"out\.wav'.*folder that exists"):
        await speaker.start(Listener())


@pytest.mark.parametrize("pause", [-1.0, float("inf"), float("nan")])
def test_a_pause_that_is_no_time_is_refused(pause):
    with pytest.raises(InvalidInputError, match="cannot be played"):
        WavIO([pause])


@pytest.mark.parametrize("item", [None, True, 3 + 4j, ["a.wav"]])
def test_what_is_neither_file_nor_pause_is_refused(item):
    with pytest.raises(InvalidTypeError, match="is no clip"):
        WavIO([item])


@pytest.mark.parametrize("arguments", [{"speed": 0}, {"speed": -1.0}, {"frame_ms": 0}, {"quiet_s": float("nan")}])
def test_numbers_out_of_range_are_named(arguments):
    with pytest.raises(InvalidInputError, match=next(iter(arguments))):
        WavIO(**arguments)


def test_an_unknown_end_is_refused():
    with pytest.raises(InvalidInputError, match="after='explode'"):
        WavIO(after="explode")


def test_hanging_up_needs_a_loudspeaker():
    with pytest.raises(InvalidInputError, match="needs an output"):
        WavIO(after="hang_up")


def test_there_is_no_loudspeaker_without_a_file():
    with pytest.raises(InvalidInputError, match="output=None names no file"):
        WavIO().output()
