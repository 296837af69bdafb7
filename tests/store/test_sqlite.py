"""The store in SQLite against the suite that defines a store, and what is its own."""

import asyncio
import json
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from antiphon.clock import Clock
from antiphon.errors import (
    CorruptStoreError,
    SessionConflictError,
    SessionRowError,
    SessionStoreError,
    StoreSchemaError,
)
from antiphon.store import LineStore, SessionStore, open_store
from antiphon.store.sqlite import SQLiteSessionStore
from antiphon.store.sqlite.driver import StandardConnection, StandardDriver
from antiphon.store.sqlite.lock import WriteLock
from antiphon.testing.store_contract import SessionStoreContract
from antiphon.testing.store_suite.model import StoreMachine
from antiphon.testing.store_suite.support import becomes, found, put, row, said, snapshot, words
from tests.store.sqlite_checks import a_view_is_of_one_moment, nobody_writes_in_between
from tests.store.sqlite_life import take_turn
from tests.store.sqlite_power import PowerDriver, PowerVFS

TOP = Path(__file__).parent.parent.parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


class TestSQLite(SessionStoreContract):
    @pytest.fixture
    def open_store(self, path: Path) -> Callable[[], SessionStore]:
        return lambda: SQLiteSessionStore(path)

    @pytest.fixture
    def reopen(self, open_store: Callable[[], SessionStore]) -> Callable[[], SessionStore]:
        return open_store

    @pytest.fixture
    def open_at(self, path: Path) -> Callable[[Clock], SessionStore]:
        return lambda clock: SQLiteSessionStore(path, clock=clock)


class Machine(StoreMachine):
    def open(self, place: Path) -> LineStore:
        return SQLiteSessionStore(place / "sessions.db", synchronous="OFF")


def test_any_history_reads_back_to_the_bit_in_every_row():
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def is_taken(lock: threading.RLock) -> bool:
    """Whether another thread has it."""
    free = lock.acquire(blocking=False)
    if free:
        lock.release()
    return not free


# The file


def test_a_store_is_opened_by_its_url_and_its_files_are_for_this_user_only(tmp_path):
    folder = tmp_path / "made" / "on the way"
    with closing(open_store(f"sqlite:{folder}/s.db")) as store:
        assert isinstance(store, SQLiteSessionStore)
        take_turn(store, "s")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}
    assert modes == dict.fromkeys(["s.db", "s.db-wal", "s.db-shm", "s.db-lock"], 0o600)


def test_a_url_may_be_written_with_slashes_and_no_host(tmp_path):
    with closing(open_store(f"sqlite://{tmp_path}/s.db")) as store:
        take_turn(store, "s")
    assert (tmp_path / "s.db").is_file()
    with pytest.raises(SessionRowError, match=r"names the host 's\.db': write sqlite:<path>"):
        open_store("sqlite://s.db")


def test_a_relative_path_stays_where_it_was_when_the_working_directory_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(SQLiteSessionStore("s.db")) as store:
        take_turn(store, "s")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.close()
        assert take_turn(store, "s") == 1
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("wrong", ["", ":memory:", b"bytes", "a\0b"])
def test_a_path_that_names_no_file_is_refused(wrong):
    with pytest.raises(SessionRowError, match="names no file"):
        SQLiteSessionStore(wrong)


def test_an_unknown_kind_of_waiting_for_the_disk_is_refused(path):
    with pytest.raises(SessionRowError, match="FULL, EXTRA"):
        SQLiteSessionStore(path, synchronous="full")
    assert not path.exists()


