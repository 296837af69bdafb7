"""Voices of the embedded model: text in, sound out, with the place of every word in it.

`ToneMouth` needs nothing but Python and speaks in tones. `Mouth` speaks English through espeak-ng (the extra `voice`).
Both are `Voice`s, and as they are made by default, the same text always gives the same sound and the same word times.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import math
import re
import threading
import zlib
from array import array
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Protocol

from antiphon.audio import Resampler, bytes_for_ms, duration_ms, pcm_bytes, samples, silence
from antiphon.errors import InvalidInputError, MissingExtraError, ModelError
from antiphon.events import Word

CHUNK_MS = 20

# Most voices of espeak-ng flutter: their pitch trembles on from one utterance to the next, so that the same text never
# sounds quite the same. This variant has `flutter 0` and `roughness 0`.
STEADY_VOICE = "en-us+Henrique"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an utterance.

    Attributes:
        pcm: 16-bit little-endian mono PCM at the voice's rate; about 20 ms, less at the end.
        words: The words that begin in this piece. Times count from the first sample of the utterance.
    """

    pcm: bytes
    words: tuple[Word, ...] = ()


class Voice(Protocol):
    """Speaks text.

    The words of all chunks, joined by blanks, are the text with its white space normalised. Their ends ascend, and the
    last one lies within the sound. A text without words gives no chunk.
    """

    @property
    def sample_rate(self) -> int:
        """Samples per second of the chunks, in Hz."""
        ...

    def say(self, text: str) -> Iterator[Chunk]:
        """The utterance, piece by piece; may hold the caller up while it is made."""
        ...

    def stream(self, text: str) -> AsyncIterator[Chunk]:
        """The same pieces, made without holding up the event loop."""
        ...


