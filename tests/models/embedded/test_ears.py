"""The embedded model's ears: commands are understood, and other speech runs no tool."""

import asyncio
import itertools
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.audio import resample, silence
from antiphon.errors import AgentStateError, InvalidInputError, ModelError
from antiphon.models.embedded import sphinx
from antiphon.models.embedded.crosscheck import compare, distance
from antiphon.models.embedded.ears import Ears, Heard, Listener, Partial, SpeechEnd, SpeechStart
from antiphon.models.embedded.grammar import Choice, Optional, build_grammar
from antiphon.models.embedded.mouth import Mouth
from antiphon.models.embedded.sphinx import Segment

pytest.importorskip("pocketsphinx", reason="the extra 'voice' is not installed")

CLIPS = Path(__file__).parents[2] / "audio"
SAID = {
    1: "turn on the kitchen lights",
    2: "what is the weather in paris tomorrow",
    3: "please book a table for two at seven o'clock",
    4: "stop",
    5: "tell me a short story about a dragon",
}
PLEASE = Optional("please")
NUMBER = Choice("number", tuple(str(number) for number in range(1, 13)))
PHRASES = [
    (PLEASE, "turn", Choice("state", ("on", "off")), "the", Choice("room", ("kitchen", "bedroom", "hall")), "lights"),
    (PLEASE, "what is the weather in", Choice("city", ("Paris", "London", "Rome")), Optional("tomorrow")),
    (PLEASE, "book a table for", NUMBER, "at", NUMBER, Optional("o'clock")),
    (PLEASE, "tell me a", Optional("short"), "story about a", Choice("hero", ("dragon", "cat"))),
    (PLEASE, "set an alarm for", NUMBER, Optional("o'clock"), Optional(("called", Choice("label", ("work", "gym"))))),
    ("stop",),
]
STRANGE = ["who won the football game last night", "my brother lives in a small house near the river"]


@pytest.fixture(scope="module")
def grammar():
    return build_grammar(PHRASES, knows=sphinx.knows_word)


@pytest.fixture(scope="module")
def listener(grammar):
    listener = Listener(grammar=grammar)
    yield listener
    listener.close()


def clip(number):
    with wave.open(str(CLIPS / f"flite-s{number}.wav")) as reader:
        return reader.readframes(reader.getnframes())


def spoken(text, voice, folder):
    """A sentence of a synthetic voice at 16 kHz, with silence around it."""
    if voice == "espeak":
        mouth = Mouth(rate=150)
        pcm = resample(b"".join(chunk.pcm for chunk in mouth.say(text)), mouth.sample_rate, 16000)
    else:
        program = shutil.which("flite")
        if program is None:
            pytest.skip("the program flite is not installed")
        subprocess.run([program, "-voice", voice, "-t", text, "-o", str(folder / "said.wav")], check=True, timeout=50)
        with wave.open(str(folder / "said.wav")) as reader:
            pcm = resample(reader.readframes(reader.getnframes()), reader.getframerate(), 16000)
    return silence(400, 16000) + pcm + silence(700, 16000)


def heard(events):
    return [event for event in events if isinstance(event, Heard)]


@pytest.mark.parametrize("number", SAID)
def test_a_command_is_understood_word_for_word(listener, number):
    (result,) = heard(listener.feed(clip(number)))
    assert result.matched
    assert result.text == SAID[number]
    assert result.confidence > 0.5
    assert [word.text for word in result.words] == SAID[number].split()


@pytest.mark.parametrize("voice", ["slt", "rms", "kal16"])
@pytest.mark.parametrize("text", ["set an alarm for seven o'clock called work", "turn off the bedroom lights"])
def test_variants_in_other_voices_are_understood(listener, voice, text, tmp_path):
    (result,) = heard(listener.feed(spoken(text, voice, tmp_path)))
    assert (result.text, result.matched) == (text, True)


@pytest.mark.parametrize("voice", ["slt", "awb", "espeak"])
@pytest.mark.parametrize("text", STRANGE)
def test_a_sentence_that_fits_no_phrase_matches_nothing(listener, voice, text, tmp_path):
    results = heard(listener.feed(spoken(text, voice, tmp_path)))
    assert results
    assert not any(result.matched for result in results)


@pytest.mark.parametrize("text", ["who won the football game last night", "turn on the"])
def test_what_matches_nothing_is_told_as_free_text(listener, text, tmp_path):
    (result,) = heard(listener.feed(spoken(text, "slt", tmp_path)))
    assert not result.matched
    assert len(set(result.text.split()) & set(text.split())) >= len(text.split()) // 2


