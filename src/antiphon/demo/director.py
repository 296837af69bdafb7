"""The process that shows the demo: it starts the others, one after the other, and kills the first."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from antiphon.audio import duration_ms
from antiphon.demo.news import News, read_news
from antiphon.demo.phases import WORDS_BEFORE_THE_KILL
from antiphon.demo.screen import Screen
from antiphon.io.wav_file import read_format

_PHASE_BOUND_S = 60.0
_BEHIND_MS = 250.0
_LINE_BOUND = 1 << 20


@dataclass(slots=True)
class Watched:
    """What a process told.

    Attributes:
        began: When it was started, by this machine's steady clock, which is the same for all processes.
        exit_code: How it ended; the negative number of a signal.
        news: All it told, in order.
    """

    began: float
    exit_code: int | None = None
    news: list[News] = field(default_factory=list[News])

    def all(self, what: str) -> list[News]:
        """Its news of one kind."""
        return [news for news in self.news if news["what"] == what]


class Director:
    """Runs the demo.

    Args:
        folder: Where everything lies.
        clips: Where the user's words lie as sound; None: they are typed.
        screen: Shows it.
        as_json: Whether the figures are to be JSON.
        colour: Whether standard output has colours.
    """

    def __init__(self, folder: Path, clips: Path | None, screen: Screen, *, as_json: bool, colour: bool) -> None:
        self._folder = folder
        self._clips = clips
        self._screen = screen
        self._as_json = as_json
        self._colour = colour
        self._claims: list[dict[str, Any]] = []
        self._word = ""

    async def run(self) -> int:
        """All four processes. Returns the exit code: 0 when everything that was claimed is true."""
        began = time.monotonic()
        show = self._screen
        show.line(f"{'voice' if self._clips else 'text'} · files in {self._folder}")
        show.title("1  A call, until the process is killed")
        first = await self._process("call", kill=True)
        lost_ms, played = self._after_the_kill(first)
        show.title("2  The next process")
        second = await self._process("resume")
        lost_ms = self._compare(second, played, lost_ms)
        self._claim("the second process ended well", holds=second.exit_code == 0)
        show.title("3  Back to an earlier checkpoint, and another way")
        third = await self._process("branch")
        self._claim("the third process ended well", holds=third.exit_code == 0)
        processes = [first, second, third]
        figures = {
            "mode": "voice" if self._clips else "text",
            "cold_start_ms": [(told["at"] - each.began) * 1000 for each in processes for told in each.all("ready")],
            "restore_ms": [told["seconds"] * 1000 for told in second.all("restored")],
            "end_of_speech_to_first_sound_ms": [ms for each in processes for ms in _latencies(each)],
            "barge_in_to_silence_ms": _silences(second),
            "heard_words_lost_ms": lost_ms,
            "seconds": time.monotonic() - began,
            "claims": self._claims,
        }
        show.title("4  The tree, read from storage alone")
        code = await self._draw(figures)
        show.line()
        failed = self._failed() or code != 0
        show.claim("all claims hold" if not failed else "see above", holds=not failed)
        return 1 if failed else 0

    def _command(self, phase: str, *more: str) -> list[str]:
        clips = ["--clips", str(self._clips)] if self._clips else ["--text"]
        return [sys.executable, "-m", "antiphon.demo", "--dir", str(self._folder), *clips, "--phase", phase, *more]

    async def _process(self, phase: str, *, kill: bool = False) -> Watched:
        watched = Watched(time.monotonic())
        process = await asyncio.create_subprocess_exec(
            *self._command(phase), stdout=asyncio.subprocess.PIPE, limit=_LINE_BOUND
        )
        assert process.stdout is not None  # noqa: S101 - it was asked for
        try:
            async with asyncio.timeout(_PHASE_BOUND_S):
                async for line in process.stdout:
                    news = read_news(line)
                    watched.news.append(news)
                    self._show(news)
                    if kill and _in_mid_sentence(watched):
                        process.send_signal(signal.SIGKILL)
                        kill = False
                watched.exit_code = await process.wait()
        except TimeoutError:
            self._claim(f"the process {phase!r} ends within {_PHASE_BOUND_S:g} s", holds=False)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return watched

    async def _draw(self, figures: dict[str, Any]) -> int:
        more = ["--figures", json.dumps(figures)]
        if self._as_json:
            more.append("--json")
        if self._colour:
            more.append("--colour")
        process = await asyncio.create_subprocess_exec(*self._command("tree", *more))
        try:
            async with asyncio.timeout(_PHASE_BOUND_S):
                return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _show(self, news: News) -> None:
        show = self._screen
        match news:
            case {"what": "user", "text": text, "clip": clip}:
                show.entry("▸", "user", text, "blue", note=clip)
            case {"what": "call", "name": name, "input": values}:
                show.entry(
                    "⚙", "tool", f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})", "yellow"
                )
            case {"what": "result", "text": text}:
                show.entry("⚙", "result", text, "yellow")
            case {"what": "word", "text": text, "response": response}:
                show.word(text, first=response != self._word)
                self._word = response
            case {"what": "barge_in"}:
                show.entry("✂", "barge-in", "the loudspeaker is silent", "magenta")
            case {"what": "checkpoint", "snapshot_id": snapshot_id, "messages": count}:
                show.entry("●", "checkpoint", f"…{snapshot_id[-8:]} with {count} messages", "cyan")
            case {"what": "restored", "messages": messages, "seconds": seconds}:
                self._show_restored(messages, seconds)
            case {"what": "checkpoints", "nodes": nodes}:
                for node in nodes:
                    show.entry(
                        "●", f"…{node['id'][-8:]}", f"{node['messages']} messages, last: “{node['last']}”", "cyan"
                    )
            case {"what": "rewound", "snapshot_id": snapshot_id}:
                show.entry("↶", "rewound", f"to …{snapshot_id[-8:]}", "cyan")
            case {"what": "claim", "text": text, "holds": holds}:
                self._claim(text, holds=holds)
            case {"what": "noise", "text": text}:
                show.line(text)
            case _:
                pass

    def _show_restored(self, messages: list[dict[str, Any]], seconds: float) -> None:
        show = self._screen
        show.entry("↺", "restored", f"{len(messages)} entries in {seconds * 1000:.0f} ms", "cyan")
        cut = next((line for line in reversed(messages) if line["who"] == "assistant"), None)
        if cut is not None:
            show.entry("◂", "heard", f"“{cut['text']}”", "green")
            rest = cut["made"].removeprefix(cut["text"]).strip()
            show.entry(
                "✂",
                "cut",
                f"“{rest}” and all that would have followed" if rest else "all that would have followed",
                "red",
            )
        for call, result in pairwise(messages):
            if call["who"] == "call" and result.get("status") == "error":
                values = ", ".join(f"{key}={value!r}" for key, value in call["input"].items())
                show.entry("⚙", "under way", f"{call['name']}({values}): {result['text']}", "yellow")

    def _claim(self, text: str, *, holds: bool) -> None:
        self._claims.append({"text": text, "holds": holds})
        self._screen.claim(text, holds=holds)

    def _failed(self) -> bool:
        return not all(claim["holds"] for claim in self._claims)

    def _after_the_kill(self, first: Watched) -> tuple[float, list[News]]:
        """What the file of a killed process holds: the words of the story that were played."""
        form = read_format(self._folder / "1-first-call.wav")
        length_ms = duration_ms(form.data_length, form.rate)
        words = _story_words(first)
        start_ms = words[0]["in_file_ms"] if words else length_ms
        self._screen.entry("✗", "SIGKILL", f"after {length_ms / 1000:.2f} s of sound, while book_table runs", "red")
        self._claim("the process was killed while it spoke and a tool ran", holds=first.exit_code == -signal.SIGKILL)
        return length_ms - start_ms, words

    def _compare(self, second: Watched, words: list[News], played_ms: float) -> float:
        """Compare what was restored with what is in the file. Returns how long the words last that are forgotten, in ms."""
        restored = [line for told in second.all("restored") for line in told["messages"] if line["who"] == "assistant"]
        heard: list[str] = restored[-1]["text"].split() if restored else []
        inside = [word["text"] for word in words if word["end_ms"] <= played_ms]
        sure = [word["text"] for word in words if word["end_ms"] <= played_ms - _BEHIND_MS]
        self._claim(
            "what was restored is what is in the file, but for 250 ms",
            holds=heard == inside[: len(heard)] and len(heard) >= len(sure),
        )
        ends: list[float] = [0.0, *(word["end_ms"] for word in words)]
        return max(0.0, ends[len(inside)] - ends[min(len(heard), len(inside))])


def _story_words(watched: Watched) -> list[News]:
    words = watched.all("word")
    return [word for word in words if word["response"] == words[-1]["response"]]


def _in_mid_sentence(watched: Watched) -> bool:
    """Whether the tool is running and the story has begun."""
    booked = any(call["name"] == "book_table" for call in watched.all("call"))
    return booked and watched.news[-1]["what"] == "word" and len(_story_words(watched)) >= WORDS_BEFORE_THE_KILL


def _latencies(watched: Watched) -> list[float]:
    """From the end of each wish to the first sound of its answer, in ms; wishes without an answer are left out."""
    spoken, sounds = watched.all("spoken"), [sound["at"] for sound in watched.all("sound")]
    found: list[float] = []
    for index, wish in enumerate(spoken):
        until = spoken[index + 1]["started"] if index + 1 < len(spoken) else float("inf")
        answer = next((at for at in sounds if wish["ended"] <= at < until), None)
        if answer is not None:
            found.append((answer - wish["ended"]) * 1000)
    return found


def _silences(watched: Watched) -> list[float]:
    """From the user's first sound to the loudspeaker's silence, in ms."""
    found: list[float] = []
    for cut in watched.all("barge_in"):
        starts = [spoken["started"] for spoken in watched.all("spoken") if spoken["started"] <= cut["at"]]
        if starts:
            found.append((cut["at"] - starts[-1]) * 1000)
    return found
