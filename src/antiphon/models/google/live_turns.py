"""Who speaks in a Gemini Live session: answers and what the user says, told apart. Pure.

The service names neither answers nor utterances, and its transcriptions keep no order with what they transcribe. So both are
numbered here, and words go where they belong by what was known when they came:

- An answer begins with the first of its parts (sound, text, a transcription, a tool call) and ends with `turnComplete`, or
  with the tool call: what the model says after that stands after the call.
- Words of the user belong to the utterance that is open. One is open from the first sign of speech, or from the answer to it
  if that comes first, until its answer is complete and it has words.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.audio import Resampler
from antiphon.content import ToolUse
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiAudioStartEvent,
    BidiAudioStopEvent,
    BidiBargeInEvent,
    BidiReasoningDeltaEvent,
    BidiReasoningStartEvent,
    BidiReasoningStopEvent,
    BidiResponseStartEvent,
    BidiResponseStopEvent,
    BidiTextDeltaEvent,
    BidiTextStartEvent,
    BidiTextStopEvent,
    BidiToolUseBlocksEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
    OutputEvent,
)
from antiphon.models.live import Owed


class _Answer:
    """One answer.

    Attributes:
        over: Whether it is complete.
        cut: Whether the user spoke over it.
        sounding: Whether its sound has begun and not ended.
        transcript: Whether its transcript is open; None: it has none yet.
        writing: The open content of its text or reasoning.
        resampler: Brings its sound to the rate that is wanted.
        odd: The first half of a sample whose other half is to come.
    """

    __slots__ = ("cut", "id", "odd", "over", "resampler", "sounded", "sounding", "transcript", "writing")

    def __init__(self, number: str) -> None:
        self.id = number
        self.over = False
        self.cut = False
        self.sounded = False
        self.sounding = False
        self.transcript: bool | None = None
        self.writing = ""
        self.resampler: tuple[int, Resampler] | None = None
        self.odd = b""


class _Utterance:
    """Something that the user says.

    Attributes:
        words: How often words of it came.
        answered: Whether an answer has begun since.
    """

    __slots__ = ("answered", "id", "words")

    def __init__(self, number: str) -> None:
        self.id = number
        self.words = 0
        self.answered = False


class Turns:
    """Answers and utterances of one session. Every method appends the events that it makes to `out`.

    Args:
        prefix: Begins the ids of answers and utterances.
        output_rate: The rate that sound is brought to, in Hz.

    Attributes:
        sound_in: Whether sound was sent since the last answer began.
    """

    __slots__ = (
        "_answer",
        "_answers",
        "_asked",
        "_goes_on",
        "_interrupted",
        "_output_rate",
        "_prefix",
        "_prompted",
        "_utterance",
        "_utterances",
        "sound_in",
    )

    def __init__(self, prefix: str, output_rate: int) -> None:
        self._prefix = prefix
        self._output_rate = output_rate
        self._answers = 0
        self._utterances = 0
        self._answer: _Answer | None = None  # the one under way, or the last one
        self._utterance: _Utterance | None = None  # the one that is open
        self._asked = (
            False  # something complete was said or typed, or a tool has a result, and no answer has begun since
        )
        self._goes_on = False  # the model may say more by itself
        self._prompted = False  # the next answer needs no word of the user
        self._interrupted = False  # the next `turnComplete` is that of what was cut
        self.sound_in = False

    # What is sent.

    def asked(self) -> None:
        """The user typed something, or tools have results."""
        self._asked = self._prompted = True

    @property
    def sounding(self) -> bool:
        """Whether the sound of an answer has begun, and more of it may come."""
        return self._answer is not None and self._answer.sounding

    @property
    def has_begun(self) -> bool:
        """Whether any answer has begun."""
        return self._answer is not None

    # What the model says.

    def begin(self, out: list[OutputEvent]) -> _Answer:
        """The answer under way; a new one, if there is none."""
        if self._answer is not None and not self._answer.over:
            return self._answer
        self._answers += 1
        answer = self._answer = _Answer(f"{self._prefix}response-{self._answers}")
        spoken = self._utterance
        if (spoken is None or spoken.answered) and self.sound_in and not self._prompted:
            # The model answers speech whose words are not known yet: they belong in front of the answer.
            self._open_utterance(out)
        if self._utterance is not None:
            self._utterance.answered = True
        self._asked = self._prompted = self._goes_on = self._interrupted = self.sound_in = False
        out.append(BidiResponseStartEvent(response_id=answer.id))
        return answer

    def sound(self, audio: bytes, rate: int, out: list[OutputEvent]) -> None:
        """Sound of an answer: PCM at `rate` Hz, mono; cut anywhere."""
        answer = self._answer
        if answer is None or answer.over:
            answer = self.begin(out)
        if not answer.sounding:
            if answer.writing:
                self._stop_writing(answer, out)
            answer.sounding = answer.sounded = True
            out.append(BidiAudioStartEvent(content_id=f"{answer.id}-audio", response_id=answer.id))
        if rate != self._output_rate:
            if answer.resampler is None or answer.resampler[0] != rate:
                answer.resampler = rate, Resampler(rate, self._output_rate)
            audio = answer.resampler[1].feed(audio)
        elif answer.odd or len(audio) % 2:
            audio = answer.odd + audio
            whole = len(audio) - len(audio) % 2
            audio, answer.odd = audio[:whole], audio[whole:]
        if audio:
            out.append(
                BidiAudioDeltaEvent(
                    audio=audio,
                    sample_rate=self._output_rate,
                    content_id=f"{answer.id}-audio",
                    response_id=answer.id,
                )
            )

    def text(self, text: str, out: list[OutputEvent], *, thought: bool) -> None:
        """Written text of an answer, or a thought."""
        answer = self.begin(out)
        content_id = f"{answer.id}-{'thought' if thought else 'text'}"
        if answer.writing != content_id:
            self._stop_writing(answer, out)
            answer.writing = content_id
            out.append(
                BidiReasoningStartEvent(content_id=content_id) if thought else BidiTextStartEvent(content_id=content_id)
            )
        out.append(
            BidiReasoningDeltaEvent(delta=text, content_id=content_id)
            if thought
            else BidiTextDeltaEvent(delta=text, content_id=content_id)
        )

    def spoken_words(self, text: str, out: list[OutputEvent], *, finished: bool) -> bool:
        """Words of an answer's transcript.

        Returns:
            Whether they have a place: words of an answer that was cut, and is over, were not heard.
        """
        answer = self._answer
        if answer is not None and answer.over and (self._is_unheard or not (self._owes or self._goes_on)):
            return self._late_words(answer, text, out)
        if not text and (answer is None or answer.over):
            return True
        answer = self.begin(out)
        if text:
            if not answer.transcript:
                answer.transcript = True
                out.append(BidiTranscriptStartEvent(content_id=f"{answer.id}-transcript"))
            out.append(BidiTranscriptDeltaEvent(delta=text, content_id=f"{answer.id}-transcript"))
        if finished:
            self._stop_transcript(answer, out)
        return True

    @property
    def _is_unheard(self) -> bool:
        """Whether the user has just cut an answer, and the model cannot know yet what was said over it."""
        spoken, answer = self._utterance, self._answer
        silent = spoken is not None and not spoken.words and not spoken.answered
        return silent and not self._asked and answer is not None and answer.cut

    def _late_words(self, answer: _Answer, text: str, out: list[OutputEvent]) -> bool:
        if not text:
            return True
        if answer.cut:
            return False
        content_id = f"{answer.id}-transcript"
        out += (
            BidiTranscriptStartEvent(content_id=content_id),
            BidiTranscriptDeltaEvent(delta=text, content_id=content_id),
            BidiTranscriptStopEvent(content_id=content_id),
        )
        answer.transcript = False
        return True

    def call_tools(self, tool_uses: Sequence[ToolUse], out: list[OutputEvent], *, goes_on: bool = False) -> None:
        """The model calls tools. What it says from here on stands behind the calls.

        Args:
            tool_uses: The calls.
            out: Takes the events.
            goes_on: Whether the model may speak before it has their results.
        """
        answer = self.begin(out)
        out.append(BidiToolUseBlocksEvent(tool_uses=list(tool_uses)))
        self._finish(answer, out)
        self._prompted, self._goes_on = True, goes_on

    def interrupted(self, out: list[OutputEvent]) -> bool:
        """The user speaks (or types) over the model. Said twice of one answer, it counts once.

        Returns:
            Whether there is an answer that it cuts.
        """
        self._interrupted = True
        answer = self._answer
        cuts = answer is not None and not answer.cut
        if answer is not None and cuts:
            answer.cut = True
            out.append(BidiBargeInEvent(response_id=answer.id))
        if not self._asked and self.sound_in:
            self._speech_begins(out)
        return cuts

    def generation_complete(self, out: list[OutputEvent]) -> None:
        """Everything of the answer was sent."""
        if self._answer is not None and not self._answer.over:
            self._stop_sound(self._answer, out)

    def turn_complete(self, out: list[OutputEvent], *, more: bool, reason: str) -> None:
        """The turn is over.

        Args:
            out: Takes the events.
            more: Whether the model may say more by itself.
            reason: Why, if it did not simply end.
        """
        answer = self._answer
        if answer is None or answer.over:
            # A turn without an answer. If the user waits for one, there will be none: say so.
            answer = self.begin(out) if (self._owes and not self._interrupted) or reason else None
        if answer is not None:
            self._finish(answer, out, reason)
        self._interrupted = False
        self._prompted, self._goes_on = self._prompted or more, more
        self._close_answered(out)

    @property
    def owed(self) -> Owed:
        """What answer would be missing, if the session ended now."""
        answer = self._answer
        if answer is not None and not answer.over and not answer.cut:
            return "cut"
        return "said" if self._owes else ""

    @property
    def _owes(self) -> bool:
        """Whether the user waits for an answer that has not begun."""
        return self._asked or (self._utterance is not None and not self._utterance.answered)

    def _finish(self, answer: _Answer, out: list[OutputEvent], reason: str = "") -> None:
        self._stop_writing(answer, out)
        self._stop_sound(answer, out)
        self._stop_transcript(answer, out)
        answer.over = True
        out.append(BidiResponseStopEvent(response_id=answer.id, reason=reason))

    def _stop_sound(self, answer: _Answer, out: list[OutputEvent]) -> None:
        if not answer.sounding:
            return
        answer.sounding = False
        content_id = f"{answer.id}-audio"
        if answer.resampler is not None and (rest := answer.resampler[1].flush()):
            out.append(
                BidiAudioDeltaEvent(
                    audio=rest, sample_rate=self._output_rate, content_id=content_id, response_id=answer.id
                )
            )
        answer.odd = b""
        out.append(BidiAudioStopEvent(content_id=content_id, response_id=answer.id))

    def _stop_transcript(self, answer: _Answer, out: list[OutputEvent]) -> None:
        if answer.transcript:
            answer.transcript = False
            out.append(BidiTranscriptStopEvent(content_id=f"{answer.id}-transcript"))

    def _stop_writing(self, answer: _Answer, out: list[OutputEvent]) -> None:
        if answer.writing.endswith("-thought"):
            out.append(BidiReasoningStopEvent(content_id=answer.writing))
        elif answer.writing:
            out.append(BidiTextStopEvent(content_id=answer.writing))
        answer.writing = ""

    # What the user says.

    def user_words(self, text: str, out: list[OutputEvent], *, finished: bool, partial: str = "") -> None:
        """Words of the user, as they were understood; or `partial`, what is understood so far."""
        spoken = self._utterance
        if spoken is None:
            if not text and not partial:
                return
            spoken = self._open_utterance(out)
        elif partial and spoken.answered and (self._answer is None or self._answer.over or self._answer.cut):
            spoken = self._open_utterance(out)
        if text or partial:
            spoken.words += bool(text.strip())
            out.append(BidiTranscriptDeltaEvent(delta=text, role="user", content_id=spoken.id, partial=partial))
        if finished:
            self._close_utterance(out)

    def speech_begins(self, out: list[OutputEvent]) -> None:
        """The service hears the user speak."""
        self._speech_begins(out)

    @property
    def waits_for_words(self) -> bool:
        """Whether an answer is complete, and the words that it answers are not known yet."""
        return (
            self._utterance is not None
            and self._utterance.answered
            and (self._answer is None or self._answer.over)
            and not self._utterance.words
        )

    def settle(self, out: list[OutputEvent]) -> None:
        """The service has closed its books on the turn: the words that came late are all there are."""
        if self._answer is not None and self._answer.over and not self._prompted:
            self._goes_on = True  # words that come now begin another answer, although nobody is known to have asked
        self._close_answered(out)

    def _close_answered(self, out: list[OutputEvent]) -> None:
        """Close the utterance whose answer is complete, if its words are known."""
        if (self._answer is None or self._answer.over) and self.tail is not None:
            self._close_utterance(out)

    @property
    def tail(self) -> tuple[str, int] | None:
        """The speech that is being answered, and how often words of it came; None if none is open, or none has come."""
        spoken = self._utterance
        return (spoken.id, spoken.words) if spoken is not None and spoken.answered and spoken.words else None

    def end_tail(self, out: list[OutputEvent]) -> None:
        """The last words of the speech that is being answered have come."""
        if self.tail is not None:
            self._close_utterance(out)

    def give_up_words(self) -> None:
        """Nothing was understood of the speech that was answered: words that come from now on are others."""
        if self.waits_for_words:
            self._utterance = None

    def _speech_begins(self, out: list[OutputEvent]) -> None:
        if self._utterance is None or self._utterance.answered:
            self._open_utterance(out)

    def _open_utterance(self, out: list[OutputEvent]) -> _Utterance:
        if self._utterance is not None:
            self._close_utterance(out)
        self._utterances += 1
        spoken = self._utterance = _Utterance(f"{self._prefix}user-{self._utterances}")
        out.append(BidiTranscriptStartEvent(content_id=spoken.id, role="user"))
        return spoken

    def _close_utterance(self, out: list[OutputEvent]) -> None:
        spoken, self._utterance = self._utterance, None
        if spoken is None:
            return
        if spoken.words and not spoken.answered:
            self._asked = self._prompted = True
        out.append(BidiTranscriptStopEvent(role="user", content_id=spoken.id))
