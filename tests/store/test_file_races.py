"""The store in files: threads and processes that meet in one folder."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from antiphon.errors import SessionConflictError
from antiphon.store.core import StoreCore
from antiphon.store.file import FileSessionStore
from antiphon.store.file.backend import FileBackend
from antiphon.store.file.folder import digest, tenant_folder
from antiphon.store.line_store import LineStore
from antiphon.testing.store_suite.support import (
    PATIENCE_S,
    after,
    becomes,
    close,
    exact,
    finalize,
    found,
    latest_id,
    put,
    row,
    said,
    snapshot,
    words,
)
from tests.store.sqlite_life import Told, faults

TOP = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def store(folder: Path) -> Iterator[FileSessionStore]:
    store = FileSessionStore(folder)
    yield store
    store.close()


def processes(folder: Path, *works: tuple[str, str]) -> list[object]:
    """What processes did that began at the same time; each is a name and a work of `file_writers`."""
    with ExitStack() as running:
        begun = [
            running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.store.file_writers", str(folder), name, work],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=TOP,
                )
            )
            for name, work in works
        ]
        for process in begun:
            assert process.stdout.readline() == "ready\n"
        for process in begun:
            process.stdin.write("go\n")
            process.stdin.flush()
        return [json.loads(process.communicate(timeout=50)[0]) for process in begun]


def chain_of(store: FileSessionStore, session_id: str) -> list[tuple[str, str | None]]:
    """Each row and its parent, from the newest back."""
    links, at = [], store.sync.get_latest_snapshot_metadata(session_id)
    while at is not None:
        links.append((at.snapshot_id, at.parent_id))
        at = at.parent_id and store.sync.get_snapshot_metadata(at.parent_id)
    return links


def test_of_four_processes_that_race_for_each_tip_exactly_one_wins_and_none_is_lost(store, folder):
    won = processes(folder, *((name, "race") for name in ("a", "b", "c", "d")))
    acknowledged = [tuple(link) for links in won for link in links]
    assert len({parent for _, parent in acknowledged}) == len(acknowledged) == 120
    assert sorted(chain_of(store, "raced")) == sorted(acknowledged)
    tip = store.sync.get_latest_snapshot("raced")
    said_by = [text.split()[0] for text in words(tip)]
    assert {name: said_by.count(name) for name in "abcd"} == dict.fromkeys("abcd", 30)


def test_an_id_that_four_processes_want_is_in_one_session_only(store, folder):
    taken = processes(folder, *((name, "claim") for name in ("a", "b", "c", "d")))
    everyone = [each for mine in taken for each in mine]
    assert sorted(everyone) == sorted(f"wanted-{number}" for number in range(60))
    for name, mine in zip("abcd", taken, strict=True):
        for snapshot_id in mine:
            assert store.sync.get_snapshot_metadata(snapshot_id).session_id == f"of-{name}"


def test_logs_are_written_anew_under_writers_and_readers_of_other_processes_and_nothing_is_lost(store, folder):
    done = processes(folder, ("short-0", "beside"), ("long-0", "beside"), ("t", "tidy"), ("u", "tidy"))
    assert done[:2] == [list(range(40))] * 2
    assert not faults(store, Told(turns={"short-0": 39, "long-0": 39}))


async def test_eight_writers_in_one_process_lose_nothing_and_each_tip_has_one_winner(store, folder):
    other = FileSessionStore(folder)
    winners: list[tuple[str, str | None]] = []

    async def write(name: str, through: FileSessionStore) -> None:
        mine = 0
        while mine < 12:
            tip = await through.get_latest_snapshot("s")
            messages = [] if tip is None else tip.snapshot.data["messages"]
            wanted = row(
                len(messages),
                parent_id=tip and tip.snapshot_id,
                snapshot=snapshot([*messages, *said(f"{name} {mine}")]),
            )
            try:
                saved = await through.save_snapshot("", becomes(wanted), expected_tip=tip and tip.snapshot_id)
            except SessionConflictError:
                continue
            winners.append((saved.snapshot_id, wanted.parent_id))
            mine += 1

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(write(f"w{number}", (store, other)[number % 2]))
    assert len({parent for _, parent in winners}) == len(winners) == 96
    assert sorted(chain_of(store, "s")) == sorted(winners)
    texts = words(await store.get_latest_snapshot("s"))
    for number in range(8):
        assert [text for text in texts if text.startswith(f"w{number} ")] == [f"w{number} {turn}" for turn in range(12)]
    other.close()


async def test_new_rows_of_one_session_that_wait_together_share_a_write(folder):
    class Counting(FileBackend):
        sizes: list[int]

        def write(self, jobs):
            self.sizes.append(len(jobs))
            return super().write(jobs)

    backend = Counting(folder)
    backend.sizes = []
    store = LineStore(StoreCore(backend, name="test"))
    await put(store, "root", row(snapshot=snapshot(said("root"))))
    async with asyncio.TaskGroup() as group:
        saves = [
            group.create_task(put(store, f"r{turn}", row(turn, snapshot=snapshot(said("root", f"r{turn}")))))
            for turn in range(1, 41)
        ]
    assert sum(backend.sizes) >= 41
    for turn, save in enumerate(saves, 1):
        assert exact(await found(store, f"r{turn}")) == exact(save.result())
        assert words(save.result())[1:] == [f"r{turn}"]
    assert await latest_id(store, "s") == "r40"
    store.close()
    again = FileSessionStore(folder)
    assert len((await again.list_snapshots("s", limit=100)).snapshots) == 41
    again.close()


async def test_one_of_several_changes_that_share_a_write_may_fail_and_the_others_are_made(folder):
    backend = FileBackend(folder)
    store = LineStore(StoreCore(backend, name="test"))
    await put(store, "taken", row(idempotency_key="once"))
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                store.save_snapshot(
                    f"r{turn}",
                    becomes(row(turn, snapshot=snapshot(said(f"{turn}")), idempotency_key=f"key-{turn % 5}")),
                )
            )
            for turn in range(20)
            if turn < 5
        ]
    tip = await latest_id(store, "s")
    outcomes = await asyncio.gather(
        *(
            store.save_snapshot(f"q{turn}", becomes(row(50 + turn)), expected_tip=tip if turn == 3 else "elsewhere")
            for turn in range(6)
        ),
        return_exceptions=True,
    )
    assert [type(outcome).__name__ for outcome in outcomes].count("SessionConflictError") == 5
    assert [task.result().snapshot_id for task in tasks] == [f"r{turn}" for turn in range(5)]
    assert await latest_id(store, "s") == "q3"
    store.close()


async def test_who_reads_while_a_log_is_written_anew_sees_the_session_as_it_was_or_as_it_is(store, folder):
    history = said(*(f"m{number}" for number in range(400)))
    for turn in range(20):
        await put(store, f"r{turn}", row(turn, snapshot=snapshot(history[: 20 * (turn + 1)])))
    stop = threading.Event()
    seen: list[list[str]] = []

    def read() -> None:
        reader = FileSessionStore(folder)
        while not stop.is_set():
            seen.append(words(reader.sync.get_latest_snapshot("s")))
        reader.close()

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(19, 1, -1):
        await store.prune("s", keep=turn)
    await store.redact("s", lambda message: None)
    stop.set()
    await asyncio.gather(*(asyncio.to_thread(reader.join) for reader in readers))
    assert seen
    assert all(texts == [f"m{number}" for number in range(400)] for texts in seen)


async def test_a_status_that_another_process_changes_is_told_at_once(store, folder):
    await put(store, "r", row(status="pending"))
    statuses = store.on_snapshot_status_change("r")
    assert await anext(statuses) == "pending"
    code = (
        "import sys; from antiphon.store.file import FileSessionStore; from dataclasses import replace;"
        "s = FileSessionStore(sys.argv[1]); s.sync.save_snapshot('r', lambda row: replace(row, status='aborting'));"
        "s.sync.save_snapshot('r', lambda row: replace(row, status='aborted')); s.close()"
    )
    done = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(folder))
    assert "aborted" in await after(statuses, "aborted")
    assert await done.wait() == 0
    await close(statuses)


class Nothing(OSError):
    pass


def no_notices() -> None:
    raise Nothing("this system tells of nothing")


async def test_where_the_system_tells_of_nothing_looking_from_time_to_time_is_the_net(folder):
    watching = LineStore(StoreCore(FileBackend(folder, poll_interval=0.02, notices=no_notices), name="test"))
    other = FileSessionStore(folder)
    await put(other, "r", row(status="pending"))
    statuses = watching.on_snapshot_status_change("r")
    assert await anext(statuses) == "pending"
    await other.save_snapshot("r", finalize(row(5).created_at, snapshot(said("x"))))
    assert (await after(statuses, "completed"))[-1] == "completed"
    await close(statuses)
    watching.close()
    other.close()


class Heard:
    """A waker that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str | None, str | None]] = []
        self.changed = threading.Condition()

    def __call__(self, tenant: str | None, snapshot_id: str | None) -> None:
        with self.changed:
            self.calls.append((tenant, snapshot_id))
            self.changed.notify_all()

    def wait_for(self, wanted: Callable[[list[tuple[str | None, str | None]]], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: wanted(self.calls), PATIENCE_S), self.calls


def test_of_a_change_only_those_are_told_who_watch_that_row(folder):
    backend, other, heard = FileBackend(folder, poll_interval=1000), FileSessionStore(folder), Heard()
    backend.read("global", lambda view: view.row("x"))
    stop = backend.watch(heard)
    heard.wait_for(lambda calls: (None, None) in calls)  # it watches now
    other.sync.save_snapshot("r0", becomes(row(0)))
    heard.wait_for(lambda calls: ("global", None) in calls)  # a folder, or a log, that was not known
    other.sync.save_snapshot("known", becomes(row(1)))
    heard.wait_for(lambda calls: ("global", "known") in calls or calls.count(("global", None)) > 1)
    other.sync.save_snapshot("r2", becomes(row(2)))
    heard.wait_for(lambda calls: ("global", "r2") in calls)
    other.sync.prune("s", keep=1)
    before = len(heard.calls)
    heard.wait_for(lambda calls: ("global", None) in calls[before - 1 :])
    stop()
    count = len(heard.calls)
    other.sync.save_snapshot("r3", becomes(row(3)))
    assert len(heard.calls) == count
    other.close()


async def test_a_lease_that_another_store_gives_back_is_told_at_once(store, folder):
    other = FileSessionStore(folder)
    lease = await other.acquire_lease("s", owner="first")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        waiting = group.create_task(store.acquire_lease("s", owner="second"))
        while True:  # until the second ticket is drawn
            if await other.acquire_lease("s", owner="third", wait=False) is None:
                break
        await other.release_lease(lease)
    assert waiting.result().owner == "second"
    assert waiting.result().ticket > lease.ticket
    other.close()


def test_a_session_that_is_deleted_while_others_wait_for_it_is_made_anew(store, folder):
    other = FileSessionStore(folder)
    stop = threading.Event()
    lost: list[str] = []

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            saved = other.sync.save_snapshot(f"r{number}", becomes(row(number, snapshot=snapshot(said("x", "y")))))
            there = other.sync.get_snapshot(f"r{number}")
            if there is not None and exact(there) != exact(saved):
                lost.append(f"r{number}")

    writer = threading.Thread(target=write)
    writer.start()
    deleted = 0
    while deleted < 25:
        deleted += store.sync.delete_session("s")
    stop.set()
    writer.join()
    assert not lost
    store.sync.delete_session("s")
    assert not (folder / tenant_folder("global") / f"{digest('s').hex()}.log").exists()
    assert [info.session_id for info in store.sync.list_sessions().sessions] == []
    other.close()
