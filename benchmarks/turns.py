"""The load of the store suite: one conversation that is saved after each turn, and every save can be gone back to.

Standard library only: peers' interpreters run it, too.

A turn is two messages of about 500 bytes. Who keeps whole states is handed the whole history at each save, as most agents
do; who keeps a log is handed what is new. What turns words into a subject's own messages is not measured.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from benchmarks.child import Numbers, Work
from benchmarks.stall import history

_LOADS = 9
_BRANCHES = 10
_TRACED = 40
_FSYNCS = re.compile(r"\b(?:fsync|fdatasync|sync_file_range|msync)\(")


class CannotError(Exception):
    """The subject has no such thing."""


class Shelf:
    """A subject over a folder of its own, which outlives it.

    Args:
        folder: Where.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder

    async def open(self) -> None:
        """Get ready; whoever opens a folder that was used finds what is there."""

    async def close(self) -> None:
        """Let go of everything."""

    def add(self, turn: int, messages: list[dict[str, Any]]) -> None:
        """The conversation goes on by these messages (`stall.history`); not measured."""
        raise NotImplementedError

    async def save(self, turn: int) -> None:
        """Save the conversation as it is after this turn, so that a power cut cannot take it."""
        raise NotImplementedError

    async def warm(self) -> None:
        """Have open what a server has open before the next `load`: threads, connections; nothing of the conversation."""

    async def load(self, turn: int | None) -> int:
        """Make the messages of a turn (None: the newest) ready for use; how many they are. A fresh object is asked."""
        raise NotImplementedError

    async def branch(self, turn: int, number: int, messages: list[dict[str, Any]]) -> None:
        """Save the conversation as it was after a turn, and these messages after it, beside everything else."""
        raise CannotError

    def written(self) -> int:
        """Bytes that were handed to the operating system so far."""
        with open("/proc/self/io", encoding="ascii") as counters:
            return next(int(line.split()[1]) for line in counters if line.startswith("wchar"))

    def cpu(self) -> float:
        """CPU so far, of everybody who takes part; in seconds."""
        return time.process_time()

    def servers(self) -> list[int]:
        """Processes that do the writing in the place of this one."""
        return []

    def at_rest(self) -> int:
        """Bytes in the folder."""
        return sum(
            os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(self.folder) for name in names
        )

    async def settle(self) -> None:
        """Do what the subject does anyway one day, such as a checkpoint, so that `at_rest` counts nothing twice."""

    @property
    def elsewhere(self) -> str:
        """What a fresh process needs to find the place; empty: it is gone with this one."""
        return self.folder


MakeShelf = Callable[[str], Shelf]


@dataclass(frozen=True, slots=True)
class _Marks:
    """Turns at which to look."""

    early: int = 10
    hundred: int = 100
    middle: int = 500
    thousand: int = 1_000
    late: int = 10_000


_QUICK = _Marks(3, 5, 6, 10, 14)


