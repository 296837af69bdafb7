"""The store in files: folders, files, and what stands in its way."""

import errno
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.errors import CorruptStoreError, SessionRowError, SessionStoreError, StoreSchemaError
from antiphon.filesystem import FileSystem
from antiphon.store import open_store
from antiphon.store.file import FileSessionStore
from antiphon.store.file.folder import digest, shard, tenant_folder
from antiphon.store.file.frames import HEADER, scan
from antiphon.testing.store_suite.support import exact, found, latest_id, put, row, said, snapshot, words


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def store(folder: Path) -> Iterator[FileSessionStore]:
    store = FileSessionStore(folder)
    yield store
    store.close()


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    if shutil.which("mount") is None:
        pytest.skip("this machine has no mount command")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def log_of(folder: Path, session_id: str = "s", tenant: str = "global") -> Path:
    return folder / tenant_folder(tenant) / f"{digest(session_id).hex()}.log"


async def turns(store: FileSessionStore, count: int, session_id: str = "s", first: int = 0) -> list[bytes]:
    """Rows `r0`, `r1` and so on, each with two messages more; what each of them is."""
    history = said(*(f"{session_id} {number}" for number in range(2 * first)))
    seen = []
    for turn in range(first, first + count):
        history += said(f"{session_id} {2 * turn}", f"{session_id} {2 * turn + 1}")
        parent = f"{session_id}-r{turn - 1}" if turn else None
        wanted = row(turn, session_id, parent_id=parent, snapshot=snapshot(list(history), state={"turn": turn}))
        seen.append(exact(await put(store, f"{session_id}-r{turn}", wanted)))
    return seen


async def test_files_and_folders_are_for_their_owner_only(folder):
    old = os.umask(0)
    try:
        store = FileSessionStore(folder / "deep")
        await turns(store.for_tenant("org/user"), 1)
        await turns(store, 3)
        await store.prune("s", keep=1)
        await store.acquire_lease("s", owner="me")
        store.close()
    finally:
        os.umask(old)
    for path in [folder, *folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


async def test_a_relative_folder_stays_where_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = FileSessionStore("here")
    monkeypatch.chdir("/")
    await put(store, "r", row())
    assert log_of(tmp_path / "here").is_file()
    store.close()


def test_a_folder_that_cannot_be_made_is_an_error_of_the_constructor(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionStoreError, match=r"file/below.*Not a directory") as caught:
        FileSessionStore(tmp_path / "file" / "below")
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("length", [0, -1, 1.5, True, "3"])
def test_a_chain_has_at_least_one_row(folder, length):
    with pytest.raises(SessionRowError, match="max_chain_length"):
        FileSessionStore(folder, max_chain_length=length)


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf")])
def test_a_poll_interval_is_positive(folder, interval):
    with pytest.raises(SessionRowError, match="poll_interval"):
        FileSessionStore(folder, poll_interval=interval)


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ({"format": "antiphon-sessions", "version": 2}, "version 2.*upgrade"),
        ({"format": "something", "version": 1}, "something"),
        ({"format": "antiphon-sessions"}, "version"),
        ([], "not a folder of sessions"),
    ],
)
def test_a_folder_of_something_else_or_of_a_newer_version_is_refused(folder, marker, told):
    folder.mkdir()
    (folder / "antiphon-sessions.json").write_text(json.dumps(marker))
    with pytest.raises(StoreSchemaError, match=told):
        FileSessionStore(folder)
    assert [path.name for path in folder.iterdir()] == ["antiphon-sessions.json"]


def test_a_marker_that_is_no_json_is_refused(folder):
    folder.mkdir()
    (folder / "antiphon-sessions.json").write_bytes(b"\xff\xfe")
    with pytest.raises(StoreSchemaError):
        FileSessionStore(folder)


@pytest.mark.parametrize(
    ("beginning", "told"), [(b"a diary, not a log", "something else"), (b"\xff\x00A\x02" + b"x" * 90, "version 2")]
)
async def test_a_foreign_or_newer_file_in_the_place_of_a_log_is_named_and_left_alone(store, folder, beginning, told):
    await turns(store, 1, "other")
    log_of(folder).write_bytes(beginning)
    with pytest.raises(StoreSchemaError, match=told) as caught:
        await store.get_latest_snapshot("s")
    assert str(log_of(folder)) in str(caught.value)
    with pytest.raises(StoreSchemaError, match=told):
        await put(store, "r", row())
    assert log_of(folder).read_bytes() == beginning
    assert await latest_id(store, "other") == "other-r0"