def test_events_come_in_order_with_their_places(grammar):
    listener = Listener(grammar=grammar)
    events = list(listener.feed(clip(1) + clip(4)))
    listener.close()
    kinds = [kind for kind, _ in itertools.groupby(map(type, events))]
    assert kinds == [SpeechStart, Partial, SpeechEnd, Heard] * 2
    starts = [event.at_ms for event in events if isinstance(event, SpeechStart)]
    ends = [event.at_ms for event in events if isinstance(event, SpeechEnd)]
    first = 2786.4  # the length of the first clip
    assert abs(starts[0] - 490) < 60
    assert abs(ends[0] - 1960) < 100
    assert abs(starts[1] - first - 460) < 60
    for result, start, end in zip(heard(events), starts, ends, strict=True):
        assert start - 150 < result.words[0].start_ms < result.words[-1].end_ms < end + 200


def test_partial_texts_change_each_time(listener):
    texts = [event.text for event in listener.feed(clip(2)) if isinstance(event, Partial)]
    assert len(texts) > 3
    assert all(a != b for a, b in itertools.pairwise(texts))
    assert texts[-1].startswith("what")


@settings(max_examples=4)
@given(st.sampled_from(sorted(SAID)), st.lists(st.integers(0, 120_000), max_size=20))
def test_how_the_sound_is_sliced_changes_nothing(number, cuts):
    sound = clip(number)
    wanted = events_of([sound])
    marks = sorted({0, len(sound), *(min(cut, len(sound)) for cut in cuts)})
    assert events_of([sound[start:end] for start, end in itertools.pairwise(marks)]) == wanted


_LISTENERS = []


def events_of(pieces):
    """Events for these slices. One listener serves all, between silences, with places that count from the first slice."""
    if not _LISTENERS:
        _LISTENERS.append([Listener(grammar=build_grammar(PHRASES, knows=sphinx.knows_word)), 0])
    listener, fed_ms = _LISTENERS[0]
    events = [event for piece in pieces for event in listener.feed(piece)]
    length = sum(map(len, pieces))
    pause = silence(4000, 16000) + bytes(-length % 640)
    assert list(listener.feed(pause)) == []
    _LISTENERS[0][1] = fed_ms + (length + len(pause)) / 32
    return [shifted(event, fed_ms) for event in events]


def shifted(event, by_ms):
    match event:
        case SpeechStart(at_ms):
            return SpeechStart(at_ms - by_ms)
        case SpeechEnd(at_ms):
            return SpeechEnd(at_ms - by_ms)
        case Heard(text, confidence, words, matched):
            return text, confidence, matched, [(w.text, w.start_ms - by_ms, w.end_ms - by_ms) for w in words]
        case _:
            return event


def test_another_rate_is_understood_as_well(grammar):
    listener = Listener(sample_rate=24000, grammar=grammar)
    (result,) = heard(listener.feed(resample(clip(1), 16000, 24000)))
    listener.close()
    assert (result.text, result.matched) == (SAID[1], True)


def test_noise_and_silence_are_not_heard(listener):
    assert list(listener.feed(silence(3000, 16000))) == []


def test_without_a_grammar_everything_is_free_text():
    listener = Listener()
    (result,) = heard(listener.feed(clip(1)))
    listener.close()
    assert (result.text, result.matched, result.confidence) == (SAID[1], False, 0.0)


