"""Forks child after child from a warm parent and kills each at another operation on files; prints what was found wrong.

Run by name, since it must have no threads: `python -m tests.store.file_kills <folder> <kills>`.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from antiphon.filesystem import FileSystem
from antiphon.store.file import FileSessionStore
from tests.store.sqlite_life import SECRET, Told, faults, live, settle

OPERATIONS = 30
"""About how many changes of files one life makes."""

LIVES_IN_A_FOLDER = 31

MOMENTS = ("before", "half", "after")


class DeadlyFileSystem(FileSystem):
    """Ends this process, as `kill -9` would, before, after or half-way through the change of a file with this number.

    It flushes nothing: what a process has written is not lost with it. What the power takes, `test_file_crashes` looks at.
    """

    def __init__(self, number: int, moment: str) -> None:
        self._left, self._moment = number, moment

    def _is(self, *moments: str) -> bool:
        return self._left < 0 and self._moment in moments

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _change(self, change: Callable[[], object], half: Callable[[], object] | None = None) -> object:
        self._left -= 1
        if self._is("before") or (half is None and self._is("half")):
            self._die()
        if half is not None and self._is("half"):
            half()
            self._die()
        done = change()
        if self._is("after"):
            self._die()
        return done

    def make_folder(self, name, at):
        self._change(lambda: super(DeadlyFileSystem, self).make_folder(name, at))

    def create(self, name, at):
        return self._change(lambda: super(DeadlyFileSystem, self).create(name, at))

    def write(self, fd, data):
        whole = super().write
        self._change(lambda: whole(fd, data), lambda: whole(fd, data[: len(data) // 2]))

    def write_at(self, fd, data, offset):
        whole = super().write_at
        self._change(lambda: whole(fd, data, offset), lambda: whole(fd, data[: len(data) // 2], offset))

    def truncate(self, fd, size):
        self._change(lambda: super(DeadlyFileSystem, self).truncate(fd, size))

    def sync(self, fd):
        self._change(lambda: None)

    def sync_data(self, fd):
        self._change(lambda: None)

    def sync_folder(self, fd):
        self._change(lambda: None)

    def replace(self, old, new, at):
        self._change(lambda: super(DeadlyFileSystem, self).replace(old, new, at))

    def remove(self, name, at):
        self._change(lambda: super(DeadlyFileSystem, self).remove(name, at))


def child(path: Path, number: int, told: Told, say: Callable[[str], None]) -> None:
    """Look whether all is well, and live on until the kill."""
    logging.disable()
    deadly = DeadlyFileSystem(number // len(MOMENTS) % OPERATIONS, MOMENTS[number % len(MOMENTS)])
    store = FileSessionStore(path, filesystem=deadly)
    for fault in faults(store, told):
        say(f"fault {fault}")
    say(f"settled {json.dumps(asdict(settle(store, told)))}")
    live(store, number, say, turns=2)
    store.close()


def run(path: Path, number: int, told: Told) -> tuple[list[str], Told, bool]:
    """One life. What was wrong at its beginning, what is acknowledged at its end, and whether it was killed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            child(path, number, told, lambda line: os.write(writing, f"{line}\n".encode()))
        except BaseException as error:  # noqa: BLE001 - told to the parent
            os.write(writing, f"fault {error!r}\n".encode())
        os._exit(0)
    os.close(writing)
    wrong = []
    with os.fdopen(reading) as pipe:
        for line in pipe:
            if line.startswith("fault"):
                wrong.append(line.strip())
            elif line.startswith("settled"):
                told = Told(**json.loads(line.removeprefix("settled")))
            else:
                told.hear(line.strip())
    _, status = os.waitpid(pid, 0)
    return wrong, told, os.WIFSIGNALED(status)


def faults_at_the_end(path: Path, told: Told) -> list[str]:
    """What is wrong when nobody is killed any more, and what is left of sessions that are deleted."""
    store = FileSessionStore(path)
    wrong = faults(store, told)
    for session in [info.session_id for info in store.sync.list_sessions(limit=100).sessions]:
        store.sync.delete_session(session)
    store.close()
    left = [str(each) for each in path.rglob("*") if each.is_file() and SECRET.encode() in each.read_bytes()]
    return wrong + [f"{name} holds words of sessions that were deleted" for name in left]


def main(folder: str, kills: str) -> None:
    wrong, killed, lives, turns = [], 0, 0, 0
    while killed < int(kills) and not wrong:
        told, path = Told(), Path(folder) / str(lives)
        for _ in range(LIVES_IN_A_FOLDER):  # not too many, or the lives are spent reading what was said
            found, told, was_killed = run(path, lives, told)
            wrong += [f"life {lives}: {fault}" for fault in found]
            killed += was_killed
            lives += 1
        wrong += [f"in the folder before life {lives}: {fault}" for fault in faults_at_the_end(path, told)]
        turns += sum(told.turns.values())
    sys.stdout.write(json.dumps({"killed": killed, "lives": lives, "turns": turns, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