def test_a_folder_that_cannot_be_made_is_an_error_in_the_constructor(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(SessionStoreError, match="cannot be made"):
        SQLiteSessionStore(tmp_path / "file" / "s.db")


def test_a_folder_in_the_place_of_the_file_is_an_error_in_the_constructor(tmp_path):
    with pytest.raises(SessionStoreError, match="cannot be used"):
        SQLiteSessionStore(tmp_path)


def test_a_store_that_was_closed_opens_again_when_it_is_used(path):
    store = SQLiteSessionStore(path)
    take_turn(store, "s")
    store.close()
    assert take_turn(store, "s") == 1
    store.close()
    store.close()


@pytest.mark.parametrize("content", [b"certainly not a database " * 200, b"x", b"SQLite format 3\0" + b"\0" * 50])
def test_a_file_of_something_else_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises((StoreSchemaError, CorruptStoreError)):
        SQLiteSessionStore(path)
    assert path.read_bytes() == content


def test_a_database_of_something_else_is_refused_and_left_alone(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")
    content = path.read_bytes()
    with pytest.raises(StoreSchemaError, match="something else"):
        SQLiteSessionStore(path)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_database(path):
    path.touch()
    with closing(SQLiteSessionStore(path)) as store:
        assert take_turn(store, "s") == 0


def test_a_damaged_page_costs_what_is_on_it_and_the_loss_is_named(path):
    with closing(SQLiteSessionStore(path)) as store:
        for session in ("healthy", "hurt", "unharmed"):
            store.sync.save_snapshot(
                session,
                becomes(row(0, session, snapshot=snapshot(said(*(f"{session} {n} " + "x" * 900 for n in range(40)))))),
            )
    content = bytearray(path.read_bytes())
    at = content.index(b"hurt 20 ") // 4096 * 4096
    content[at : at + 4096] = b"\xff" * 4096
    path.write_bytes(content)
    with closing(SQLiteSessionStore(path)) as store:
        with pytest.raises(CorruptStoreError, match="snapshot 'hurt' of session 'hurt'"):
            store.sync.get_snapshot("hurt")
        for session in ("healthy", "unharmed"):
            assert len(words(store.sync.get_snapshot(session))) == 40
        assert store.sync.get_snapshot_metadata("hurt").session_id == "hurt"
        assert take_turn(store, "new") == 0


def test_a_lost_database_is_a_clear_error_and_the_store_works_again_when_it_is_back(path):
    with closing(SQLiteSessionStore(path)) as store:
        take_turn(store, "s")
        path.rename(path.with_suffix(".away"))
        for _ in range(2):
            with pytest.raises(SessionStoreError, match="is gone: put it back"):
                take_turn(store, "s")
            with pytest.raises(SessionStoreError, match="is gone"):
                store.sync.list_sessions()
        assert not path.exists()
        path.with_suffix(".away").rename(path)
        assert take_turn(store, "s") == 1


def test_a_database_whose_folder_was_moved_away_is_not_begun_anew(tmp_path):
    folder = tmp_path / "folder"
    with closing(SQLiteSessionStore(folder / "s.db")) as store:
        take_turn(store, "s")
        folder.rename(tmp_path / "away")
        with pytest.raises(SessionStoreError, match="is gone"):
            take_turn(store, "s")
        assert not folder.exists()
        (tmp_path / "away").rename(folder)
        assert take_turn(store, "s") == 1


def test_a_database_that_was_replaced_is_the_one_that_is_used(path, tmp_path):
    with closing(SQLiteSessionStore(tmp_path / "other.db")) as other:
        for _ in range(3):
            take_turn(other, "s")
    with closing(SQLiteSessionStore(path)) as store:
        take_turn(store, "s")
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink()
        (tmp_path / "other.db").replace(path)
        assert take_turn(store, "s") == 3


class Small(StandardDriver):
    """A disk with room for so many pages."""

    pages = 60

    def connect(self, path, patience):
        db = StandardConnection(path, patience)
        db.run(f"PRAGMA max_page_count = {self.pages}")
        return db


async def test_a_full_disk_is_a_clear_error_and_the_store_works_again_when_there_is_room(path):
    disk = Small()
    store = SQLiteSessionStore(path, driver=disk)
    await put(store, "small", row(0, snapshot=snapshot(said("small"))))
    large = row(1, snapshot=snapshot(said("x" * 400_000)))
    with pytest.raises(SessionStoreError, match="no room left"):
        await put(store, "large", large)
    assert words(await found(store, "small")) == ["small"]
    assert await store.get_snapshot("large") is None
    outcomes = await asyncio.gather(put(store, "large", large), put(store, "other", row(2)), return_exceptions=True)
    assert isinstance(outcomes[0], SessionStoreError)
    assert (await found(store, "other")).session_id == "s", "who waits beside one that fails goes on"
    disk.pages = 10_000
    store.close()
    await put(store, "large", large)
    store.close()


async def test_an_error_of_the_disk_is_told_and_the_next_save_tries_again(path):
    vfs = PowerVFS()
    store = SQLiteSessionStore(path, driver=PowerDriver(vfs))
    await put(store, "one", row(0))

    def fails(moment: str, kind: str, name: str) -> None:
        if moment == "before" and kind == "write":
            raise apsw.FullError("no space")

    vfs.hook = fails
    with pytest.raises(SessionStoreError, match="no room left"):
        await put(store, "two", row(1))
    vfs.hook = lambda *_: None
    assert await store.get_snapshot("two") is None
    await put(store, "two", row(1))
    assert (await found(store, "one")).session_id == "s"
    store.close()


async def test_a_huge_message_is_kept(path):
    store = SQLiteSessionStore(path)
    await put(store, "huge", row(0, snapshot=snapshot(said("é" * 20_000_000))))
    store.close()
    assert words(await found(store, "huge")) == ["é" * 20_000_000]
    store.close()


# The disk


@pytest.mark.parametrize(("synchronous", "syncs"), [("FULL", 1), ("NORMAL", 0)])
async def test_a_turn_waits_for_the_disk_exactly_once_or_never(path, synchronous, syncs):
    vfs = PowerVFS()
    store = SQLiteSessionStore(path, synchronous=synchronous, driver=PowerDriver(vfs, pages=0))
    take_turn(store, "s")
    vfs.counts.clear()
    for _ in range(20):
        await asyncio.to_thread(take_turn, store, "s")
    await store.get_latest_snapshot("s")
    assert {kind: count for kind, count in vfs.counts.items() if kind.startswith("sync")} == (
        {"sync db-wal": 20 * syncs} if syncs else {}
    )
    store.close()


def test_the_bytes_of_a_turn_do_not_depend_on_how_long_the_conversation_is(path):
    vfs = PowerVFS()
    store = SQLiteSessionStore(path, synchronous="OFF", driver=PowerDriver(vfs, pages=0))

    def written(turns: int) -> float:
        before = vfs.bytes_written
        for turn in range(turns):
            tip = store.sync.get_latest_snapshot("s", agent_id=None)
            messages = tip.snapshot.data["messages"] if tip else []
            wanted = row(turn, parent_id=None, snapshot=snapshot([*messages, *said("x" * 450, "y" * 450)]))
            store.sync.save_snapshot("", becomes(wanted))
        return (vfs.bytes_written - before) / turns

    def grow(turns: int) -> None:
        tip = store.sync.get_latest_snapshot("s")
        more = said(*("z" * 450 for _ in range(2 * turns)))
        store.sync.save_snapshot("", becomes(row(0, snapshot=snapshot([*tip.snapshot.data["messages"], *more]))))

    short = written(40)
    grow(3_000)
    long = written(40)
    assert long <= 1.2 * short
    assert long <= 32 * 1024
    store.close()


async def test_saves_that_wait_share_one_wait_for_the_disk(path):
    vfs = PowerVFS()
    store = SQLiteSessionStore(path, driver=PowerDriver(vfs, pages=0))
    await put(store, "first", row(0))
    vfs.counts.clear()
    gate = WriteLock(f"{path}-lock", 10)
    with gate.held():
        saves = [asyncio.create_task(put(store, "alone", row(1)))]
        while not is_taken(store._core.backend._database.lock._threads):  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0)
        saves += [asyncio.create_task(put(store, f"r{n}", row(n, f"s{n % 5}"))) for n in range(40)]
        while len(store._core._waiting) < 40:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
    await asyncio.gather(*saves)
    assert vfs.counts["sync db-wal"] == 2
    gate.close()
    store.close()


# Others


def test_nobody_writes_between_what_a_change_reads_and_what_it_writes(path):
    nobody_writes_in_between(path, StandardDriver())


def test_what_is_read_together_is_of_one_moment(path):
    a_view_is_of_one_moment(path, StandardDriver())


async def test_a_program_that_writes_without_our_lock_is_waited_for(path):
    store = SQLiteSessionStore(path)
    await put(store, "one", row(0))
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    save = asyncio.create_task(put(store, "two", row(1)))
    while not is_taken(store._core.backend._writes.lock):  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0)
    assert not save.done()
    foreign.execute("COMMIT")
    await save
    foreign.close()
    store.close()


