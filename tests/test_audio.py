"""Arithmetic on 16-bit little-endian PCM."""

import io
import itertools
import math
import wave
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import audio
from antiphon.errors import AudioFormatError

RATES = st.sampled_from([8000, 16000, 22050, 24000, 44100, 48000])
SOUND = st.lists(st.integers(-32768, 32767), max_size=400).map(lambda values: array("h", values).tobytes())


def sliced(data, cuts):
    marks = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]


def tone(hz, rate, ms, level=8000):
    turn = 2 * math.pi * hz / rate
    return array("h", [round(level * math.sin(turn * n)) for n in range(rate * ms // 1000)]).tobytes()


@given(st.integers(0, 10**9), RATES, st.integers(1, 8))
def test_a_length_survives_its_way_through_milliseconds(frames, rate, channels):
    length = frames * 2 * channels
    assert audio.bytes_for_ms(audio.duration_ms(length, rate, channels), rate, channels) == length


def test_silence_is_whole_frames_of_zeros():
    assert audio.silence(20, 24000) == bytes(960)
    assert audio.silence(10, 22050, 2) == bytes(220 * 4)
    assert audio.rms(audio.silence(20, 16000)) == 0.0
    assert audio.rms(b"") == 0.0
    assert audio.peak(b"") == 0


def test_level_of_a_square_wave_is_its_height():
    square = array("h", [1000, -1000] * 50).tobytes()
    assert audio.rms(square) == 1000.0
    assert audio.peak(array("h", [-32768, 5]).tobytes()) == 32768
    assert audio.energy_db(array("h", [-32768] * 4).tobytes()) == 0.0


def test_half_a_sample_is_refused_by_name():
    with pytest.raises(AudioFormatError, match="3 bytes"):
        audio.rms(b"abc")
    with pytest.raises(AudioFormatError, match="whole 16-bit samples"):
        audio.resample(b"abc", 8000, 16000)


@given(SOUND, SOUND)
def test_mixing_does_not_depend_on_the_order_and_never_wraps_around(first, second):
    mixed = audio.mix(first, second)
    assert mixed == audio.mix(second, first)
    assert len(mixed) == max(len(first), len(second))
    for n, (a, b) in enumerate(zip(audio.samples(first), audio.samples(second), strict=False)):
        assert audio.samples(mixed)[n] == max(-32768, min(32767, a + b))


@given(SOUND)
def test_gain_of_one_changes_nothing_and_much_gain_clips(sound):
    assert audio.gain(sound, 1.0) == sound
    assert all(value in {0, -32768, 32767} for value in audio.samples(audio.gain(sound, 1e6)))


@given(SOUND)
def test_stereo_and_back_is_the_same_sound(sound):
    stereo = audio.to_stereo(sound)
    assert len(stereo) == 2 * len(sound)
    assert audio.to_mono(stereo) == sound


def test_samples_that_are_no_whole_frames_are_refused():
    with pytest.raises(AudioFormatError, match="channels=2"):
        audio.to_mono(bytes(6), 2)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6), st.integers(1, 40))
def test_frames_do_not_depend_on_how_the_stream_is_sliced(data, cuts, size):
    frames = audio.Frames(size)
    got = [frame for piece in sliced(data, cuts) for frame in frames.feed(piece)]
    assert all(len(frame) == size for frame in got)
    assert b"".join(got) + frames.rest() == data
    assert frames.rest() == b""


@given(SOUND, st.lists(st.integers(0, 800), max_size=6), RATES, RATES)
def test_resampling_does_not_depend_on_how_the_stream_is_sliced(sound, cuts, in_rate, out_rate):
    resampler = audio.Resampler(in_rate, out_rate)
    got = b"".join(resampler.feed(piece) for piece in sliced(sound, cuts)) + resampler.flush()
    assert got == audio.resample(sound, in_rate, out_rate)
    assert len(got) // 2 == math.ceil(len(sound) // 2 * out_rate / in_rate)


@given(RATES, RATES, st.integers(-20000, 20000))
def test_constant_sound_stays_constant_away_from_its_ends(in_rate, out_rate, level):
    made = audio.samples(audio.resample(array("h", [level] * 600).tobytes(), in_rate, out_rate))
    middle = made[len(made) // 3 : 2 * len(made) // 3]
    assert all(abs(value - level) <= 1 for value in middle)


@pytest.mark.parametrize(
    ("in_rate", "out_rate"), [(24000, 16000), (22050, 24000), (48000, 16000), (16000, 24000), (96000, 1000)]
)
def test_a_tone_keeps_its_pitch_place_and_level(in_rate, out_rate):
    hz = 100
    made = audio.samples(audio.resample(tone(hz, in_rate, 300), in_rate, out_rate))
    wanted = audio.samples(tone(hz, out_rate, 300))
    edge = len(made) // 5
    assert all(abs(a - b) < 400 for a, b in zip(made[edge:-edge], wanted[edge:-edge], strict=True))


def test_a_tone_above_the_new_rate_is_filtered_out_instead_of_folded_down():
    assert audio.rms(audio.resample(tone(7000, 24000, 200), 24000, 8000)) < 200


def test_a_resampler_is_as_new_after_flush():
    resampler = audio.Resampler(24000, 16000)
    first = resampler.feed(tone(300, 24000, 50)) + resampler.flush()
    assert resampler.feed(tone(300, 24000, 50)) + resampler.flush() == first


@pytest.mark.parametrize("rates", [(0, 16000), (16000, -1)])
def test_a_rate_that_is_not_positive_is_refused(rates):
    with pytest.raises(AudioFormatError):
        audio.Resampler(*rates)


def test_a_frame_of_no_bytes_is_refused():
    with pytest.raises(AudioFormatError, match="size=0"):
        audio.Frames(0)


@given(SOUND, RATES)
def test_a_wav_header_says_what_the_standard_library_says(sound, rate):
    data = audio.wav_header(len(sound), rate) + sound
    with wave.open(io.BytesIO(data)) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (rate, 1, 2)
        assert reader.readframes(reader.getnframes()) == sound
    form = audio.parse_wav(data)
    assert (form.rate, form.channels, data[form.data_start :], form.data_length) == (rate, 1, sound, len(sound))


def test_a_wav_header_with_other_chunks_before_the_sound_is_read():
    plain = audio.wav_header(4, 8000, 2)
    data = plain[:12] + b"LIST\x03\x00\x00\x00abc\x00" + plain[12:] + b"abcd"
    form = audio.parse_wav(data)
    assert (form.rate, form.channels, data[form.data_start :]) == (8000, 2, b"abcd")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"ID3 something else", "does not begin a WAV file"),
        (audio.wav_header(4, 8000)[:30], "cut short"),
        (audio.wav_header(4, 8000).replace(b"\x10\x00data", b"\x08\x00data"), "8 bits"),
    ],
)
def test_what_is_no_16_bit_wav_file_is_refused(data, why):
    with pytest.raises(AudioFormatError, match=why):
        audio.parse_wav(data)