def test_speech_that_never_ends_is_told_in_parts(grammar):
    class Impatient(Listener):
        LONGEST_MS = 1000

    listener = Impatient(grammar=grammar)
    events = [*listener.feed(clip(2)), *listener.finish()]
    listener.close()
    assert len(heard(events)) > 1
    kinds = [type(event) for event in events if not isinstance(event, Partial)]
    assert kinds == [SpeechStart, SpeechEnd, Heard] * (len(kinds) // 3)


@pytest.mark.filterwarnings("ignore:start_stream:DeprecationWarning")
def test_the_library_and_the_binding_understand_the_same(grammar):
    """On Windows only the binding can be called; elsewhere the library is, because it lets other threads run."""
    settings = {"hmm": sphinx._model("en-us"), "dict": sphinx._model("cmudict-en-us.dict"), "samprate": 16000}
    settings |= {"loglevel": "FATAL", "compallsen": True}
    bound = sphinx._Bound(settings, grammar.jsgf)
    native = sphinx.grammar_recogniser(grammar.jsgf)
    if sys.platform == "linux":
        assert isinstance(native, sphinx._Native)
    results = []
    for recogniser in (bound, native):
        recogniser.start()
        recogniser.feed(clip(3))
        assert "table" in recogniser.partial()
        results.append(recogniser.finish())
        assert recogniser.pronunciation("dragon") == ("D", "R", "AE", "G", "AH", "N")
        assert recogniser.pronunciation("zorgblat") == ()
        recogniser.close()
        recogniser.close()
    for first, second in zip(*results, strict=True):
        assert (first.word, first.start, first.end) == (second.word, second.start, second.end)
        assert first.acoustic == pytest.approx(second.acoustic)


@pytest.mark.parametrize("jsgf", ["no grammar at all", "#JSGF V1.0; grammar g; public <s> = zorgblat;"])
def test_a_grammar_that_cannot_be_used_is_refused(jsgf):
    with pytest.raises(ModelError, match="cannot use the grammar"):
        sphinx.grammar_recogniser(jsgf)


def test_the_dictionary_knows_words_and_not_inventions():
    assert sphinx.knows_word("o'clock")
    assert sphinx.knows_word("kitchen")
    assert not sphinx.knows_word("zorgblat")


async def test_ears_tell_on_the_loop_what_a_listener_hears(grammar):
    listener = Listener(grammar=grammar)
    wanted = [event.text for event in listener.feed(clip(1) + clip(3)) if isinstance(event, Heard | Partial)]
    listener.close()
    async with Ears(grammar=grammar) as ears:
        for start in range(0, len(clip(1)), 640):
            ears.feed(clip(1)[start : start + 640])
        ears.feed(clip(3))
        ears.finish()
        events = [event async for event in ears]
    assert [event.text for event in events if isinstance(event, Heard | Partial)] == wanted
    assert all(event.matched for event in heard(events))
    assert ears.dropped_ms == 0


async def test_finish_ends_what_is_being_said(grammar):
    async with Ears(grammar=grammar) as ears:
        ears.feed(clip(1)[: 2000 * 32])
        ears.finish()
        events = [event async for event in ears]
    assert [(event.text, event.matched) for event in heard(events)] == [(SAID[1], True)]


async def test_closing_ends_the_iteration_and_the_thread(grammar):
    ears = Ears(grammar=grammar)
    await ears.start()
    ears.feed(clip(1) * 5)

    async def listen():
        return [event async for event in ears]

    async with asyncio.TaskGroup() as group:
        listening = group.create_task(listen())
        await ears.close()
    assert len(heard(listening.result())) < 5
    assert not ears._thread.is_alive()
    await ears.close()


async def test_ears_are_started_once(grammar):
    async with Ears(grammar=grammar) as ears:
        with pytest.raises(AgentStateError, match="make new ones"):
            await ears.start()


async def test_an_error_on_the_thread_is_raised_to_whoever_listens():
    grammar = build_grammar([("zorgblat",)])
    async with Ears(grammar=grammar) as ears:
        with pytest.raises(ModelError, match="zorgblat"):
            async for _ in ears:
                pass


async def test_sound_beyond_the_backlog_is_dropped_and_counted():
    class Forgetful(Ears):
        LONGEST_BACKLOG_S = 1

    ears = Forgetful()
    for _ in range(3):
        ears.feed(silence(1000, 16000))
    assert ears.dropped_ms == 1000


@pytest.mark.parametrize("wrong", [{"sample_rate": 4000}, {"endpoint_ms": 1}])
def test_settings_that_cannot_work_are_refused_by_name(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        Ears(**wrong)


def test_without_the_extra_the_error_says_what_to_install():
    code = """if True:
        import sys
        sys.modules["pocketsphinx"] = None
        from antiphon.models.embedded.ears import Ears
        try:
            Ears()
        except ImportError as error:
            print(type(error).__name__, error)
    """
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50).stdout
    assert told.startswith("MissingExtraError")
    assert "antiphon[voice]" in told


def segments(*words):
    """Segments one after another, 20 frames each, with their scores."""
    return [Segment(word, 20 * place, 20 * place + 19, score) for place, (word, score) in enumerate(words)]


def letters(word):
    return tuple(word.partition("(")[0])


def test_the_same_words_agree_wholly():
    same = segments(("<s>", 0.0), ("stop(2)", -100.0), ("please", -90.0))
    agreement = compare(same, same, letters)
    assert (agreement.alike, agreement.worst, agreement.missed, agreement.holds) == (1.0, 0.0, 0, True)


def test_another_word_is_believed_when_it_fits_nearly_as_well_and_not_otherwise():
    free = segments(("turn", -50.0), ("on", -30.0), ("picture", -80.0), ("lights", -50.0))
    near = segments(("turn", -50.0), ("on", -30.0), ("kitchen", -95.0), ("lights", -50.0))
    far = segments(("turn", -50.0), ("on", -30.0), ("kitchen", -300.0), ("lights", -50.0))
    assert compare(near, free, letters).holds
    assert not compare(far, free, letters).holds


def test_words_beside_the_sentence_make_it_unbelievable():
    free = segments(("do", -5.0), ("not", -5.0), ("stop", -5.0))
    strict = segments(("<sil>", -5.0), ("<sil>", -5.0), ("stop", -5.0))
    assert compare(strict, free, letters).missed == 40
    assert not compare(strict, free, letters).holds


def test_nothing_agrees_with_nothing():
    assert not compare([], [], letters).holds
    assert not compare(segments(("stop", -1.0)), [], letters).holds


@given(st.text("ab", max_size=6), st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_distance_is_a_distance(first, second, third):
    assert distance(first, second) == distance(second, first)
    assert (distance(first, second) == 0) == (first == second)
    assert distance(first, third) <= distance(first, second) + distance(second, third)