async def test_who_is_kept_waiting_too_long_gets_a_clear_error_and_may_try_again(path):
    store = SQLiteSessionStore(path, patience=0.05)
    gate = WriteLock(f"{path}-lock", 10)
    with gate.held():
        with pytest.raises(SessionStoreError, match=r"another process has had the lock .* for 0.05 s"):
            await put(store, "one", row(0))
        assert await store.get_snapshot("one") is None, "readers wait for nobody"
    await put(store, "one", row(0))
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(SessionStoreError, match="locked"):
        await put(store, "two", row(1))
    foreign.close()
    await put(store, "two", row(1))
    gate.close()
    store.close()


def test_a_lock_that_was_given_up_does_not_stay_taken(tmp_path):
    one, two = WriteLock(str(tmp_path / "lock"), 10), WriteLock(str(tmp_path / "lock"), 0.01)
    with one.held(), pytest.raises(SessionStoreError), two.held():
        pass
    with one.held():  # the thread that waited for `two` had it for a moment, and gave it back
        pass
    with two.held(), two.held():
        pass
    one.close()
    two.close()


def test_a_lock_whose_file_was_removed_is_taken_on_the_new_file(tmp_path):
    one, two = WriteLock(str(tmp_path / "lock"), 10), WriteLock(str(tmp_path / "lock"), 10)
    with one.held():
        (tmp_path / "lock").unlink()
    with two.held():
        pass
    turns = []

    def wait() -> None:
        with one.held():
            turns.append("one")

    with two.held():
        thread = threading.Thread(target=wait)
        thread.start()
        turns.append("two")
    thread.join()
    assert turns == ["two", "one"]
    one.close()
    two.close()


