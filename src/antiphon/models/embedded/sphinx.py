"""The edge to pocketsphinx: two recognisers of English speech that work offline (the extra `voice`).

The C library inside the wheel is called through ctypes, which lets other threads run meanwhile. The wheel's own binding
keeps the interpreter for itself: 100 ms and more at the end of a sentence, in which no sound could be played. It is
used where a wheel hides the library's functions (Windows).
"""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Protocol

from antiphon.errors import MissingExtraError, ModelError

SAMPLE_RATE = 16000
FRAMES_PER_SECOND = 100

# Three things make what is heard depend on what was heard before, and are set back for every utterance: the running mean
# of the features (the values are those of pocketsphinx's own examples for the en-us model), the level of the background
# noise (`ps_start_stream`), and the codewords that fitted the last frame, from which the search for the next frame's
# begins. For the last, a moment of silence is heard as an utterance of its own.
_FEATURE_MEAN = "41.00,-5.29,-0.12,5.09,2.48,-4.07,-1.37,-1.78,-5.08,-2.05,-6.45,-1.42,1.17"
_SILENCE = bytes(2 * SAMPLE_RATE // 10)
_SEARCH = "antiphon"
# Scores are logarithms to this base throughout pocketsphinx.
_LOG_BASE = math.log(1.0001)


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of what was recognised.

    Attributes:
        word: As in the dictionary, or a filler in angle or square brackets or between plus signs.
        start: First frame, 100 of which make a second, from the start of the utterance.
        end: Last frame.
        acoustic: How well the sound fits, as a natural logarithm; 0 is best, and longer words have less.
    """

    word: str
    start: int
    end: int
    acoustic: float

    @property
    def is_word(self) -> bool:
        """Whether it is a word, and not silence or noise."""
        return self.word[0] not in "<[+"

    @property
    def text(self) -> str:
        """The word without the number of its pronunciation."""
        return self.word.partition("(")[0]


class Recogniser(Protocol):
    """Recognises one utterance after another: start, feed, finish."""

    def start(self) -> None:
        """Begins an utterance; what was heard before has no influence on it."""
        ...

    def feed(self, pcm: bytes) -> None:
        """More of the utterance: 16-bit mono PCM at 16 kHz."""
        ...

    def partial(self) -> str:
        """What has been understood so far; empty at first."""
        ...

    def finish(self) -> tuple[Segment, ...]:
        """Ends the utterance: what was understood, with silences; empty when nothing was."""
        ...

    def pronunciation(self, word: str) -> tuple[str, ...]:
        """The phones of a word of the dictionary; empty for an unknown one."""
        ...

    def close(self) -> None:
        """Gives its memory back. Nothing may be called afterwards; twice is once."""
        ...


def free_recogniser() -> Recogniser:
    """Understands what may be said in English, with the wheel's language model. Loads for a third of a second.

    Raises:
        MissingExtraError: The extra `voice` is not installed.
    """
    # Without the second pass over the whole utterance the end comes in 10 ms instead of 100; accuracy is the same to 1 %.
    return _open({"lm": _model("en-us.lm.bin"), "fwdflat": False}, "")


def grammar_recogniser(jsgf: str) -> Recogniser:
    """Understands the sentences of a grammar, and takes everything else for one of them.

    Raises:
        MissingExtraError: The extra `voice` is not installed.
        ModelError: The grammar cannot be read, or has words that `knows_word` does not know.
    """
    return _open({}, jsgf)


@cache
def _vocabulary() -> frozenset[str]:
    with open(_model("cmudict-en-us.dict"), encoding="utf-8") as lines:
        return frozenset(line.partition(" ")[0].partition("(")[0] for line in lines)


def knows_word(word: str) -> bool:
    """Whether the dictionary has a pronunciation for a word in lower case.

    Raises:
        MissingExtraError: The extra `voice` is not installed.
    """
    return word in _vocabulary()


def require() -> None:
    """Makes sure that recognisers can be made.

    Raises:
        MissingExtraError: The extra `voice` is not installed.
    """
    _package("pocketsphinx")


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError("pocketsphinx", "voice") from error


def _model(name: str) -> str:
    return os.path.join(str(_package("pocketsphinx").get_model_path()), "en-us", name)


def _open(settings: dict[str, Any], jsgf: str) -> Recogniser:
    settings = {
        "hmm": _model("en-us"),
        "dict": _model("cmudict-en-us.dict"),
        "samprate": SAMPLE_RATE,
        "loglevel": "FATAL",
        # Both recognisers score against all sounds there are, so that their scores can be compared.
        "compallsen": True,
        **settings,
    }
    library = _library()
    return _Native(library, settings, jsgf) if library else _Bound(settings, jsgf)


@cache
def _library() -> ctypes.CDLL | None:
    """The wheel's C library with its signatures (pocketsphinx.h of 5.0), or None where it cannot be called."""
    path = _package("pocketsphinx._pocketsphinx").__file__
    try:
        library = ctypes.CDLL(str(path))
        pointer, text, integer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        for name, result, arguments in (
            ("ps_config_parse_json", pointer, (pointer, text)),
            ("ps_config_free", integer, (pointer,)),
            ("ps_init", pointer, (pointer,)),
            ("ps_free", integer, (pointer,)),
            ("ps_add_jsgf_string", integer, (pointer, text, text)),
            ("ps_activate_search", integer, (pointer, text)),
            ("ps_set_cmn", integer, (pointer, text)),
            ("ps_start_stream", integer, (pointer,)),
            ("ps_start_utt", integer, (pointer,)),
            ("ps_process_raw", integer, (pointer, text, ctypes.c_size_t, integer, integer)),
            ("ps_end_utt", integer, (pointer,)),
            ("ps_get_hyp", text, (pointer, pointer)),
            ("ps_seg_iter", pointer, (pointer,)),
            ("ps_seg_next", pointer, (pointer,)),
            ("ps_seg_word", text, (pointer,)),
            ("ps_seg_frames", None, (pointer, pointer, pointer)),
            ("ps_seg_prob", ctypes.c_int32, (pointer, pointer, pointer, pointer)),
            ("ps_lookup_word", pointer, (pointer, text)),
            ("ckd_free", None, (pointer,)),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return library


# The parser of grammars keeps state of its own.
_parsing = threading.Lock()


class _Native:
    """A decoder of the C library, called through ctypes."""

    def __init__(self, library: ctypes.CDLL, settings: dict[str, Any], jsgf: str) -> None:
        self._library = library
        self._decoder: int | None = None
        config = library.ps_config_parse_json(None, json.dumps(settings).encode())
        if not config:
            raise ModelError(f"pocketsphinx does not accept the settings {settings!r}")
        try:
            self._decoder = library.ps_init(config)
        finally:
            library.ps_config_free(config)
        if not self._decoder:
            raise ModelError(
                f"pocketsphinx cannot load its model from {settings['hmm']!r}: reinstall the extra 'voice'"
            )
        if jsgf:
            with _parsing:
                refused = library.ps_add_jsgf_string(self._decoder, _SEARCH.encode(), jsgf.encode())
            if refused or library.ps_activate_search(self._decoder, _SEARCH.encode()):
                self.close()
                raise _bad_grammar(jsgf)

    def start(self) -> None:
        self._begin()
        self.feed(_SILENCE)
        self._done(self._library.ps_end_utt(self._decoder), "end")
        self._begin()

    def _begin(self) -> None:
        self._library.ps_set_cmn(self._decoder, _FEATURE_MEAN.encode())
        self._library.ps_start_stream(self._decoder)
        self._done(self._library.ps_start_utt(self._decoder), "begin")

    def feed(self, pcm: bytes) -> None:
        self._done(self._library.ps_process_raw(self._decoder, pcm, len(pcm) // 2, 0, 0), "follow")

    def partial(self) -> str:
        found: bytes | None = self._library.ps_get_hyp(self._decoder, None)
        return found.decode() if found else ""

    def finish(self) -> tuple[Segment, ...]:
        self._done(self._library.ps_end_utt(self._decoder), "end")
        return tuple(self._segments()) if self.partial() else ()

    def _segments(self) -> Iterator[Segment]:
        library = self._library
        start, end, acoustic, language, back = (ctypes.c_int() for _ in range(5))
        step: int | None = library.ps_seg_iter(self._decoder)
        while step:
            library.ps_seg_frames(step, ctypes.byref(start), ctypes.byref(end))
            library.ps_seg_prob(step, ctypes.byref(acoustic), ctypes.byref(language), ctypes.byref(back))
            word: bytes = library.ps_seg_word(step)
            yield Segment(word.decode(), start.value, end.value, acoustic.value * _LOG_BASE)
            step = library.ps_seg_next(step)

    def pronunciation(self, word: str) -> tuple[str, ...]:
        found: int | None = self._library.ps_lookup_word(self._decoder, word.encode())
        if not found:
            return ()
        try:
            return tuple((ctypes.cast(found, ctypes.c_char_p).value or b"").decode().split())
        finally:
            self._library.ckd_free(found)

    def close(self) -> None:
        decoder, self._decoder = self._decoder, None
        if decoder:
            self._library.ps_free(decoder)

    def _done(self, status: int, what: str) -> None:
        if status < 0:
            raise ModelError(f"pocketsphinx could not {what} the utterance: it answered {status!r}")


class _BoundSegment(Protocol):
    word: str
    start_frame: int
    end_frame: int
    ascore: float


class _BoundHypothesis(Protocol):
    hypstr: str


class _BoundDecoder(Protocol):
    """What is used of `pocketsphinx.Decoder`, which has no types."""

    def add_jsgf_string(self, name: str, jsgf: str) -> None: ...
    def activate_search(self, name: str) -> None: ...
    def set_cmn(self, mean: str) -> None: ...
    def start_stream(self) -> None: ...
    def start_utt(self) -> None: ...
    def process_raw(self, pcm: bytes) -> None: ...
    def end_utt(self) -> None: ...
    def hyp(self) -> _BoundHypothesis | None: ...
    def seg(self) -> Iterator[_BoundSegment] | None: ...
    def lookup_word(self, word: str) -> str | None: ...


class _Bound:
    """A decoder of the wheel's own binding, which lets no other thread run."""

    def __init__(self, settings: dict[str, Any], jsgf: str) -> None:
        binding = _package("pocketsphinx")
        try:
            decoder: _BoundDecoder = binding.Decoder(**{"lm": None, **settings})
        except (RuntimeError, ValueError) as error:
            raise ModelError(
                f"pocketsphinx cannot load its model from {settings['hmm']!r}: reinstall the extra 'voice'"
            ) from error
        self._decoder = decoder
        if jsgf:
            try:
                with _parsing:
                    decoder.add_jsgf_string(_SEARCH, jsgf)
                decoder.activate_search(_SEARCH)
            except (RuntimeError, ValueError) as error:
                raise _bad_grammar(jsgf) from error

    def start(self) -> None:
        self._begin()
        self.feed(_SILENCE)
        self._decoder.end_utt()
        self._begin()

    def _begin(self) -> None:
        self._decoder.set_cmn(_FEATURE_MEAN)
        # Called superfluous by a DeprecationWarning; without it the level of the noise stays what it was.
        self._decoder.start_stream()
        self._decoder.start_utt()

    def feed(self, pcm: bytes) -> None:
        self._decoder.process_raw(pcm)

    def partial(self) -> str:
        found = self._decoder.hyp()
        return found.hypstr if found else ""

    def finish(self) -> tuple[Segment, ...]:
        self._decoder.end_utt()
        if not self.partial():
            return ()
        return tuple(
            Segment(part.word, part.start_frame, part.end_frame, math.log(part.ascore) if part.ascore > 0 else -745.0)
            for part in self._decoder.seg() or ()
        )

    def pronunciation(self, word: str) -> tuple[str, ...]:
        return tuple((self._decoder.lookup_word(word) or "").split())

    def close(self) -> None:
        """The binding frees the decoder together with this object."""


def _bad_grammar(jsgf: str) -> ModelError:
    return ModelError(
        f"pocketsphinx cannot use the grammar {jsgf!r}: build it with build_grammar(..., knows=knows_word)"
    )
