"""Forks child after child from a warm parent and kills each at another moment; prints what was found wrong.

Run by name, since it must have no threads: `python -m tests.store.sqlite_kills <folder> <kills>`.
"""

import json
import logging
import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from antiphon.store.sqlite import SQLiteSessionStore
from tests.store.sqlite_life import SECRET, Told, faults, live, settle
from tests.store.sqlite_power import PowerDriver, PowerVFS

OPERATIONS = 110
"""About how many operations on the disk one life has."""


def kill_at(operation: int, moment_wanted: str) -> Callable[[str, str, str], None]:
    """A hook that ends this process, as a power switch would, at one operation on the disk."""
    left = operation

    def hook(moment: str, kind: str, name: str) -> None:
        nonlocal left
        if moment == moment_wanted:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def child(path: Path, number: int, told: Told, say: Callable[[str], None], by_operation: bool) -> None:
    """Look whether all is well, and live on until the kill."""
    logging.disable()
    vfs = PowerVFS(kill_at(number // 2 % OPERATIONS, ("before", "after")[number % 2]) if by_operation else None)
    driver = PowerDriver(vfs, pages=40) if by_operation else None
    store = SQLiteSessionStore(path, driver=driver)
    for fault in faults(store, told):
        say(f"fault {fault}")
    say(f"settled {json.dumps(asdict(settle(store, told)))}")
    live(store, number, say, turns=2)
    store.close()


def run(path: Path, number: int, told: Told, chance: random.Random) -> tuple[list[str], Told, bool]:
    """One life. What was wrong at its beginning, what is acknowledged at its end, and whether it was killed."""
    by_operation = number % 4 != 3
    # Lives of the standard driver are killed from outside, when so much was heard of them.
    most = 1_000 if by_operation else chance.randrange(14)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            child(path, number, told, lambda line: os.write(writing, f"{line}\n".encode()), by_operation)
        except BaseException as error:  # noqa: BLE001 - told to the parent
            os.write(writing, f"fault {error!r}\n".encode())
        os._exit(0)
    os.close(writing)
    wrong = []
    with os.fdopen(reading) as pipe:
        for heard, line in enumerate(pipe):
            if line.startswith("fault"):
                wrong.append(line.strip())
            elif line.startswith("settled"):
                told = Told(**json.loads(line.removeprefix("settled")))
            else:
                told.hear(line.strip())
            if heard == most:
                os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return wrong, told, os.WIFSIGNALED(status)


def main(folder: str, kills: str) -> None:
    chance, told, path = random.Random(7), Told(), Path(folder) / "s.db"
    wrong, killed, lives = [], 0, 0
    while killed < int(kills) and not wrong:
        found, told, was_killed = run(path, lives, told, chance)
        wrong += [f"life {lives}: {fault}" for fault in found]
        killed += was_killed
        lives += 1
    store = SQLiteSessionStore(path)
    wrong += [f"at the end: {fault}" for fault in faults(store, told)]
    sessions = [info.session_id for info in store.sync.list_sessions(limit=100).sessions]
    for session in sessions:
        store.sync.delete_session(session)
    store.close()
    left = [each.name for each in Path(folder).iterdir() if SECRET.encode() in each.read_bytes()]
    wrong += [f"{name} holds words of sessions that were deleted" for name in left]
    sys.stdout.write(json.dumps({"killed": killed, "lives": lives, "turns": sum(told.turns.values()), "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