def run_together(program: str, *arguments: object, processes: int) -> list[dict[str, object]]:
    """Run a program in several processes that begin at one moment; what each of them printed, in JSON."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TOP,
        )
        for number in range(processes)
    ]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=50)[0] for process in started]
    assert [process.returncode for process in started] == [0] * processes
    return [json.loads(answer) for answer in answers]


FIRST = """
import json, sys
from antiphon.store.sqlite import SQLiteSessionStore
from tests.store.sqlite_checks import a_view_is_of_one_moment, nobody_writes_in_between
from tests.store.sqlite_life import take_turn
path, number = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
store = SQLiteSessionStore(path)
print(json.dumps({"turn": take_turn(store, f"s{number}")}))
store.close()
"""


def test_several_processes_may_be_the_first_to_open_a_database(path):
    assert run_together(FIRST, path, processes=6) == [{"turn": 0}] * 6
    with closing(SQLiteSessionStore(path)) as store:
        assert len(store.sync.list_sessions().sessions) == 6


RACE = """
import json, sys
from antiphon.errors import SessionConflictError
from antiphon.store.sqlite import SQLiteSessionStore
from tests.store.sqlite_checks import a_view_is_of_one_moment, nobody_writes_in_between
from tests.store.sqlite_life import take_turn
path, turns, number = sys.argv[1], int(sys.argv[2]), sys.argv[3]
store = SQLiteSessionStore(path)
print("ready", flush=True)
sys.stdin.readline()
won, lost = [], 0
while len(won) < turns:
    try:
        won.append(take_turn(store, "s"))
    except SessionConflictError:
        lost += 1
