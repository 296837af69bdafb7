"""The embedded model's voices: every word of the text has its place in the sound."""

import asyncio
import subprocess
import sys
import threading
from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.audio import duration_ms, rms
from antiphon.errors import InvalidInputError, MissingExtraError
from antiphon.models.embedded.mouth import Mouth, ToneMouth

TEXT = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            ["Hello", "the", "kitchen", "lights,", "7:30", "—", "don't", "it's", "well-known", "125", "ok?"]
        ),
        max_size=12,
    ).map(" ".join),
    st.sampled_from(
        ["First sentence here. Then another! ...", "Dr. Smith is in. <b>x</b> [[x]]", "\u4f60\u597d world"]
    ),
)


def spoken(voice):
    if voice is ToneMouth:
        return ToneMouth()
    pytest.importorskip("espeakng_loader", reason="the extra 'voice' is not installed")
    return Mouth()


@pytest.fixture(params=[ToneMouth, Mouth])
def mouth(request):
    return spoken(request.param)


def heard(chunks):
    return b"".join(chunk.pcm for chunk in chunks), [word for chunk in chunks for word in chunk.words]


def check_words_cover_the_text_in_order(mouth, text):
    pcm, words = heard(list(mouth.say(text)))
    total = duration_ms(len(pcm), mouth.sample_rate)
    assert " ".join(word.text for word in words) == " ".join(text.split())
    ends = [word.end_ms for word in words]
    assert ends == sorted(ends)
    assert all(0 <= word.start_ms <= word.end_ms <= total + 1e-6 for word in words)
    assert all(a.end_ms <= b.start_ms + 1e-6 for a, b in pairwise(words))
    assert bool(pcm) == bool(words)


@given(TEXT)
def test_words_in_tones_cover_the_text_in_order_and_lie_within_the_sound(text):
    check_words_cover_the_text_in_order(ToneMouth(), text)


@settings(max_examples=40)
@given(TEXT)
def test_spoken_words_cover_the_text_in_order_and_lie_within_the_sound(text):
    check_words_cover_the_text_in_order(spoken(Mouth), text)


@given(st.text(alphabet="abc ", min_size=1, max_size=20))
def test_a_tone_sounds_from_the_start_to_the_end_of_its_word_and_nowhere_else(text):
    mouth = ToneMouth(sample_rate=8000)
    pcm, words = heard(list(mouth.say(text)))
    place = 0
    for word in words:
        start, end = round(word.start_ms * 8) * 2, round(word.end_ms * 8) * 2
        assert rms(pcm[place:start]) == 0
        assert rms(pcm[start:end]) > 3000
        assert word.end_ms - word.start_ms == 60 + 30 * len(word.text)
        place = end
    assert rms(pcm[place:]) == 0


def test_the_same_text_gives_the_same_chunks_whatever_was_said_before(mouth):
    text = "Turning on the kitchen lights, at 7:30. Is that all right?"
    first = list(mouth.say(text))
    for other in ("Something else altogether!", "Hm.", "one, two, three"):
        list(mouth.say(other))
        assert list(mouth.say(text)) == first


def test_chunks_last_20_ms_and_carry_the_words_that_begin_in_them(mouth):
    chunks = list(mouth.say("one two three four five six seven"))
    rate, place = mouth.sample_rate, 0.0
    for chunk in chunks:
        length = duration_ms(len(chunk.pcm), rate)
        assert 0 < length <= 20
        assert all(place <= word.start_ms < place + length for word in chunk.words)
        place += length
    assert sum(len(chunk.words) for chunk in chunks) == 7


async def test_a_stream_gives_the_same_chunks_while_the_loop_goes_on(mouth):
    text = "Hello there, this is one sentence. And that is the second one, which is longer."
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count())
        got = [chunk async for chunk in mouth.stream(text)]
        counting.cancel()
    assert got == list(mouth.say(text))
    assert turns > 1


def test_the_first_chunk_is_there_before_the_whole_text_is_spoken():
    mouth = spoken(Mouth)
    chunks = mouth.say("This is the first sentence. " * 2000)
    assert next(chunks).words[0].text == "This"
    chunks.close()


def test_voices_on_several_threads_do_not_disturb_one_another():
    mouth, slow = spoken(Mouth), Mouth(voice="en-us+Hugo", rate=120)
    wanted = {mouth: list(mouth.say("turn on the lights")), slow: list(slow.say("turn on the lights"))}
    wrong = []

    def speak(one):
        wrong.extend(one.voice for _ in range(10) if list(one.say("turn on the lights")) != wanted[one])

    threads = [threading.Thread(target=speak, args=(one,)) for one in (mouth, slow) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert wanted[mouth] != wanted[slow]


def test_another_rate_keeps_every_word_in_its_place():
    native, other = spoken(Mouth), Mouth(sample_rate=16000)
    (pcm, words), (less, same) = heard(list(native.say("open the door"))), heard(list(other.say("open the door")))
    assert other.sample_rate == 16000
    assert words == same
    assert abs(duration_ms(len(pcm), native.sample_rate) - duration_ms(len(less), 16000)) < 1


def test_words_are_spoken_where_the_synthesiser_says_so():
    pcm, words = heard(list(spoken(Mouth).say("stop, now")))
    stop, now = words
    between = pcm[round(stop.end_ms * 22.05) * 2 : round(now.start_ms * 22.05) * 2]
    assert max(map(abs, array("h", between))) < 40
    assert now.start_ms - stop.end_ms > 100


@pytest.mark.parametrize("wrong", [{"voice": "nobody-at-all"}, {"rate": 5}, {"sample_rate": 1}])
def test_what_no_voice_can_do_is_refused_by_name(wrong):
    spoken(Mouth)
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        Mouth(**wrong)
    with pytest.raises(InvalidInputError, match="sample_rate=1"):
        ToneMouth(sample_rate=1)


def test_a_voice_that_was_refused_leaves_the_others_as_they_were():
    mouth = spoken(Mouth)
    before = list(mouth.say("hello"))
    with pytest.raises(InvalidInputError):
        Mouth(voice="nobody-at-all")
    assert list(mouth.say("hello")) == before


def test_without_the_extra_the_error_says_what_to_install():
    code = """if True:
        import sys
        sys.modules["espeakng_loader"] = None
        from antiphon.models.embedded.mouth import Mouth, ToneMouth
        ToneMouth()
        try:
            Mouth()
        except ImportError as error:
            print(type(error).__name__, error.extra, error)
    """
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50).stdout
    assert told.startswith(MissingExtraError.__name__ + " voice")
    assert "antiphon[voice]" in told