@pytest.mark.parametrize("what", ["tenant", "log", "index", "lock", "note"])
async def test_a_symlink_is_not_followed(store, folder, tmp_path, what):
    await turns(store, 1)
    await store.acquire_lease("s", owner="me")
    outside = tmp_path / "outside"
    tenant = log_of(folder).parent
    [note] = tenant.glob("*.note")
    victim = {
        "tenant": tenant,
        "log": log_of(folder),
        "index": tenant / "index",
        "lock": tenant / shard("s-new"),
        "note": note,
    }[what]
    if what == "lock":
        outside.write_bytes(b"")
        victim.unlink(missing_ok=True)
    else:
        victim.rename(outside)
    victim.symlink_to(outside)
    before = {path: path.read_bytes() for path in ([outside] if outside.is_file() else outside.rglob("*.log"))}
    with pytest.raises(SessionStoreError, match=r"symlink|symbolic"):
        if what == "note":
            await store.acquire_lease("s", owner="you", wait=False)
        else:
            await put(store, "s-new", row(7))
    assert {path: path.read_bytes() for path in before} == before


async def test_the_store_s_own_folder_may_be_behind_a_symlink(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = FileSessionStore(tmp_path / "link")
    await put(store, "r", row())
    assert log_of(tmp_path / "real").is_file()
    store.close()


async def test_a_pipe_in_the_place_of_a_log_holds_nobody(store, folder):
    await turns(store, 1, "other")
    os.mkfifo(log_of(folder))
    with pytest.raises(SessionStoreError, match="not a regular file"):
        await store.get_latest_snapshot("s")


async def test_a_full_disk_is_an_error_in_its_own_words_and_nothing_is_lost(mount):
    store = FileSessionStore(mount / "sessions")
    before = await turns(store, 3)
    big = snapshot([{"role": "user", "content": [{"text": "x" * 300_000}]}])
    for _ in range(2):
        with pytest.raises(SessionStoreError, match="No space left on device") as caught:
            await put(store, "big", row(50, snapshot=big))
        assert isinstance(caught.value.__cause__, OSError)
        with pytest.raises(SessionStoreError, match="No space left on device"):
            await put(store, "new", row(50, "another", snapshot=big))
    assert [exact(await found(store, f"s-r{turn}")) for turn in range(3)] == before
    assert await store.get_snapshot("big") is None
    assert [session.session_id for session in (await store.list_sessions()).sessions] == ["s"]
    before += await turns(store, 2, first=3)  # there is room for this
    store.close()
    again = FileSessionStore(mount / "sessions")
    assert [exact(await found(again, f"s-r{turn}")) for turn in range(5)] == before
    again.close()


async def test_a_full_disk_does_not_keep_words_from_being_erased(mount):
    store = FileSessionStore(mount / "sessions")
    await turns(store, 2)
    await turns(store, 2, "other")
    (mount / "filler").write_bytes(b"")
    with pytest.raises(OSError, match="space"), (mount / "filler").open("ab", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)
    assert await store.delete_session("s")
    assert not log_of(mount / "sessions").exists()
    assert await latest_id(store, "other") == "other-r1"
    store.close()


async def test_a_read_only_disk_can_be_read(mount):
    store = FileSessionStore(mount / "sessions")
    before = await turns(store, 2)
    store.close()
    index = log_of(mount / "sessions").parent / "index"
    for has_index in (True, False):
        if not has_index:
            subprocess.run(["mount", "-o", "remount,rw", str(mount)], check=True)
            index.unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
        again = FileSessionStore(mount / "sessions")
        assert exact(await again.get_latest_snapshot("s")) == before[1]
        assert exact(await found(again, "s-r0")) == before[0]
        assert [session.session_id for session in (await again.list_sessions()).sessions] == ["s"]
        with pytest.raises(SessionStoreError, match="Read-only file system"):
            await put(again, "r9", row(9))
        again.close()


async def test_a_folder_that_goes_away_is_an_error_and_works_again_when_it_is_back(store, folder, tmp_path):
    before = await turns(store, 2)
    folder.rename(tmp_path / "away")
    for refused in (store.get_snapshot("s-r0"), put(store, "r9", row(9)), store.list_sessions()):
        with pytest.raises(SessionStoreError, match="No such file or directory"):
            await refused
    (tmp_path / "away").rename(folder)
    assert exact(await found(store, "s-r1")) == before[1]
    await turns(store, 1, first=2)
    assert await latest_id(store, "s") == "s-r2"


async def test_a_folder_that_was_restored_from_a_backup_is_read_anew(store, folder, tmp_path):
    before = await turns(store, 2)
    shutil.copytree(folder, tmp_path / "backup")
    await turns(store, 2, first=2)
    await turns(store, 1, "later")
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)
    assert exact(await store.get_latest_snapshot("s")) == before[1]
    assert await store.get_snapshot("s-r3") is None
    assert [session.session_id for session in (await store.list_sessions()).sessions] == ["s"]
    assert await latest_id(store, "later") is None
    again = await turns(store, 1, first=2)
    assert exact(await found(store, "s-r2")) == again[0]


