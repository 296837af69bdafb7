"""Queues for a session across processes."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from antiphon.store import open_store

TOP = Path(__file__).parents[2]
TURNS = 4


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
async def test_three_processes_take_turns_one_at_a_time_in_the_order_of_their_tickets(scheme: str, tmp_path: Path):
    url, diary = f"{scheme}:{tmp_path / 'place'}", tmp_path / "diary"
    names = ("a", "b", "c")
    diary.touch()
    async with open_store(url) as store:
        first = await store.acquire_lease("s", owner="first")
        with ExitStack() as running:
            workers = [
                running.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-m", "tests.store.lease_workers", url, name, str(TURNS), str(diary)],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                        cwd=TOP,
                    )
                )
                for name in names
            ]
            for worker in workers:
                assert worker.stdout.readline() == "ready\n"
            for worker in workers:
                worker.stdin.write("go\n")
                worker.stdin.flush()
            assert await store.acquire_lease("s", owner="asks", wait=False) is None
            assert diary.read_text() == "", "nobody begins while the lease is held"
            await store.release_lease(first)
            for worker in workers:
                worker.communicate(timeout=50)
                assert worker.returncode == 0
        assert await store.acquire_lease("s", owner="asks", wait=False) is not None
    told = [line.split() for line in diary.read_text().splitlines()]
    begins, ends = told[::2], told[1::2]
    assert [["ends", *begin[1:]] for begin in begins] == ends, "one at a time"
    assert sorted(name for _, name, _ in begins) == sorted(names * TURNS)
    tickets = [int(ticket) for _, _, ticket in begins]
    assert tickets == sorted(set(tickets))
    assert tickets[0] > first.ticket
