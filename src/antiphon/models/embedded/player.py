"""What plays a live script over one connection after another."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import assert_never

from antiphon.clock import Clock
from antiphon.content import AudioDelta, BidiMessage, ToolResultBlock
from antiphon.errors import ConnectionTimeoutError
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiAudioStartEvent,
    BidiAudioStopEvent,
    BidiBargeInEvent,
    BidiConnectionWarningEvent,
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
    BidiUsageEvent,
    OutputEvent,
)
from antiphon.models.embedded.line import Line
from antiphon.models.embedded.mouth import Chunk, Voice
from antiphon.models.embedded.script import (
    BargeIn,
    CallTools,
    Emit,
    End,
    Expire,
    Fail,
    GoAway,
    Hear,
    Reason,
    Say,
    Step,
    Until,
    Usage,
    Wait,
    Write,
    numbered_calls,
)
from antiphon.models.embedded.speech import SilentVoice, Speech, silence_for
from antiphon.models.embedded.stream import word_pieces


class Player:
    """Plays a script. Its place in the script, its numbers and what was sent outlive a connection.

    Args:
        script: The steps.
        clock: Paces them.
        voice: Speaks where a step does not say how.
    """

    def __init__(self, script: Sequence[Step], *, clock: Clock, voice: Voice) -> None:
        self._steps = deque(script)
        self._clock = clock
        self._voice = voice
        self._numbers: Counter[str] = Counter()
        self._spoken: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._longer = asyncio.Event()
        self._response = ""
        self._cut: set[str] = set()

    @property
    def steps_left(self) -> int:
        """Steps that did not begin yet."""
        return len(self._steps)

    def add(self, *steps: Step) -> None:
        """Make the script longer. Call it on the loop's thread."""
        self._steps.extend(steps)
        self._longer.set()

    def note_sent(self, content: BidiMessage | AudioDelta) -> None:
        """Something was sent to the model."""
        if isinstance(content, AudioDelta):
            self.note("audio")
            return
        results = sum(isinstance(block, ToolResultBlock) for block in content.content)
        if results:
            self.note("tool_result", results)
        if len(content.content) > results:
            self.note("text")

    def note(self, what: str, count: int = 1) -> None:
        """Something was sent to the model: `text`, `audio`, `tool_result` or `truncate`."""
        self._sent[what] += count
        self._changed.set()

    def barge_in(self, line: Line, response_id: str | None = None) -> None:
        """Cut a response, the latest one when none is named: nothing of it is sent any more."""
        response_id = self._response if response_id is None else response_id
        self._cut.add(response_id)
        line.post(BidiBargeInEvent(response_id=response_id))

    async def play(self, line: Line) -> None:
        """Play the script, and what is added to it, until the line is over."""
        async with asyncio.TaskGroup() as late:
            while not line.over:
                if self._steps:
                    step = self._steps.popleft()
                    try:
                        await self._step(step, line, late)
                    except asyncio.CancelledError:
                        if isinstance(step, Until):
                            self._steps.appendleft(step)  # the next connection waits for it
                        raise
                else:
                    self._longer.clear()
                    await self._longer.wait()

    async def _step(self, step: Step, line: Line, late: asyncio.TaskGroup) -> None:
        match step:
            case Say():
                await self._say(step, line)
            case Hear():
                content_id = step.content_id or self._next("heard")
                line.post(BidiTranscriptStartEvent(content_id=content_id, role="user"))
                if step.late_s > 0 and not step.never:
                    late.create_task(self._hear_late(step, content_id, line))
                elif not step.never:
                    line.post(*_heard(step.text, content_id))
            case Write():
                self._write(step, line)
            case Reason():
                content_id = self._next("reasoning")
                line.post(BidiReasoningStartEvent(content_id=content_id))
                line.post(*(BidiReasoningDeltaEvent(delta=p, content_id=content_id) for p in word_pieces(step.text)))
                line.post(BidiReasoningStopEvent(content_id=content_id))
            case CallTools():
                calls = numbered_calls(step.calls, self._numbers["call"] + 1)
                self._numbers["call"] += len(calls)
                line.post(BidiToolUseBlocksEvent(tool_uses=calls))
            case BargeIn():
                self.barge_in(line, step.response_id)
            case Fail():
                line.end(step.error)
            case End():
                line.end()
            case Expire():
                line.end(ConnectionTimeoutError("the script's connection reached its limit", **step.restart_config))
            case Usage():
                total = step.input_tokens + step.output_tokens
                line.post(
                    BidiUsageEvent(input_tokens=step.input_tokens, output_tokens=step.output_tokens, total_tokens=total)
                )
            case Emit():
                line.post(*step.events)
            case Wait():
                await self._clock.sleep(step.seconds)
            case Until():
                await self._until(step)
            case GoAway():
                line.post(BidiConnectionWarningEvent(time_left_s=step.time_left_s))
            case _:
                assert_never(step)

    def _next(self, what: str) -> str:
        self._numbers[what] += 1
        return f"{what}-{self._numbers[what]}"

    async def _hear_late(self, step: Hear, content_id: str, line: Line) -> None:
        await self._clock.sleep(step.late_s)
        line.post(*_heard(step.text, content_id))

    def _write(self, step: Write, line: Line) -> None:
        content_id = self._next("text")
        if step.response_id is not None:
            self._response = step.response_id
            line.post(BidiResponseStartEvent(response_id=step.response_id))
        line.post(BidiTextStartEvent(content_id=content_id))
        line.post(*(BidiTextDeltaEvent(delta=piece, content_id=content_id) for piece in word_pieces(step.text)))
        line.post(BidiTextStopEvent(content_id=content_id))
        if step.response_id is not None:
            line.post(BidiResponseStopEvent(response_id=step.response_id))

    async def _until(self, step: Until) -> None:
        if isinstance(step.what, asyncio.Event):
            await step.what.wait()
            return
        while self._sent[step.what] < step.count:
            self._changed.clear()
            await self._changed.wait()
        self._sent[step.what] -= self._sent["audio"] if step.what == "audio" else step.count

    def _sound(self, step: Say) -> Iterator[Chunk]:
        rate = self._voice.sample_rate
        if step.words is not None:
            return silence_for(step.words, rate)
        if step.words_per_second is not None:
            return SilentVoice(words_per_second=step.words_per_second, sample_rate=rate).say(step.text)
        return self._voice.say(step.text)

    async def _say(self, step: Say, line: Line) -> None:
        response_id = self._next("response") if step.response_id is None else step.response_id
        content_id = self._next("speech")
        self._response = response_id
        if response_id not in self._spoken and step.start_event:
            line.post(BidiResponseStartEvent(response_id=response_id))
        if step.transcript:
            line.post(BidiTranscriptStartEvent(content_id=content_id))
        if step.sound:
            line.post(BidiAudioStartEvent(content_id=content_id, response_id=response_id))
        before = self._spoken[response_id]
        speech = Speech(response_id, content_id, self._voice.sample_rate, before=before, word_times=step.word_times)
        whole = await self._deliver(step, speech, line)
        self._spoken[response_id] = speech.response_bytes
        if whole or step.stop_events:
            if step.sound:
                line.post(BidiAudioStopEvent(content_id=content_id, response_id=response_id))
            if step.transcript:
                line.post(BidiTranscriptStopEvent(content_id=content_id))
            if step.last or not whole:
                line.post(BidiResponseStopEvent(response_id=response_id))

    async def _deliver(self, step: Say, speech: Speech, line: Line) -> bool:
        """Send a speech; False when it was cut."""
        began = self._clock.now()
        cut_ms = math.inf if step.barge_in_at_ms is None else step.barge_in_at_ms
        for chunk in self._sound(step):
            if step.real_time:
                if speech.position_ms >= cut_ms:
                    break
                await self._reach(began + speech.position_ms / 1000)
            if speech.response_id in self._cut or line.over:
                return False
            for event in speech.events(chunk):
                if step.sound if isinstance(event, BidiAudioDeltaEvent) else step.transcript:
                    line.post(event)
        if step.barge_in_at_ms is not None:
            await self._reach(began + step.barge_in_at_ms / 1000)
            if speech.response_id not in self._cut:
                self.barge_in(line, speech.response_id)
        elif step.real_time:
            await self._reach(began + speech.position_ms / 1000)  # the last piece was sent when it began to sound
        return speech.response_id not in self._cut

    async def _reach(self, due: float) -> None:
        left = due - self._clock.now()
        if left > 0:
            await self._clock.sleep(left)


def _heard(text: str, content_id: str) -> list[OutputEvent]:
    deltas = [BidiTranscriptDeltaEvent(delta=p, role="user", content_id=content_id) for p in word_pieces(text)]
    return [*deltas, BidiTranscriptStopEvent(role="user", content_id=content_id)]
