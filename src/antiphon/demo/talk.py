"""A talk of the demo: the agent, its session on disk, a user who speaks or types, and a loudspeaker that is a file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from antiphon.agent.live import BidiAgent
from antiphon.content import Messages, text_of
from antiphon.demo.home import home
from antiphon.demo.lines import Line, speech_in
from antiphon.demo.news import tell
from antiphon.events import (
    BidiAudioDeltaEvent,
    BidiBargeInEvent,
    BidiConnectionStartEvent,
    BidiToolUseBlocksEvent,
    BidiTranscriptBlockEvent,
    BidiTranscriptDeltaEvent,
    OutputEvent,
    ToolResultEvent,
)
from antiphon.hooks.events import MessageAddedEvent
from antiphon.io.wav import WavIO
from antiphon.models.embedded.live import EmbeddedBidiModel
from antiphon.session.snapshots import SnapshotSessionManager
from antiphon.storage.file import LocalFileStorage

SESSION = "demo"
_PATIENCE_S = 20.0


def sessions(folder: Path) -> LocalFileStorage:
    """Where the demo's session lies."""
    return LocalFileStorage(folder / "sessions")


def _at_the_end(*, agent_data: object, **kwargs: Any) -> bool:
    """A checkpoint at the end of each call."""
    return True


class Talk:
    """An agent of the demo's session, restored when it is made.

    Args:
        folder: Where everything lies.
        recording: What the listener hears, as a file in it.
        clips: Where the user's words lie as sound; None: the user types.

    Attributes:
        agent: The agent.
        manager: Its session's manager.
        heard: The loudspeaker.
        words: Words of each response so far.
        answers: What the assistant said in this call and is in the history.
        calls: Tools that were called in this call.
    """

    def __init__(self, folder: Path, recording: str, clips: Path | None) -> None:
        files = WavIO(output=folder / recording)
        self._clips = clips
        self._microphone, self.heard = files.input(), files.output()
        self._changed = asyncio.Event()
        self._connected = False
        self._sounding: set[str] = set()
        self.words: dict[str, int] = {}
        self.answers: list[str] = []
        self.calls: list[str] = []
        self.cut_at_ms: float | None = None
        self.manager: SnapshotSessionManager[BidiAgent] = SnapshotSessionManager(
            SESSION, storage=sessions(folder), snapshot_trigger=_at_the_end
        )
        self.agent = BidiAgent(
            EmbeddedBidiModel(voice=clips is not None),
            tools=home(folder, self._changed.set),
            system_prompt="You keep a home.",
            session_manager=self.manager,
        )
        self.agent.add_hook(self._said, MessageAddedEvent)

    async def call(self, script: Callable[[], Awaitable[None]]) -> None:
        """Start a call, go through `script` when it is connected, and hang up."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.agent.run([self._microphone], [self.heard, self._watch]))
            await self.until(lambda: self._connected)
            tell("ready", at=time.monotonic())
            await script()
            self.agent.cancel()

    async def until(self, met: Callable[[], bool]) -> None:
        """Return when something has come about.

        Raises:
            TimeoutError: If it does not.
        """
        async with asyncio.timeout(_PATIENCE_S):
            while not met():
                self._changed.clear()
                await self._changed.wait()

    async def say(self, line: Line) -> None:
        """The user says something; returns when it is said."""
        tell("user", text=line.text, clip=line.clip if self._clips else "")
        if self._clips is None:
            started = ended = time.monotonic()
            await self.agent.send(line.text)
        else:
            clip = self._clips / line.clip
            await self._microphone.play(clip)
            speech, now = speech_in(clip), time.monotonic()
            started, ended = now - speech.length + speech.start, now - speech.length + speech.end
        tell("spoken", text=line.text, started=started, ended=ended)

    async def answered(self, words: str) -> None:
        """Return when an answer with these words was heard to its end."""
        await self.until(lambda: any(words in answer for answer in self.answers))

    async def checkpoint(self) -> None:
        """Keep the history as it is now."""
        snapshot_id = await self.manager.save_snapshot(self.agent, is_latest=False)
        tell("checkpoint", snapshot_id=snapshot_id, messages=len(self.agent.messages))

    def _said(self, event: MessageAddedEvent[BidiAgent]) -> None:
        if event.message["role"] == "assistant" and (text := text_of(event.message)):
            self.answers.append(text)
            tell("answer", text=text, interrupted=event.message.get("metadata", {}).get("interrupted", False))
        self._changed.set()

    async def _watch(self, event: OutputEvent) -> None:
        match event:
            case BidiConnectionStartEvent():
                self._connected = True
            case BidiAudioDeltaEvent() if event.response_id not in self._sounding:
                self._sounding.add(event.response_id)
                tell("sound", response=event.response_id, at=time.monotonic())
            case BidiTranscriptDeltaEvent(role="assistant"):
                self._count(event)
            case BidiTranscriptBlockEvent(role="user"):
                tell("understood", text=event.transcript)
            case BidiToolUseBlocksEvent():
                for use in event.tool_uses:
                    self.calls.append(use["name"])
                    tell("call", name=use["name"], input=use["input"])
            case ToolResultEvent():
                tell("result", text=" ".join(block.get("text", "") for block in event.tool_result["content"]))
            case BidiBargeInEvent():
                self.cut_at_ms = self.heard.played_ms
                tell("barge_in", at=time.monotonic())
            case _:
                pass
        self._changed.set()

    def _count(self, event: BidiTranscriptDeltaEvent) -> None:
        # This model's stretches of speech are named as their response.
        known = self.words.setdefault(event.content_id, 0)
        for word in event.words:
            known += 1
            tell("word", response=event.content_id, text=word.text, end_ms=word.end_ms, in_file_ms=self.heard.played_ms)
        self.words[event.content_id] = known


def told(messages: Messages) -> list[dict[str, Any]]:
    """A history for people: who said or did what."""
    lines: list[dict[str, Any]] = []
    for message in messages:
        metadata = message.get("metadata", {})
        for block in message["content"]:
            if "text" in block:
                lines.append(
                    {
                        "who": message["role"],
                        "text": block["text"],
                        "interrupted": metadata.get("interrupted", False),
                        "made": metadata.get("generated_text", block["text"]),
                    }
                )
            elif "toolUse" in block:
                lines.append({"who": "call", "name": block["toolUse"]["name"], "input": block["toolUse"]["input"]})
            elif "toolResult" in block:
                result = block["toolResult"]
                text = " ".join(part.get("text", "") for part in result["content"])
                lines.append({"who": "result", "text": text, "status": result["status"]})
    return lines
