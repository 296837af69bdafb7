"""The store in files: what a turn costs, what stays when something is removed, and how long chains become."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import StoreSchemaError
from antiphon.filesystem import FileSystem
from antiphon.jsonable import encode_json
from antiphon.store.file import FileSessionStore
from antiphon.store.file.chains import beyond
from antiphon.store.file.folder import digest, tenant_folder
from antiphon.store.record import Record, Row
from antiphon.store.retention import protected
from antiphon.testing import UnsyncedFileSystem
from antiphon.testing.store_suite.support import exact, found, heartbeat, latest_id, put, row, said, snapshot, words
from tests.store.sqlite_life import SECRET, without_secret


class CountingFileSystem(FileSystem):
    """What was asked of the disk."""

    def __init__(self) -> None:
        self.syncs: Counter[str] = Counter()
        self.written = 0

    def sync(self, fd: int) -> None:
        self.syncs["file"] += 1

    def sync_data(self, fd: int) -> None:
        self.syncs["data"] += 1

    def sync_folder(self, fd: int) -> None:
        self.syncs["folder"] += 1

    def write(self, fd: int, data: bytes) -> None:
        self.written += len(data)
        super().write(fd, data)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        self.written += len(data)
        super().write_at(fd, data, offset)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def disk() -> CountingFileSystem:
    return CountingFileSystem()


@pytest.fixture
def store(folder: Path, disk: CountingFileSystem) -> Iterator[FileSessionStore]:
    store = FileSessionStore(folder, filesystem=disk)
    yield store
    store.close()


def log_of(folder: Path, session_id: str = "s") -> Path:
    return folder / tenant_folder("global") / f"{digest(session_id).hex()}.log"


def turn_of(turn: int) -> list[object]:
    return said(f"{turn:06}" + "q" * 494, f"{turn:06}" + "a" * 494)


def test_a_turn_costs_one_fsync_and_its_own_messages_however_long_the_session_is(store, disk, folder):
    costs, tip, words_bytes = {}, None, 0
    for turn in [*range(1, 1001), *range(9_000, 9_011), *range(9_990, 10_001)]:
        missed = 0 if tip is None else turn - 1 - len(tip.snapshot.data["messages"]) // 2
        new = [message for each in range(turn - missed, turn + 1) for message in turn_of(each)]
        # By way of what was read, so that the test itself does not compare ten thousand lists.
        listed = new if tip is None else tip.snapshot.data["messages"] + new
        parent = tip and tip.snapshot_id
        wanted = row(turn, parent_id=parent, snapshot=snapshot(listed, state={"turn": turn % 10}))
        syncs, written = disk.syncs.copy(), disk.written
        tip = store.sync.save_snapshot(f"01234567-89ab-7def-0123-{turn:012}", lambda _, wanted=wanted: wanted)
        costs[turn] = disk.written - written
        words_bytes += sum(len(encode_json(message)) for message in new)
        if turn > 2:
            assert disk.syncs - syncs == Counter(data=1), turn
        if turn == 1000:
            on_disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            assert on_disk <= 1.4 * words_bytes
    assert costs[10_000] <= 1.05 * costs[10]
    assert costs[10_000] <= 1500


async def test_ten_branches_off_an_old_turn_cost_little_more_than_their_own_words(store, disk):
    history = [message for turn in range(600) for message in turn_of(turn)]
    await put(store, "r500", row(500, snapshot=snapshot(history[:1000])))
    await put(store, "r600", row(600, parent_id="r500", snapshot=snapshot(history)))
    for number in range(10):
        written, syncs = disk.written, disk.syncs.copy()
        await put(
            store, f"b{number}", row(700 + number, parent_id="r500", snapshot=snapshot([*history[:1000], *turn_of(7)]))
        )
        assert disk.written - written <= 4096
        assert sum((disk.syncs - syncs).values()) == 1
    assert len(words(await found(store, "b9"))) == 1002
    assert len(words(await found(store, "r600"))) == 1200


async def test_a_heartbeat_costs_a_few_hundred_bytes_and_they_do_not_pile_up(store, disk, folder):
    await put(store, "old", row(0, snapshot=snapshot([message for turn in range(30) for message in turn_of(turn)])))
    wanted = row(1, parent_id="old", status="pending", heartbeat_at=row(1).created_at)
    before = exact(await put(store, "run", wanted))
    small = log_of(folder).stat().st_size
    for beat in range(1500):
        written = disk.written
        await store.save_snapshot("run", heartbeat(row(2 + beat).created_at))
        if beat % 100 == 0:
            assert disk.written - written < 700
    assert log_of(folder).stat().st_size < small + 2 * 65_536
    assert len(words(await found(store, "old"))) == 60
    after = await store.save_snapshot("run", heartbeat(row(1).created_at))
    assert exact(after) == before


async def test_redacted_and_deleted_words_are_in_no_byte_of_the_folder(store, folder):
    def holders() -> list[str]:
        return [path.name for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]

    history = said("hello", f"{SECRET}!", "large " + SECRET * 400, "bye")
    for turn in range(1, 5):
        data = snapshot(history[:turn], note=f"pin {SECRET}")
        await put(store, f"r{turn}", row(turn, parent_id=f"r{turn - 1}", snapshot=data, journal={"lines": history[:2]}))
    await put(store, "branch", row(9, parent_id="r2", snapshot=snapshot([*history[:2], *said("on")])))
    await put(store, "other", row(1, "kept", snapshot=snapshot(said("kept"))))
    assert holders() == [log_of(folder).name]

    def part(name: str, value: object) -> object:
        return value.replace(SECRET, "[gone]") if isinstance(value, str) else value

    assert await store.redact("s", without_secret, part=part)
    assert holders() == []
    assert words(await found(store, "branch")) == ["hello", "[gone]!", "on"]
    await put(store, "again", row(10, parent_id="branch", snapshot=snapshot([*history, *said("back")])))
    assert holders() == []
    assert words(await found(store, "again"))[1] == "[gone]!"

    await put(store, "late", row(11, snapshot=snapshot(said(SECRET))))
    assert holders()
    assert await store.delete_session("s")
    assert holders() == []
    assert not log_of(folder).exists()
    assert not [path.name for path in folder.rglob("*") if path.is_file() and b"branch" in path.read_bytes()]
    assert await latest_id(store, "kept") == "other"


async def test_what_is_left_of_a_log_that_was_written_anew_by_one_who_died_goes_with_the_next(folder):
    disk = UnsyncedFileSystem()
    store = FileSessionStore(folder, filesystem=disk)
    await put(store, "r", row(snapshot=snapshot(said(SECRET, "x"))))
    left = log_of(folder).with_suffix(".log.tmp")
    left.write_bytes(log_of(folder).read_bytes())
    await store.redact("s", without_secret)
    assert not left.exists()
    left.write_bytes(SECRET.encode())
    await store.delete_session("s")
    assert [path.name for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []
    store.close()


@pytest.mark.parametrize("what", ["prune", "sweep"])
async def test_what_is_pruned_or_swept_takes_no_room_any_more(store, folder, what):
    for turn in range(40):
        texts = said(*("x" * 500 + f"{turn} {number}" for number in range(4)))
        await put(store, f"r{turn}", row(turn, parent_id=f"r{turn - 1}", snapshot=snapshot(texts)))
    before = log_of(folder).stat().st_size
    if what == "prune":
        assert len((await store.prune("s", keep=1)).snapshot_ids) == 39
    else:
        await store.save_snapshot("r39", lambda there: row(39, snapshot=snapshot(said("short"))))
        assert await store.sweep("s") > 0
    assert log_of(folder).stat().st_size < before * (0.1 if what == "prune" else 1)
    assert await latest_id(store, "s") == "r39"
    assert await store.find_damage() == []


async def test_a_chain_is_kept_short_with_the_same_fsync(folder, disk):
    store = FileSessionStore(folder, max_chain_length=3, filesystem=disk)
    history = []
    for turn in range(30):
        history += said(f"q{turn}", f"a{turn}")
        syncs = disk.syncs.copy()
        await put(store, f"r{turn}", row(turn, parent_id=f"r{turn - 1}", snapshot=snapshot(list(history))))
        assert turn < 2 or disk.syncs - syncs == Counter(data=1)
    assert [info.snapshot_id for info in (await store.list_snapshots("s")).snapshots] == ["r29", "r28", "r27"]
    for turn in (27, 28, 29):
        assert words(await found(store, f"r{turn}"))[-1] == f"a{turn}"
        assert len(words(await found(store, f"r{turn}"))) == 2 * (turn + 1)
    assert await store.get_snapshot("r26") is None
    again = FileSessionStore(folder)
    assert [info.snapshot_id for info in (await again.list_snapshots("s")).snapshots] == ["r29", "r28", "r27"]
    await put(again, "r26", row(99, "elsewhere"))  # the id is free
    again.close()
    store.close()


async def test_a_chain_of_one_keeps_what_a_dead_worker_s_run_is_taken_up_from(folder):
    store = FileSessionStore(folder, max_chain_length=1)
    await put(store, "r0", row(0, snapshot=snapshot(said("a"))))
    await put(store, "r1", row(1, parent_id="r0", snapshot=snapshot(said("a", "b"))))
    assert await store.get_snapshot("r0") is None
    await put(store, "run", row(2, parent_id="r1", status="pending", heartbeat_at=row(2).created_at))
    for beat in range(3):
        await store.save_snapshot("run", heartbeat(row(3 + beat).created_at))
    assert words(await found(store, "r1")) == ["a", "b"]
    await put(store, "side", row(9, parent_id="r1", snapshot=snapshot(said("a", "c"))))
    assert await store.get_snapshot("r1") is not None, "two rows descend from it"
    store.close()


async def test_the_log_of_a_short_chain_stays_small(folder, disk):
    store = FileSessionStore(folder, max_chain_length=4, filesystem=disk)
    for turn in range(400):
        window = said(*(f"{number} " + "x" * 600 for number in range(turn, turn + 6)))
        await put(store, f"r{turn}", row(turn, parent_id=f"r{turn - 1}", snapshot=snapshot(window)))
    assert log_of(folder).stat().st_size < 2.5 * 65_536
    assert words(await found(store, "r399"))[-1].startswith("404 ")
    assert await store.find_damage() == []
    store.close()


def chain_row(number: int, parent: int, *, status: str = "completed", has_state: bool = True) -> Row:
    envelope = ("agent", "1.0", "") if has_state else None
    return Row(
        f"r{number}",
        "s",
        number,
        Record(status=status, created_at=number, parent_id=f"r{parent}", envelope=envelope),
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from(["completed", "pending", "aborting"]), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 5),
)
def test_only_distant_ancestors_go_and_none_that_is_needed(parents, most):
    rows = {
        f"r{number}": chain_row(number, parent, status=status, has_state=has_state)
        for number, (parent, status, has_state) in enumerate(parents)
    }
    start = f"r{len(rows) - 1}"
    gone = beyond(rows, start, most)
    near, at = [], start
    while at in rows and at not in near and len(near) < most:
        near.append(at)
        at = rows[at].record.parent_id
    assert not set(gone) & set(near)
    assert not set(gone) & protected(list(rows.values()))
    assert set(gone) <= set(rows)


def test_listing_twenty_of_many_sessions_reads_twenty_logs(folder, disk):
    class Opening(CountingFileSystem):
        opened = 0

        def open_file(self, name: str, at: int, *, write: bool = False, make: bool = False) -> int:
            self.opened += name.endswith(".log")
            return super().open_file(name, at, write=write, make=make)

    opening = Opening()
    store = FileSessionStore(folder, filesystem=opening)
    for number in range(300):
        wanted = row(number * 7919 % 300, f"s{number}")
        store.sync.save_snapshot(f"r{number}", lambda _, wanted=wanted: wanted)
    for cold in (True, False):
        reader = FileSessionStore(folder, filesystem=opening) if cold else reader  # noqa: F821
        opening.opened = 0
        page = reader.sync.list_sessions(limit=20)
        assert opening.opened <= (40 if cold else 20)  # once for the newest row, once for what is kept of the session
    times = [info.latest.created_at for info in page.sessions]
    assert times == [row(second).created_at for second in range(299, 279, -1)]
    everyone, cursor = [], None
    while True:
        page = reader.sync.list_sessions(limit=37, cursor=cursor)
        everyone += [info.session_id for info in page.sessions]
        cursor = page.cursor
        if cursor is None:
            break
    assert len(set(everyone)) == len(everyone) == 300
    # The newest row goes back in time: the index knows only that it was not later.
    store.sync.save_snapshot("r1", lambda there: row(-5, "s1"))
    assert reader.sync.list_sessions(limit=300).sessions[-1].session_id == "s1"
    for number in range(0, 300, 2):
        assert store.sync.delete_session(f"s{number}")
    assert len(reader.sync.list_sessions(limit=300).sessions) == 150
    reader.close()
    store.close()


async def test_the_index_forgets_sessions_that_are_gone(folder, disk):
    store = FileSessionStore(folder, filesystem=disk)
    await put(store, "stays", row(0, "stays", idempotency_key="stays"))
    index = log_of(folder).parent / "index"
    sizes = []
    for number in range(600):
        await put(store, f"r{number}", row(number, f"s{number}"))
        await store.delete_session(f"s{number}")
        sizes.append(index.stat().st_size)
    assert max(sizes) < 56 * 900
    assert sizes[-1] < max(sizes)
    other = FileSessionStore(folder)
    for looked in (store, other):
        assert (await looked.get_snapshot_by_key("stays")).snapshot_id == "stays"
        assert [info.session_id for info in (await looked.list_sessions()).sessions] == ["stays"]
    other.close()
    store.close()


async def test_no_descriptor_stays_open(folder, disk):
    store = FileSessionStore(folder, filesystem=disk)
    for number in range(70):
        await put(store, f"r{number}", row(number, f"s{number}"))
    await store.list_sessions(limit=70)
    log_of(folder, "s3").write_bytes(b"something else")
    with pytest.raises(StoreSchemaError):
        await store.get_latest_snapshot("s3")
    with pytest.raises(StoreSchemaError):
        await put(store, "again", row(0, "s3"))
    open_files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]
    assert [path for path in open_files if str(folder) in path] == []
    store.close()


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")
