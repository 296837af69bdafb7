"""Voice activity: speech is found, and what is no speech is not."""

import itertools
import math
import random
import wave
from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.audio import duration_ms, gain, mix, resample, silence
from antiphon.errors import InvalidInputError
from antiphon.models.embedded.vad import SpeechEnded, SpeechStarted, Vad

CLIPS = Path(__file__).parents[2] / "audio"
RATE = 16000
# Read off the clips' waveforms: where the first and the last sound of speech are, in ms.
SPOKEN = {1: (480, 1960), 2: (520, 2600), 3: (540, 2900), 4: (460, 1120), 5: (560, 2640)}


def clip(number):
    with wave.open(str(CLIPS / f"flite-s{number}.wav")) as reader:
        return reader.readframes(reader.getnframes())


def noise(level, ms):
    chance = random.Random(7)
    return array("h", [round(chance.gauss(0, level)) for _ in range(RATE * ms // 1000)]).tobytes()


def hum(level, ms):
    turns = [(1.0, 50), (0.3, 150), (0.1, 350)]
    return array(
        "h",
        [
            round(level * sum(part * math.sin(2 * math.pi * hz * n / RATE) for part, hz in turns))
            for n in range(RATE * ms // 1000)
        ],
    ).tobytes()


def found(pcm, rate=RATE, **settings):
    return Vad(rate, **settings).feed(pcm)


@pytest.mark.parametrize("number", SPOKEN)
def test_a_sentence_is_found_where_it_is(number):
    started, ended = found(clip(number))
    first, last = SPOKEN[number]
    assert isinstance(started, SpeechStarted)
    assert isinstance(ended, SpeechEnded)
    assert abs(started.at / 16 - first) <= 40
    assert abs(ended.at / 16 - last) <= 140
    assert started.known_at - started.at <= 100 * 16
    assert ended.known_at - ended.at == 500 * 16


@pytest.mark.parametrize("rate", [8000, 22050, 24000, 48000])
def test_the_rate_makes_no_difference(rate):
    started, ended = found(resample(clip(4), RATE, rate), rate)
    assert abs(started.at * 1000 / rate - SPOKEN[4][0]) <= 40
    assert abs(ended.at * 1000 / rate - SPOKEN[4][1]) <= 140


@pytest.mark.parametrize(
    "sound",
    [
        silence(4000, RATE),
        noise(10, 4000),
        noise(100, 4000),
        noise(100, 4000)[: 2 * RATE] + noise(50, 2000),
        hum(3000, 4000),
        mix(noise(50, 4000), hum(1000, 4000)),
        array("h", [12000] * (RATE * 2)).tobytes(),
        silence(1000, RATE) + array("h", [20000, -20000] * 40).tobytes() + silence(1000, RATE),
    ],
    ids=["silence", "hiss", "noise", "a fan turned down", "hum", "hum and noise", "an offset", "a click"],
)
def test_what_is_no_speech_is_not_found(sound):
    assert found(sound) == []


def test_noise_that_is_loud_from_the_start_is_taken_for_speech_only_once():
    events = found(noise(1500, 12_000))
    assert [type(event) for event in events] == [SpeechStarted, SpeechEnded]
    assert events[1].known_at <= 3500 * 16


@pytest.mark.parametrize("level", [0, 30, 100, 200])
def test_a_short_word_is_found_in_noise(level):
    started, ended = found(mix(noise(level, 5000), silence(2000, RATE) + clip(4)))
    assert abs(started.at / 16 - 2000 - SPOKEN[4][0]) <= 80
    assert ended.at > started.at


@pytest.mark.parametrize("factor", [0.1, 0.3, 2.0])
def test_soft_and_loud_speech_is_found(factor):
    assert [type(event) for event in found(gain(clip(3), factor))] == [SpeechStarted, SpeechEnded]


def test_speech_is_found_although_it_begins_with_the_first_sample():
    speech = clip(1)[490 * 32 :]
    started, ended = found(speech)
    assert started.at <= 80 * 16
    assert abs(ended.at / 16 - (1960 - 490)) <= 60


def test_pauses_shorter_than_the_limit_do_not_end_speech():
    twice = clip(4)[: 1200 * 32] + clip(4)[300 * 32 :]
    assert len(found(twice)) == 2
    assert len(found(twice, end_ms=100)) == 4


def test_what_is_being_said_ends_with_the_stream():
    vad = Vad(RATE)
    events = vad.feed(clip(1)[: 1500 * 32])
    assert [type(event) for event in events] == [SpeechStarted]
    assert vad.speaking
    (ended,) = vad.finish()
    assert abs(ended.at / 16 - 1500) <= 20
    assert not vad.speaking
    assert vad.finish() == []


@settings(max_examples=25)
@given(st.sampled_from(sorted(SPOKEN)), st.lists(st.integers(0, 120_000), max_size=12))
def test_how_the_stream_is_sliced_makes_no_difference(number, cuts):
    sound = clip(number)
    vad = Vad(RATE)
    marks = sorted({0, len(sound), *(min(cut, len(sound)) for cut in cuts)})
    sliced = [event for start, end in itertools.pairwise(marks) for event in vad.feed(sound[start:end])]
    assert sliced == found(sound)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 1500)), max_size=8))
def test_starts_and_ends_take_turns_and_never_run_ahead_of_the_sound(parts):
    sound = b"".join(noise(level, ms) for level, ms in parts)
    total = round(duration_ms(len(sound), RATE) * 16)
    vad = Vad(RATE)
    events = vad.feed(sound) + vad.finish()
    kinds = [type(event) for event in events]
    assert kinds == [SpeechStarted, SpeechEnded] * (len(kinds) // 2)
    places = [event.at for event in events]
    assert places == sorted(places)
    assert all(0 <= event.at <= event.known_at <= total for event in events)


@pytest.mark.parametrize("wrong", [{"sample_rate": 4000}, {"sample_rate": RATE, "end_ms": 0}])
def test_settings_that_cannot_work_are_refused(wrong):
    with pytest.raises(InvalidInputError):
        Vad(**wrong)