@dataclass(slots=True)
class _Log:
    """What each turn took, from the first on."""

    cpu: list[float] = field(default_factory=list[float])
    wall: list[float] = field(default_factory=list[float])
    written: list[int] = field(default_factory=list[int])

    def around(self, mark: int, values: list[Any]) -> float:
        """What turns around a mark take: up to it, or as many before as after where the first ones weigh.

        The median of bytes; of times the lower quartile, which hardly knows of what else the machine does.
        """
        reach = min(50, mark // 2)
        found = sorted(values[max(0, mark - reach) : mark + (reach if mark <= reach * 4 else 0)])
        return float(statistics.median(found) if values is self.written else found[len(found) // 4])


def store_cases(make: MakeShelf) -> dict[str, Work]:
    """The cases that every subject can do."""
    return {
        "turns": partial(_turns, make),
        "fsyncs": partial(_fsyncs, make),
        "trace": partial(_traced, make),
        "load": partial(_load, make),
    }


def long_cases(make: MakeShelf) -> dict[str, Work]:
    """`store_cases`, and what only those do in reasonable time that do not copy everything each time."""
    return {**store_cases(make), "long": partial(_long, make)}


class Place:
    """A shelf in a folder that is removed afterwards."""

    def __init__(self, make: MakeShelf) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-", dir=os.environ.get("ANTIPHON_BENCH_FOLDER"))
        self._shelf = make(self._folder.name)

    async def __aenter__(self) -> Shelf:
        await self._shelf.open()
        return self._shelf

    async def __aexit__(self, *_: object) -> None:
        await self._shelf.close()
        self._folder.cleanup()


async def _converse(shelf: Shelf, messages: list[dict[str, Any]], first: int = 1) -> _Log:
    log = _Log()
    gc.collect()
    for turn in range(first, first + len(messages) // 2):
        at = 2 * (turn - first)
        shelf.add(turn, messages[at : at + 2])
        written, cpu, wall = shelf.written(), shelf.cpu(), time.perf_counter()
        await shelf.save(turn)
        log.wall.append(time.perf_counter() - wall)
        log.cpu.append(shelf.cpu() - cpu)
        log.written.append(shelf.written() - written)
    return log


async def _turns(make: MakeShelf, *, quick: bool) -> Numbers:
    marks = _QUICK if quick else _Marks()
    messages = history(2 * marks.thousand)
    plain = len(json.dumps(messages, ensure_ascii=False, separators=(",", ":")).encode())
    async with Place(make) as shelf:
        log = await _converse(shelf, messages)
        await shelf.settle()
        size = shelf.at_rest()
        numbers: Numbers = {
            "store_mb": size / 1e6,
            "store_ratio": size / plain,
            "store_written_10_kb": log.around(marks.early, log.written) / 1e3,
            "store_written_100_kb": log.around(marks.hundred, log.written) / 1e3,
            "store_written_1000_kb": log.around(marks.thousand, log.written) / 1e3,
            "store_written_all_kb": statistics.mean(log.written) / 1e3,
            "store_cpu_10_ms": log.around(marks.early, log.cpu) * 1e3,
            "store_cpu_100_ms": log.around(marks.hundred, log.cpu) * 1e3,
            "store_cpu_1000_ms": log.around(marks.thousand, log.cpu) * 1e3,
            "store_wall_10_ms": log.around(marks.early, log.wall) * 1e3,
            "store_wall_100_ms": log.around(marks.hundred, log.wall) * 1e3,
            "store_wall_1000_ms": log.around(marks.thousand, log.wall) * 1e3,
            "store_growth": log.around(marks.thousand, log.wall) / log.around(marks.early, log.wall),
        }
        newest = await _loads(shelf, None, 2 * marks.thousand)
        numbers["store_load_ms"] = newest
        numbers["store_load_open_ms"] = await _loads(shelf, None, 2 * marks.thousand, warm=True)
        try:
            middle = await _loads(shelf, marks.middle, 2 * marks.middle)
            numbers["store_load_500_ms"] = middle
            numbers["store_load_500_ratio"] = middle / marks.middle * marks.thousand / newest
        except CannotError:
            pass
        try:
            for number in range(_BRANCHES):
                await shelf.branch(marks.middle, number, history(2 * (number + 1))[-2:])
            await shelf.settle()
            numbers["store_branch_kb"] = (shelf.at_rest() - size) / _BRANCHES / 1e3
        except CannotError:
            pass
    return numbers


async def _loads(shelf: Shelf, turn: int | None, count: int, *, warm: bool = False) -> float:
    """What a load takes in a fresh process, in ms: the lower quartile of several."""
    if not shelf.elsewhere:
        taken = [await _load_once(shelf, turn, warm=warm) for _ in range(_LOADS)]
    else:
        main: Any = sys.modules["__main__"]
        taken = []
        for _ in range(_LOADS):
            command = [sys.executable, "-m", main.__spec__.name, "load"]
            environment = {
                **os.environ,
                "BENCH_PLACE": shelf.elsewhere,
                "BENCH_TURN": "" if turn is None else str(turn),
                "BENCH_WARM": "1" if warm else "",
            }
            done = subprocess.run(  # noqa: ASYNC221 - nothing else shall run meanwhile
                command, capture_output=True, text=True, check=False, env=environment
            )
            if done.returncode:
                raise RuntimeError(done.stderr[-3000:])
            found = json.loads(done.stdout.strip().splitlines()[-1])
            if found["messages"] < 0:
                raise CannotError
            taken.append((found["ms"], found["messages"]))
    assert all(messages == count for _, messages in taken), (taken, count)
    return sorted(ms for ms, _ in taken)[len(taken) // 4]


async def _load_once(shelf: Shelf, turn: int | None, *, warm: bool) -> tuple[float, int]:
    if warm:
        await shelf.warm()
    begin = time.perf_counter()
    messages = await shelf.load(turn)
    return (time.perf_counter() - begin) * 1e3, messages


async def _load(make: MakeShelf, *, quick: bool) -> Numbers:
    """What `_loads` runs in a fresh process."""
    asked = os.environ["BENCH_TURN"]
    shelf = make(os.environ["BENCH_PLACE"])
    try:
        ms, messages = await _load_once(shelf, int(asked) if asked else None, warm=bool(os.environ["BENCH_WARM"]))
    except CannotError:
        return {"ms": 0, "messages": -1}
    await shelf.close()
    return {"ms": ms, "messages": messages}


async def _long(make: MakeShelf, *, quick: bool) -> Numbers:
    marks = _QUICK if quick else _Marks()
    async with Place(make) as shelf:
        log = await _converse(shelf, history(2 * marks.late))
        written = log.around(marks.late, log.written)
        return {
            "store_written_10000_kb": written / 1e3,
            "store_flat": written / (log.around(marks.early, log.written) or 1),
            "store_cpu_10000_ms": log.around(marks.late, log.cpu) * 1e3,
            "store_wall_10000_ms": log.around(marks.late, log.wall) * 1e3,
        }


async def _fsyncs(make: MakeShelf, *, quick: bool) -> Numbers:
    """How often a turn waits for the disk: once the place is made, and with no checkpoint under way."""
    turns = 3 if quick else _TRACED
    if shutil.which("strace") is None:
        print("strace is not installed", file=sys.stderr)
        return {}
    async with Place(make) as shelf:
        await _converse(shelf, history(2 * turns))
        if servers := shelf.servers():
            with _strace(*(f"-p{server}" for server in servers)) as calls:
                for _ in servers:
                    calls.readline()  # it has come that far with one of them
                await _converse(shelf, history(2 * turns), turns + 1)
            return {"store_fsyncs": calls.count / turns}
    few, many = (_trace(turns * times) for times in (1, 2))
    return {"store_fsyncs": (many - few) / turns}


def _trace(turns: int) -> int:
    main: Any = sys.modules["__main__"]
    with _strace(sys.executable, "-m", main.__spec__.name, "trace", turns=turns) as calls:
        calls.wait()
    return calls.count


class _strace:  # noqa: N801 - what it is called
    """Counts how often processes wait for the disk."""

    def __init__(self, *what: str, turns: int = 0) -> None:
        self._what, self._turns = what, turns
        self.count = 0

    def __enter__(self) -> Self:
        self._calls = tempfile.NamedTemporaryFile()
        command = ["strace", "-f", "-e", "trace=fsync,fdatasync,sync_file_range,msync", "-o", self._calls.name]
        self._process = subprocess.Popen(
            [*command, *self._what],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "BENCH_TURN": str(self._turns)},
        )
        return self

    def readline(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.readline()

    def wait(self) -> None:
        _, told = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(told[-3000:])

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            self._process.communicate()
        lines = self._calls.read().decode(errors="replace").splitlines()
        self.count = sum(1 for line in lines if _FSYNCS.search(line))
        self._calls.close()


async def _traced(make: MakeShelf, *, quick: bool) -> Numbers:
    """What `_fsyncs` runs under the eyes of strace. It ends without closing: that may wait for the disk, too."""
    async with Place(make) as shelf:
        await _converse(shelf, history(2 * int(os.environ["BENCH_TURN"])))
        print("{}", flush=True)
        os._exit(0)
