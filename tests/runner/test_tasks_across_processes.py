"""Runs in the background that other processes watch, abort and adopt."""

import asyncio
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from antiphon import Agent, Runner
from antiphon.errors import TaskLostError
from antiphon.store import open_store
from antiphon.testing import ScriptedModel
from tests.runner.support import rows_of, texts
from tests.runner.tasking import EXPIRE_S, HEARTBEAT_S

pytestmark = pytest.mark.timeout(60)


class Place:
    """A store that processes share."""

    def __init__(self, url, schema=""):
        self.url, self.schema, self.started = url, schema, []

    def open(self):
        return open_store(self.url, **({"schema": self.schema} if self.schema else {}))

    def start(self, role, *rest):
        command = [sys.executable, str(Path(__file__).parent / "tasking.py"), self.url, self.schema, role, *rest]
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.started.append(child)
        return child

    def detach(self):
        """A process in the middle of its third turn, and the id of its run."""
        worker = self.start("detach")
        told = [worker.stdout.readline().strip() for _ in range(2)]
        told.remove("in 3")
        return worker, told[0]

    def ask(self, role, *rest):
        """What a process says that ends by itself."""
        told, errors = self.start(role, *rest).communicate(timeout=40)
        assert told, errors
        return told.split()

    def close(self):
        for child in self.started:
            child.kill()
            child.communicate()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    if request.param == "sqlite":
        place = Place(f"sqlite:{tmp_path / 'sessions.db'}")
    else:
        place = Place(request.getfixturevalue("postgres_dsn"), request.getfixturevalue("schema"))
    yield place
    place.close()


def said(numbers):
    return [text for number in numbers for text in (number, f"To {number}.")]


async def expired(store, snapshot_id):
    """Return when the run's worker is taken for dead."""
    runner = Runner(lambda: Agent(ScriptedModel([])), store=store, heartbeat=HEARTBEAT_S, expire_after=EXPIRE_S)
    with pytest.raises(TaskLostError):
        await runner.wait(snapshot_id)


async def test_one_process_works_on_a_run_one_watches_it_and_one_ends_it(place):
    worker, snapshot_id = place.detach()
    watcher = place.start("watch", snapshot_id)
    assert watcher.stdout.readline().strip() == "pending"
    # Settled by the time that `abort` returns: so the worker was told within its 2 s.
    assert place.ask("abort", snapshot_id) == ["pending", "aborted"]
    assert watcher.communicate(timeout=40)[0].strip() == "aborted"
    assert worker.stdout.readline().strip() == "over"
    async with place.open() as store:
        row = await store.get_snapshot(snapshot_id)
    assert (row.status, row.finish_reason, row.heartbeat_at) == ("aborted", "aborted", None)
    assert texts(row)[:4] == said("12")
    assert "4" not in texts(row)


async def test_a_worker_reacts_to_an_abort_and_a_watcher_to_the_end_within_a_second(place):
    count = 5
    worker = place.start("hang", str(count))
    ids = [worker.stdout.readline().strip() for _ in range(count)]
    aborts, waits = [], []
    async with place.open() as store:
        runner = Runner(lambda: Agent(ScriptedModel([])), store=store)
        for snapshot_id in ids:
            waiting = asyncio.create_task(runner.wait(snapshot_id))
            begun = time.monotonic()
            assert await runner.abort(snapshot_id) == "pending"  # it returns once the worker has settled
            aborts.append(time.monotonic() - begun)
            assert (await waiting).status == "aborted"
            waits.append(time.monotonic() - begun)
    # The median: on a busy machine one of them may be late.
    assert statistics.median(aborts) < 1, aborts
    assert statistics.median(waits) < 1, waits
    assert worker.communicate(timeout=40)[0].strip() == "over"


async def test_of_two_processes_that_adopt_one_run_one_gets_it(place):
    worker, snapshot_id = place.detach()
    worker.send_signal(signal.SIGKILL)
    async with place.open() as store:
        await expired(store, snapshot_id)
        both = [place.start("adopt", snapshot_id) for _ in range(2)]
        told = [child.communicate(timeout=40) for child in both]
        (row,) = await rows_of(store, "s")
    # Whoever was too late was told so, or found it settled: nobody took a turn twice.
    winners = [out for out, _ in told if out.split() == ["completed"]]
    losers = [errors for out, errors in told if not out]
    assert (len(winners), len(losers)) == (1, 1), told
    assert "NotResumableError" in losers[0]
    assert (row.epoch, texts(row)) == (1, said("12345"))


async def test_a_run_whose_process_was_killed_in_its_third_turn_is_adopted_with_each_turn_once(place):
    worker, snapshot_id = place.detach()
    worker.send_signal(signal.SIGKILL)
    async with place.open() as store:
        await expired(store, snapshot_id)
        assert place.ask("adopt", snapshot_id) == ["completed"]
        (row,) = await rows_of(store, "s")
    assert (row.snapshot_id, row.epoch) == (snapshot_id, 1)
    assert texts(row) == said("12345")


async def test_a_process_that_wakes_up_after_its_run_was_adopted_can_write_no_more(place):
    worker, snapshot_id = place.detach()
    worker.send_signal(signal.SIGSTOP)
    async with place.open() as store:
        await expired(store, snapshot_id)
        assert place.ask("adopt", snapshot_id) == ["completed"]
        (before,) = await rows_of(store, "s")
        worker.send_signal(signal.SIGCONT)
        told, errors = worker.communicate("go on\n", timeout=40)
        assert told.strip() == "over"
        assert "StaleEpochError" in errors
        (after,) = await rows_of(store, "s")
    assert texts(before) == texts(after) == said("12345")
    assert (after.epoch, after.updated_at, after.status) == (1, before.updated_at, "completed")