async def test_damage_in_the_middle_is_named_and_everything_else_can_be_read(store, folder):
    before = await turns(store, 6)
    other = await turns(store, 2, "other")
    store.close()
    path = log_of(folder)
    data = bytearray(path.read_bytes())
    at = data.index(b'"s 6"')  # of the fourth turn
    data[at : at + 3] = b"???"
    path.write_bytes(data)

    again = FileSessionStore(folder)
    [damage] = await again.find_damage()
    assert damage.path == str(path)
    assert damage.start < at < damage.stop
    assert [exact(await found(again, f"s-r{turn}")) for turn in range(3)] == before[:3]
    named = rf"{path}.*bytes {damage.start} to {damage.stop}"
    with pytest.raises(CorruptStoreError, match=named):
        await again.get_snapshot("s-r3")
    for lost in ("s-r4", "s-r5"):  # they share a message that is lost
        with pytest.raises(CorruptStoreError, match=f"{lost}.*message.* lost.*{named}"):
            await again.get_snapshot(lost)
        assert (await again.get_snapshot_metadata(lost)).snapshot_id == lost
    assert [exact(await found(again, f"other-r{turn}")) for turn in range(2)] == other
    assert [info.snapshot_id for info in (await again.list_snapshots("s")).snapshots] == [
        "s-r5",
        "s-r4",
        "s-r2",
        "s-r1",
        "s-r0",
    ]

    # The session goes on from the last row that is whole, and nothing new stands in the place of what was lost.
    history = [*said(*(f"s {number}" for number in range(6))), *said("on", "and on")]
    await put(again, "next", row(10, parent_id="s-r2", snapshot=snapshot(history)))
    assert words(await found(again, "next"))[-1] == "and on"
    with pytest.raises(CorruptStoreError):
        await again.get_snapshot("s-r5")

    # When the log is written anew the damage is still known.
    await again.prune("s", older_than=row(1).created_at)
    assert "s-r0" not in [info.snapshot_id for info in (await again.list_snapshots("s")).snapshots]
    [still] = await again.find_damage()
    assert (still.start, still.stop) == (damage.start, damage.stop)
    with pytest.raises(CorruptStoreError):
        await again.get_snapshot("s-r5")
    assert words(await found(again, "next"))[-1] == "and on"
    again.close()


async def test_a_log_whose_beginning_is_lost_still_tells_whose_it_is(store, folder):
    before = await turns(store, 4)
    store.close()
    path = log_of(folder)
    data = bytearray(path.read_bytes())
    data[:30] = b"\0" * 30
    path.write_bytes(data)
    again = FileSessionStore(folder)
    with pytest.raises(CorruptStoreError):
        await again.get_snapshot("s-r0")
    assert [info.snapshot_id for info in (await again.list_snapshots("s")).snapshots] == ["s-r3", "s-r2", "s-r1"]
    assert [session.session_id for session in (await again.list_sessions()).sessions] == ["s"]
    await put(again, "next", row(9, snapshot=snapshot(said("fresh start"))))
    assert words(await found(again, "next")) == ["fresh start"]
    assert len(before) == 4
    again.close()