def _cut(pcm: bytes, words: Sequence[Word], rate: int) -> Iterator[Chunk]:
    """Chunks of 20 ms, each with the words that begin in it; what begins later goes with the last."""
    size = bytes_for_ms(CHUNK_MS, rate)
    ends = [min(start + size, len(pcm)) for start in range(0, len(pcm), size)]
    given = 0
    for end in ends:
        upto = len(words) if end == len(pcm) else bisect_left(words, duration_ms(end, rate), key=_start)
        yield Chunk(pcm[(end - 1) // size * size : end], tuple(words[given:upto]))
        given = max(given, upto)


def _start(word: Word) -> float:
    return word.start_ms


class ToneMouth:
    """A voice without dependencies: one tone for each word, as long as the word is.

    A word of n characters sounds for 60 + 30 n ms at a pitch of its own and is followed by 20 ms of silence.

    Args:
        sample_rate: In Hz.
    """

    WORD_MS = 60
    CHARACTER_MS = 30
    GAP_MS = 20

    def __init__(self, *, sample_rate: int = 24000) -> None:
        if sample_rate < 1000:
            raise InvalidInputError(f"sample_rate={sample_rate!r} cannot carry a tone: use 8000 or more")
        self.sample_rate = sample_rate

    def say(self, text: str) -> Iterator[Chunk]:
        pcm = bytearray()
        words: list[Word] = []
        for token in text.split():
            start = duration_ms(len(pcm), self.sample_rate)
            pcm += _tone(token, self.WORD_MS + self.CHARACTER_MS * len(token), self.sample_rate)
            words.append(Word(token, duration_ms(len(pcm), self.sample_rate), start))
            pcm += silence(self.GAP_MS, self.sample_rate)
        yield from _cut(bytes(pcm), words, self.sample_rate)

    async def stream(self, text: str) -> AsyncIterator[Chunk]:
        for chunk in self.say(text):
            yield chunk
            await asyncio.sleep(0)


@lru_cache(maxsize=256)
def _tone(word: str, ms: int, rate: int) -> bytes:
    # crc32 and not hash(): the latter differs from process to process.
    turn = 2 * math.pi * (220 + zlib.crc32(word.lower().encode("utf-8", "replace")) % 440) / rate
    count = bytes_for_ms(ms, rate) // 2
    edge = max(1, rate // 200)  # 5 ms of fading keeps the tone from clicking
    return pcm_bytes(
        array("h", [round(8000 * math.sin(turn * n) * min(1.0, n / edge, (count - n) / edge)) for n in range(count)])
    )


class Mouth:
    """The voice of espeak-ng.

    Word times come from the synthesiser's own events: a word begins where it says so, and ends where its sound ends
    before the next word begins. Words that English runs together ("on the") share their sound by length.

    espeak-ng is licensed under the GPL-3; it is loaded when a `Mouth` is made and never before.

    Args:
        voice: A voice of espeak-ng, such as `en-us` or `en-us+f3`. The default gives the same sound for the same text;
            with most others the sound, and the times of words by less than a millisecond, depend on what was said before.
        rate: Words per minute, 80 to 450.
        sample_rate: In Hz; None is the synthesiser's own (22050), which costs no resampling.

    Raises:
        MissingExtraError: The extra `voice` is not installed.
        InvalidInputError: There is no such voice, or the rate is out of range.
    """

    PAUSE_MS = 300  # what espeak-ng itself leaves between two sentences of one text

    def __init__(self, *, voice: str = STEADY_VOICE, rate: int = 175, sample_rate: int | None = None) -> None:
        if not 80 <= rate <= 450:
            raise InvalidInputError(f"rate={rate!r} is out of range: use 80 to 450 words per minute")
        if sample_rate is not None and sample_rate < 1000:
            raise InvalidInputError(f"sample_rate={sample_rate!r} cannot carry speech: use 8000 or more")
        engine = _engine()
        engine.choose(voice, rate)
        self.voice, self.rate = voice, rate
        self.sample_rate = sample_rate or engine.sample_rate
        self._engine = engine

    def say(self, text: str) -> Iterator[Chunk]:
        done_ms = 0.0
        for sentence in _sentences(text):
            if done_ms:
                pause = silence(self.PAUSE_MS, self.sample_rate)
                yield from _cut(pause, (), self.sample_rate)
                done_ms += duration_ms(len(pause), self.sample_rate)
            pcm, words = self._speak(sentence)
            placed = [Word(word.text, word.end_ms + done_ms, word.start_ms + done_ms) for word in words]
            yield from _cut(pcm, placed, self.sample_rate)
            done_ms += duration_ms(len(pcm), self.sample_rate)

    async def stream(self, text: str) -> AsyncIterator[Chunk]:
        # One sentence at a time: a thousand times faster than it is heard, so that the first one is there at once.
        chunks = self.say(text)
        while batch := await asyncio.to_thread(_some, chunks):
            for chunk in batch:
                yield chunk

    def _speak(self, sentence: str) -> tuple[bytes, list[Word]]:
        pcm, marks = self._engine.synthesise(sentence, self.voice, self.rate)
        native = self._engine.sample_rate
        if not pcm:
            # Nothing to pronounce ("..."): a moment of silence, so that the words still have a place.
            pcm = silence(CHUNK_MS, native)
        words = _place(sentence, marks, pcm, native)
        if self.sample_rate != native:
            resampler = Resampler(native, self.sample_rate)
            pcm = resampler.feed(pcm) + resampler.flush()
        return pcm, words


def _some(chunks: Iterator[Chunk], most: int = 50) -> list[Chunk]:
    return list(islice(chunks, most))


# Not after a short word, which may be an abbreviation: the synthesiser tells those apart, and pauses where it should.
_SENTENCE_END = re.compile(r"(?<=\w{4}[.!?…])\s+")


def _sentences(text: str) -> Iterator[str]:
    """The text in pieces that are spoken apart, with white space normalised."""
    for piece in _SENTENCE_END.split(text):
        if words := piece.split():
            yield " ".join(words)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A word begins: its first character in the text, and its first sample."""

    character: int
    sample: int


def _place(text: str, marks: Sequence[_Mark], pcm: bytes, rate: int) -> list[Word]:
    """Every token of `text` with its place in the sound.

    A token begins with the first mark inside it. Tokens without a mark share the sound of the marked one before them,
    in proportion to their letters and digits, since the synthesiser speaks them in one go.
    """
    sound = samples(pcm)
    spans = [(match.start(), match.end()) for match in re.finditer(r"\S+", text)]
    groups: list[tuple[int, list[int]]] = []
    for index, (start, end) in enumerate(spans):
        begun = [mark.sample for mark in marks if start <= mark.character < end]
        first = max(min(begun), groups[-1][0]) if begun and groups else 0
        if begun or not groups:
            groups.append((first, [index]))
        else:
            groups[-1][1].append(index)
    words: list[Word] = []
    for number, (first, members) in enumerate(groups):
        limit = groups[number + 1][0] if number + 1 < len(groups) else len(sound)
        last = limit
        while last > first and abs(sound[last - 1]) < _QUIET:
            last -= 1
        last = last if last > first else limit
        sizes = [sum(character.isalnum() for character in text[slice(*spans[index])]) for index in members]
        if not any(sizes):
            sizes[0] = 1
        whole, done = sum(sizes), 0
        for index, size in zip(members, sizes, strict=True):
            begin = first + (last - first) * done // whole
            done += size
            end = first + (last - first) * done // whole
            words.append(Word(text[slice(*spans[index])], end * 1000 / rate, begin * 1000 / rate))
    return words


# Below this level, of 32768, espeak-ng's voice is silent: between clauses and at the end of a sentence.
_QUIET = 40


class _EventId(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    """`espeak_EVENT` of espeak-ng's speak_lib.h, API revision 12."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),  # in characters, from 1
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _EventId),
    )


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Event))

