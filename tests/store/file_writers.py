"""A process that writes to a folder of sessions, beside others.

Run by name: `python -m tests.store.file_writers <folder> <name> <work>`. It waits for a line on its standard input, works,
and prints in JSON what was acknowledged.
"""

import json
import sys

from antiphon.errors import SessionConflictError
from antiphon.store.file import FileSessionStore
from antiphon.testing.store_suite.support import row, said, snapshot
from tests.store.sqlite_life import take_turn


def race(store: FileSessionStore, name: str) -> list[list[str | None]]:
    """Build on whatever is the tip, thirty times: who was first wins."""
    won = []
    while len(won) < 30:
        tip = store.sync.get_latest_snapshot("raced")
        messages = [] if tip is None else tip.snapshot.data["messages"]
        wanted = row(
            len(messages),
            "raced",
            parent_id=tip and tip.snapshot_id,
            snapshot=snapshot([*messages, *said(f"{name} {len(won)}")]),
        )
        try:
            saved = store.sync.save_snapshot("", lambda _, wanted=wanted: wanted, expected_tip=tip and tip.snapshot_id)
        except SessionConflictError:
            continue
        won.append([saved.snapshot_id, wanted.parent_id])
    return won


def claim(store: FileSessionStore, name: str) -> list[str]:
    """Take ids that others want too, each for a session of one's own; those that were new."""
    mine = []
    for number in range(60):
        was_new = []

        def take(there, was_new=was_new, number=number):
            was_new[:] = [there is None]
            return row(number, f"of-{name}") if there is None else None

        if store.sync.save_snapshot(f"wanted-{number}", take) is not None and was_new[0]:
            mine.append(f"wanted-{number}")
    return mine


def beside(store: FileSessionStore, name: str) -> list[int]:
    """Take turns in a session of one's own, while the whole folder is listed, swept and pruned by others."""
    return [take_turn(store, name) for _ in range(40)]


def tidy(store: FileSessionStore, name: str) -> int:
    """Prune and list what others write."""
    seen = 0
    for _ in range(60):
        for info in store.sync.list_sessions(limit=50).sessions:
            store.sync.prune(info.session_id, keep=3)
            tip = store.sync.get_latest_snapshot(info.session_id)
            seen += len(tip.snapshot.data["messages"])
    return seen


def main(folder: str, name: str, work: str) -> None:
    store = FileSessionStore(folder)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    done = {"race": race, "claim": claim, "beside": beside, "tidy": tidy}[work](store, name)
    store.close()
    sys.stdout.write(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