store.close()
print(json.dumps({"won": won, "lost": lost}))
"""


def test_of_four_processes_that_build_on_one_tip_exactly_one_wins(path):
    turns = 60
    answers = run_together(RACE, path, turns, processes=4)
    assert sorted(turn for answer in answers for turn in answer["won"]) == list(range(4 * turns))
    assert sum(answer["lost"] for answer in answers) > 0
    with closing(SQLiteSessionStore(path)) as store:
        tip = store.sync.get_latest_snapshot("s")
        assert [text.partition(":")[0] for text in words(tip)] == [f"s turn {turn}" for turn in range(4 * turns)]
        while tip.parent_id is not None:
            parent = store.sync.get_snapshot(tip.parent_id)
            assert words(parent) == words(tip)[:-1]
            tip = parent
        assert len(words(tip)) == 1


async def test_of_eight_writers_in_one_process_exactly_one_wins_each_tip(path):
    stores = [SQLiteSessionStore(path) for _ in range(2)]

    def write(store: LineStore) -> list[int]:
        won = []
        while len(won) < 25:
            try:
                won.append(take_turn(store, "s"))
            except SessionConflictError:
                continue
        return won

    won = await asyncio.gather(*(asyncio.to_thread(write, stores[number % 2]) for number in range(8)))
    assert sorted(turn for turns in won for turn in turns) == list(range(200))
    texts = words(await stores[0].get_latest_snapshot("s"))
    assert [text.partition(":")[0] for text in texts] == [f"s turn {turn}" for turn in range(200)]
    for store in stores:
        store.close()


SETTLE = """
import sys
from dataclasses import replace
from antiphon.store.sqlite import SQLiteSessionStore
print("ready", flush=True)
sys.stdin.readline()
store = SQLiteSessionStore(sys.argv[1])
store.sync.save_snapshot("run", lambda there: replace(there, status="aborting"))
store.sync.save_snapshot("run", lambda there: replace(there, status="aborted"))
store.close()
print("{}")
"""


async def test_a_change_of_status_in_another_process_is_told(path):
    store = SQLiteSessionStore(path)
    await put(store, "run", row(0, status="pending"))
    told = []
    other = None
    async for status in store.on_snapshot_status_change("run"):
        told.append(status)
        if status == "pending":
            other = asyncio.create_task(asyncio.to_thread(run_together, SETTLE, path, processes=1))
        if status == "aborted":
            break
    await other
    assert told[0] == "pending"
    assert told[-1] == "aborted"
    store.close()


FORK = """
import json, os, sys
from antiphon.errors import SessionConflictError
from antiphon.store.sqlite import SQLiteSessionStore
from tests.store.sqlite_checks import a_view_is_of_one_moment, nobody_writes_in_between
from tests.store.sqlite_life import take_turn
def turn():
    while True:
        try:
            return take_turn(store, "s")
        except SessionConflictError:
            continue
store = SQLiteSessionStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
turn()
child = os.fork()
turn()
turn()
store.close()
if child == 0:
    os._exit(0)
print(json.dumps({"child": os.waitpid(child, 0)[1]}))
"""


def test_a_store_may_be_used_on_both_sides_of_a_fork(path):
    assert run_together(FORK, path, processes=1) == [{"child": 0}]
    with closing(SQLiteSessionStore(path)) as store:
        texts = words(store.sync.get_latest_snapshot("s"))
    assert [text.partition(":")[0] for text in texts] == [f"s turn {turn}" for turn in range(5)]


# Kills


@pytest.mark.timeout(150)
def test_a_process_that_is_killed_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.sqlite_kills", tmp_path, "500"],
        capture_output=True,
        text=True,
        check=False,
        timeout=140,
        cwd=TOP,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["killed"] == 500
    assert report["turns"] > 100
