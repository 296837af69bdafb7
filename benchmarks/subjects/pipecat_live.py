"""A pipeline of Pipecat under the load (`pipecat-ai`).

Three processors pass frames on, as for recognition, model and voice; the application is the last one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from loguru import logger
from pipecat.frames.frames import CancelFrame, Frame, InputAudioRawFrame, InterruptionFrame, TTSAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from benchmarks.child import main
from benchmarks.load import FRAME, App, live_cases


class _Pass(FrameProcessor):
    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)


class _Listener(FrameProcessor):
    def __init__(self, app: App) -> None:
        super().__init__()
        self._app = app

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if type(frame) is TTSAudioRawFrame:
            if pause := self._app.sound():
                await asyncio.sleep(pause)
        elif type(frame) is InterruptionFrame:
            self._app.barge_in()
        await self.push_frame(frame, direction)


class PipecatTalk:
    """One pipeline."""

    def __init__(self) -> None:
        self._worker: Any = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, app: App) -> None:
        pipeline = Pipeline([_Pass(), _Pass(), _Pass(), _Listener(app)])
        self._worker = PipelineWorker(
            pipeline, cancel_on_idle_timeout=False, enable_rtvi=False, params=PipelineParams()
        )
        started = asyncio.Event()

        @self._worker.event_handler("on_pipeline_started")
        async def _(*_: Any) -> None:
            started.set()

        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self._worker)
        self._task = asyncio.create_task(runner.run())  # noqa: TID251 - ended by stop()
        await asyncio.wait_for(started.wait(), 20)

    async def stop(self) -> None:
        await self._worker.queue_frame(CancelFrame())
        assert self._task is not None
        await asyncio.wait_for(self._task, 20)

    async def speak(self, frames: int) -> None:
        for _ in range(frames):
            await self._worker.queue_frame(TTSAudioRawFrame(audio=FRAME, sample_rate=24000, num_channels=1))

    async def interrupt(self) -> None:
        await self._worker.queue_frame(InterruptionFrame())

    async def hear(self) -> None:
        await self._worker.queue_frame(InputAudioRawFrame(audio=FRAME, sample_rate=24000, num_channels=1))


if __name__ == "__main__":
    logger.remove()
    main(live_cases(PipecatTalk))