# Constants of speak_lib.h.
_AUDIO_OUTPUT_SYNCHRONOUS = 2
_EVENT_LIST_TERMINATED, _EVENT_WORD = 0, 1
_CHARS_UTF8 = 1
_RATE = 1
_DONT_EXIT = 0x8000


class _Espeak:
    """The library, which has one voice and one callback per process: all use goes through one lock."""

    def __init__(self, library: str, data: str) -> None:
        self._lock = threading.Lock()
        self._library = ctypes.CDLL(library)
        self.sample_rate = int(
            self._library.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, CHUNK_MS, data.encode(), _DONT_EXIT)
        )
        if self.sample_rate <= 0:
            raise ModelError(f"espeak-ng cannot use its data in {data!r}: reinstall the extra 'voice'")
        self._pcm = bytearray()
        self._marks: list[_Mark] = []
        self._callback = _CALLBACK(self._receive)  # kept: the library holds only its address
        self._library.espeak_SetSynthCallback(self._callback)
        self._chosen: tuple[str, int] | None = None

    def _receive(self, wave: int | None, count: int, events: ctypes.Array[_Event]) -> int:
        if wave and count > 0:
            self._pcm += ctypes.string_at(wave, 2 * count)
        index = 0
        while events[index].type != _EVENT_LIST_TERMINATED:
            if events[index].type == _EVENT_WORD:
                self._marks.append(_Mark(events[index].text_position - 1, events[index].sample))
            index += 1
        return 0

    def choose(self, voice: str, rate: int) -> None:
        with self._lock:
            self._choose(voice, rate)

    def _choose(self, voice: str, rate: int) -> None:
        if self._chosen == (voice, rate):
            return
        self._chosen = None
        if self._library.espeak_SetVoiceByName(voice.encode("utf-8", "replace")) != 0:
            raise InvalidInputError(f"voice={voice!r} is not a voice of espeak-ng: use for example 'en-us'")
        self._library.espeak_SetParameter(_RATE, rate, 0)
        self._chosen = (voice, rate)

    def synthesise(self, text: str, voice: str, rate: int) -> tuple[bytes, list[_Mark]]:
        data = text.replace("\0", " ").encode("utf-8", "replace") + b"\0"
        with self._lock:
            self._choose(voice, rate)
            self._pcm.clear()
            self._marks = []
            # ctypes lets other threads run meanwhile; the callback takes the interpreter back for each 20 ms.
            status = self._library.espeak_Synth(data, len(data), 0, 0, 0, _CHARS_UTF8, None, None)
            if status != 0:
                raise ModelError(f"espeak-ng could not speak {text!r}: it answered {status!r}")
            self._library.espeak_Synchronize()
            return bytes(self._pcm), self._marks


class _Loader(Protocol):
    """What is used of the package `espeakng_loader`, which has no types."""

    def get_library_path(self) -> str: ...

    def get_data_path(self) -> object: ...


_loading = threading.Lock()
_loaded: list[_Espeak] = []


def _engine() -> _Espeak:
    """The process's one synthesiser, loaded on first use."""
    with _loading:
        if not _loaded:
            try:
                loader: _Loader = importlib.import_module("espeakng_loader")  # pyright: ignore[reportAssignmentType]
            except ImportError as error:
                raise MissingExtraError("espeakng-loader", "voice") from error
            try:
                _loaded.append(_Espeak(str(loader.get_library_path()), str(loader.get_data_path())))
            except OSError as error:
                raise ModelError(f"espeak-ng cannot be loaded: {error}") from error
        return _loaded[0]