async def test_any_byte_of_a_log_may_change_and_what_can_be_read_reads_as_before(store, folder):
    before = dict(zip([f"s-r{turn}" for turn in range(5)], await turns(store, 5), strict=True))
    store.close()
    path = log_of(folder)
    whole = path.read_bytes()
    last = [frame.at for frame in scan(whole, 0)][-1]
    step = max(1, len(whole) // 60)
    for at in sorted({*range(0, len(whole), step), *range(last, last + HEADER.size, 3)}):
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        again = FileSessionStore(folder)
        readable = 0
        for snapshot_id, wanted in before.items():
            try:
                there = await again.get_snapshot(snapshot_id)
            except CorruptStoreError:
                continue
            # The last commit cannot be told from one that never ended when the damage is in its header.
            in_header = last <= at < last + HEADER.size
            assert (there is None and snapshot_id == "s-r4" and in_header) or exact(there) == wanted, at
            readable += there is not None
        assert readable or at < len(whole) // 3
        again.close()


async def test_a_commit_that_never_ended_is_cut_off_by_the_next_writer(store, folder):
    before = await turns(store, 2)
    store.close()
    path = log_of(folder)
    whole = path.read_bytes()
    for torn in (b"\xff", b"\xff\x00A\x01" + b"\x10" * 40, b"\0" * 5000, whole[-200:]):
        path.write_bytes(whole + torn)
        again = FileSessionStore(folder)
        assert exact(await again.get_latest_snapshot("s")) == before[1]
        assert path.read_bytes() == whole + torn, "who only reads changes nothing"
        await turns(again, 1, first=2)
        again.close()
        third = FileSessionStore(folder)
        assert await latest_id(third, "s") == "s-r2"
        assert await third.find_damage() == []
        third.close()


async def test_what_is_written_in_the_place_of_a_commit_that_never_ended_is_what_a_tidied_log_has(folder):
    def state(number):
        return row(0, "s", snapshot=snapshot(said(f"m {number}"), state={"number": str(number) * 40_000}))

    path = log_of(folder)
    for number in range(9):
        store = FileSessionStore(folder)
        saved = exact(await put(store, "r", state(number)))
        size = path.stat().st_size
        store.close()
        again = FileSessionStore(folder)
        assert exact(await again.get_snapshot("r")) == saved
        again.close()
        with path.open("ab") as file:
            file.write(b"\xff\x00A\x01" + b"\xf0\xff\x00\x00" * 2 + b"j" * 100_000)
    assert size < 9 * 40_000, "it was written anew"


async def test_damage_in_the_last_commit_is_named_and_never_cut_off(store, folder):
    before = await turns(store, 3)
    store.close()
    path = log_of(folder)
    whole = path.read_bytes()
    last = list(scan(whole, 0))[-1]
    damaged = bytearray(whole)
    at = whole.index(b'"s 5"')
    assert last.body <= at < last.stop
    damaged[at : at + 3] = b"???"
    path.write_bytes(damaged)

    async with FileSessionStore(folder) as again:
        [damage] = await again.find_damage()
        assert (damage.path, damage.start, damage.stop) == (str(path), last.at, last.stop)
        with pytest.raises(CorruptStoreError, match=f"bytes {last.at} to {last.stop}"):
            await again.get_snapshot("s-r2")
        assert exact(await again.get_latest_snapshot("s")) == before[1]
        await put(again, "next", row(9, parent_id="s-r1", snapshot=snapshot(said("on"))))
        assert path.read_bytes().startswith(bytes(damaged)), "what may be mended by hand one day is kept"
    async with FileSessionStore(folder) as third:
        assert words(await found(third, "next")) == ["on"]
        assert [(each.start, each.stop) for each in await third.find_damage()] == [(last.at, last.stop)]


async def test_a_last_commit_of_full_length_that_was_never_written_whole_is_no_damage(store, folder):
    before = await turns(store, 3)
    store.close()
    path = log_of(folder)
    whole = path.read_bytes()
    last = list(scan(whole, 0))[-1]
    for kept in range(last.at, last.stop, 7):  # a power cut: the file has its length, and zeros at its end
        path.write_bytes(whole[:kept].ljust(len(whole), b"\0"))
        async with FileSessionStore(folder) as again:
            assert await again.find_damage() == []
            assert await again.get_snapshot("s-r2") is None
            assert exact(await again.get_latest_snapshot("s")) == before[1]
            await turns(again, 1, first=2)
            assert path.stat().st_size == pytest.approx(len(whole), abs=8), "cut off by the next writer"


async def test_the_index_is_made_anew_from_the_logs_when_it_is_lost_or_damaged(store, folder):
    before = await turns(store, 2)
    await put(store, "keyed", row(9, idempotency_key="once"))
    index = log_of(folder).parent / "index"
    whole = index.read_bytes()
    for spoilt in (None, b"", b"x" * 200, whole[:20], whole[:60] + b"\xff" + whole[61:]):
        if spoilt is None:
            index.unlink()
        else:
            index.write_bytes(spoilt)
        for looked in (store, FileSessionStore(folder)):
            assert exact(await found(looked, "s-r0")) == before[0]
            assert (await looked.get_snapshot_by_key("once")).snapshot_id == "keyed"
            assert [session.session_id for session in (await looked.list_sessions()).sessions] == ["s"]
            if looked is not store:
                looked.close()


async def test_after_a_restart_of_the_machine_the_index_is_not_believed(folder):
    class Restarted(FileSystem):
        def boot(self) -> str:
            return "another"

    store = FileSessionStore(folder)
    before = await turns(store, 3)
    store.close()
    index = log_of(folder).parent / "index"
    index.write_bytes(index.read_bytes()[:112])  # what was never flushed is gone
    again = FileSessionStore(folder, filesystem=Restarted())
    assert exact(await found(again, "s-r2")) == before[2]
    again.close()


async def test_a_damaged_note_is_named(store, folder):
    await store.acquire_lease("s", owner="me")
    [note] = log_of(folder).parent.glob("*.note")
    note.write_bytes(note.read_bytes()[:-1])
    with pytest.raises(CorruptStoreError, match=str(note)):
        await store.acquire_lease("s", owner="you", wait=False)


async def test_a_url_names_a_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    for url in (f"file:{folder}", f"file://{folder}", f"file://localhost{folder}", "file:sess%69ons"):
        store = open_store(url, prefix="org/user")
        await put(store, "r", row())
        assert log_of(folder, tenant="org/user").is_file()
        assert await store.delete_session("s")
        store.close()
    for wrong in ("file:", "file://host/there"):
        with pytest.raises(SessionRowError, match="file:"):
            open_store(wrong)


async def test_ids_and_tenants_that_differ_in_case_only_are_different(store, folder):
    for tenant in ("Org", "org"):
        for session in ("A", "a"):
            await put(store.for_tenant(tenant), f"{session}-row", row(session_id=session, owner=f"{tenant} {session}"))
    for tenant in ("Org", "org"):
        for session in ("A", "a"):
            there = await store.for_tenant(tenant).get_latest_snapshot(session)
            assert there.owner == f"{tenant} {session}"
    names = [str(path.relative_to(folder)) for path in folder.rglob("*.log")]
    assert len({name.lower() for name in names}) == len(names) == 4


def test_a_driver_s_error_keeps_its_number(folder):
    class Broken(FileSystem):
        def sync_data(self, fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = FileSessionStore(folder, filesystem=Broken())
    with pytest.raises(SessionStoreError, match=r"\[EIO\]") as caught:
        store.sync.save_snapshot("r", lambda _: row())
    assert caught.value.__cause__.errno == errno.EIO
    assert store.sync.get_snapshot("r") is None, "what could not be made durable is taken back"
    store.close()


def test_who_has_read_a_commit_that_was_taken_back_sees_what_stands_in_its_place(folder):
    reader = FileSessionStore(folder)
    seen: list[str | None] = []

    class Failing(FileSystem):
        fails = False

        def sync_data(self, fd: int) -> None:
            if self.fails:
                tip = reader.sync.get_latest_snapshot("s")
                seen.append(tip and tip.owner)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync_data(fd)

    disk = Failing()
    store = FileSessionStore(folder, filesystem=disk)
    store.sync.save_snapshot("r0", lambda _: row(0, owner="first"))
    for attempt in ("aaaa", "bbbb"):
        disk.fails = True
        with pytest.raises(SessionStoreError):
            store.sync.save_snapshot("r1", lambda _, owner=attempt: row(1, owner=owner))
        disk.fails = False
        assert reader.sync.get_latest_snapshot("s").owner == "first"
    store.sync.save_snapshot("r1", lambda _: row(1, owner="cccc"))
    store.sync.save_snapshot("r2", lambda _: row(2, owner="dddd"))
    assert seen == ["aaaa", "bbbb"]
    owners = [info.owner for info in reader.sync.list_snapshots("s").snapshots]
    assert owners == ["dddd", "cccc", "first"]
    store.close()
    reader.close()
