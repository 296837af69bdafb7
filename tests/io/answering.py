"""A program that is killed: processes that each speak one answer, and the hand that kills them.

`python answering.py FOLDER SECONDS...` forks one process for each number, out of one that has everything loaded. Each plays
an answer into `FOLDER/<n>/heard.wav` and keeps its session in `FOLDER/<n>/sessions`, until it is killed that many seconds
after it began to speak.
"""

import asyncio
import heapq
import os
import signal
import sys
import time
from pathlib import Path

from antiphon.agent.live import BidiAgent
from antiphon.events import BidiAudioStartEvent, OutputEvent, Word
from antiphon.io.wav import WavIO
from antiphon.models.embedded.script import Say, Until
from antiphon.session.snapshots import SnapshotSessionManager
from antiphon.storage.file import LocalFileStorage
from antiphon.testing.scripted import ScriptedBidiModel

SESSION = "talk"
PROMPT = "how many sheep are there?"
WORD_MS = (70, 110, 240, 90, 50, 130)
WORDS = 24
AT_ONCE = 5


def answer_words() -> list[Word]:
    """Words of unequal length, 2.8 seconds in all."""
    words: list[Word] = []
    at = 0.0
    for number in range(WORDS):
        end = at + WORD_MS[number % len(WORD_MS)]
        words.append(Word(f"sheep{number}", end_ms=end, start_ms=at))
        at = end
    return words


def manager(folder: Path) -> SnapshotSessionManager:
    return SnapshotSessionManager(SESSION, storage=LocalFileStorage(folder / "sessions"))


async def answer(folder: Path, begun: int, *, real_time: bool) -> None:
    """Ask for the answer, and play it."""
    words = answer_words()
    script = [Until("text"), Say(" ".join(word.text for word in words), "answer", words=words, real_time=real_time)]
    agent = BidiAgent(ScriptedBidiModel(script), session_manager=manager(folder))

    async def watch(event: OutputEvent) -> None:
        if isinstance(event, BidiAudioStartEvent):
            os.write(begun, b"!")

    prompts = iter([PROMPT])

    async def ask() -> str:
        for prompt in prompts:
            return prompt
        raise StopAsyncIteration

    await agent.run([ask], [WavIO(output=folder / "heard.wav").output(), watch])


def fork(folder: Path, *, real_time: bool) -> tuple[int, int]:
    """A process that speaks. Returns its id, and a descriptor that can be read when it begins to."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    try:
        asyncio.run(answer(folder, writer, real_time=real_time))
    finally:
        os._exit(1)  # it is to be killed, not to end


def main(folder: Path, delays: list[float]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    waiting = list(enumerate(delays))
    alive: list[tuple[float, int]] = []
    while waiting or alive:
        if waiting and len(alive) < AT_ONCE:
            number, delay = waiting.pop()
            (folder / str(number)).mkdir()
            child, begun = fork(folder / str(number), real_time=number % 2 == 0)
            os.read(begun, 1)
            os.close(begun)
            heapq.heappush(alive, (time.monotonic() + delay, child))
            continue
        due, child = heapq.heappop(alive)
        if signal.sigtimedwait({signal.SIGCHLD}, max(0.0, due - time.monotonic())) is not None:
            sys.exit("a process ended before it was killed")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        signal.sigtimedwait({signal.SIGCHLD}, 0)  # that it ended is known


if __name__ == "__main__":
    main(Path(sys.argv[1]), [float(delay) for delay in sys.argv[2:]])
