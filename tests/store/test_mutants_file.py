"""The tests of the store in files are strict: with one mistake each it fails the test that is about it."""

import asyncio
import os
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from antiphon.errors import AntiphonError
from antiphon.filesystem import FileSystem
from antiphon.store.core import StoreCore
from antiphon.store.file import FileSessionStore
from antiphon.store.file.backend import FileBackend
from antiphon.store.file.folder import Folder, digest
from antiphon.store.line_store import LineStore
from antiphon.testing import UnsyncedFileSystem
from antiphon.testing.store_contract import SessionStoreContract
from antiphon.testing.store_suite.support import exact, row, said, snapshot
from tests.store.sqlite_life import SECRET, take_turn, without_secret
from tests.store.test_file_crashes import dies_and_loses_power_later, is_redacted_and_dies, lives_and_loses_power

# What the disk loses


class FlushesNoCommit(UnsyncedFileSystem):
    """Says that a commit is durable as soon as it is written."""

    def sync_data(self, fd: int) -> None:
        self._step("sync_data")


class FlushesNoNewLog(UnsyncedFileSystem):
    """Gives a log that was written anew its name before it is on the disk."""

    def sync(self, fd: int) -> None:
        self._step("sync")


class FlushesNoNames(UnsyncedFileSystem):
    """Makes files durable, and not their names."""

    def sync_folder(self, fd: int) -> None:
        self._step("sync_folder")


class RemovesThenRenames(UnsyncedFileSystem):
    """Puts a log in the place of another in two steps."""

    def replace(self, old: str, new: str, at: int) -> None:
        with suppress(FileNotFoundError):
            self.remove(new, at)
        super().replace(old, new, at)


class RemembersItsBoot(UnsyncedFileSystem):
    """Does not notice that the machine was started again, and believes the index."""

    def boot(self) -> str:
        return "always the same"


def found_by_power(disk: Callable[[], UnsyncedFileSystem], folder: Path) -> bool:
    """Whether some power cut shows the mistake."""
    lives: list[Callable[[Path], tuple[bool, list[str]]]] = []
    for operations in range(130):
        lives += [
            partial(lives_and_loses_power, operations=operations, chance=None, disk=disk()),
            partial(lives_and_loses_power, operations=operations, chance=random.Random(operations), disk=disk()),
            partial(dies_and_loses_power_later, operations=operations, disk=disk()),
        ]
        if operations < 24:
            lives += [
                partial(is_redacted_and_dies, operations=operations, ending=ending, disk=disk())
                for ending in ("only the process", "all", "some")
            ]
    return any(wrong(partial(live, folder / str(number))) for number, live in enumerate(lives))


def wrong(live: Callable[[], object]) -> bool:
    """Whether it finds a fault, or fails."""
    try:
        found = live()
        return bool(found[1] if isinstance(found, tuple) else found)
    except AntiphonError:
        return True


@pytest.mark.parametrize(
    "disk",
    [
        FlushesNoCommit,
        FlushesNoNewLog,
        FlushesNoNames,
        RemovesThenRenames,
        RemembersItsBoot,
    ],
)
def test_a_mistake_about_the_disk_loses_something_at_some_power_cut(disk, tmp_path):
    assert found_by_power(disk, tmp_path)


# Who meets whom


class Meeting(FileSystem):
    """Holds each writer for a moment before its commit, until another is there too."""

    def __init__(self) -> None:
        self._met = threading.Barrier(2)
        self._mending = threading.Lock()

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            with suppress(threading.BrokenBarrierError):
                self._met.wait(0.2)
            with self._mending:
                if self._met.broken:
                    self._met.reset()
        super().write_at(fd, data, offset)


class LocksNothing(Meeting):
    def lock(self, fd: int) -> None:
        pass


class Careless(Folder):
    """Does not look whether the file it has locked is still the one of that name."""

    __slots__ = ()

    def is_at(self, fd: int, name: str) -> bool:
        return True


class CarelessBackend(FileBackend):
    def __init__(self, directory: Path, **options: object) -> None:
        super().__init__(directory, **options)
        folders = self._folders
        plain = folders.tenant

        class Folders:
            path, fs = folders.path, folders.fs

            def tenant(self, tenant: str, *, make: bool = False):
                return careless(plain(tenant, make=make))

        self._folders = Folders()


class careless:  # noqa: N801 - a context manager
    def __init__(self, opening) -> None:
        self._opening = opening

    def __enter__(self) -> Folder | None:
        folder = self._opening.__enter__()
        if folder is not None:
            folder.__class__ = Careless
        return folder

    def __exit__(self, *exc_info: object) -> None:
        self._opening.__exit__(*exc_info)


def race(disk: FileSystem, folder: Path) -> list[str]:
    """What is wrong after two stores have committed to one session at the same time."""
    stores = [FileSessionStore(folder, filesystem=disk) for _ in range(2)]
    stores[0].sync.save_snapshot("root", lambda _: row(0, snapshot=snapshot(said("root"))))
    saved: dict[str, bytes] = {}

    def write(name: str, store: FileSessionStore) -> None:
        for turn in range(3):
            wanted = row(1 + turn, snapshot=snapshot(said("root", f"{name} {turn}")))
            done = store.sync.save_snapshot(f"{name}{turn}", lambda _, wanted=wanted: wanted)
            saved[f"{name}{turn}"] = exact(done)

    writers = [threading.Thread(target=write, args=(name, store)) for name, store in zip("ab", stores, strict=True)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for store in stores:
        store.close()
    reader = FileSessionStore(folder)
    try:
        return [each for each, wanted in saved.items() if exact(reader.sync.get_snapshot(each)) != wanted] + [
            f"{name}{turn} was refused" for name in "ab" for turn in range(3) if f"{name}{turn}" not in saved
        ]
    finally:
        reader.close()


def test_two_writers_that_meet_lose_nothing(tmp_path):
    assert race(Meeting(), tmp_path / "sessions") == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_without_a_lock_two_writers_that_meet_lose_something(tmp_path):
    assert wrong(lambda: race(LocksNothing(), tmp_path / "sessions"))


def delete_under(kind: type[FileBackend], folder: Path) -> bool:
    """Whether a row is there that was acknowledged while its session was deleted under the writer's hands."""

    class Waits(FileSystem):
        def __init__(self) -> None:
            self.deleted = False

        def lock(self, fd: int) -> None:
            path = os.readlink(f"/proc/self/fd/{fd}")
            if path.endswith(f"{digest('s').hex()}.log") and not self.deleted:
                self.deleted = True
                other.sync.delete_session("s")  # between opening the log and locking it
            super().lock(fd)

    other = FileSessionStore(folder)
    other.sync.save_snapshot("r0", lambda _: row(0))
    store = LineStore(StoreCore(kind(folder, filesystem=Waits()), name="test"))
    store.sync.save_snapshot("r1", lambda _: row(1))
    is_there = other.sync.get_snapshot("r1") is not None
    store.close()
    other.close()
    return is_there


def test_a_lock_on_a_file_that_lost_its_name_meanwhile_is_worth_nothing(tmp_path):
    assert delete_under(FileBackend, tmp_path / "right")
    assert not delete_under(CarelessBackend, tmp_path / "careless")


# What is left behind


class KeepsACopy(FileSystem):
    """Keeps what it puts another log in the place of."""

    def replace(self, old: str, new: str, at: int) -> None:
        with suppress(FileNotFoundError):
            os.link(new, f"{new}.old", src_dir_fd=at, dst_dir_fd=at)
        super().replace(old, new, at)


def leaves_words(disk: FileSystem, folder: Path) -> bool:
    """Whether redacted words are left in some file."""
    store = FileSessionStore(folder, filesystem=disk)
    for _ in range(7):
        take_turn(store, "s")
    store.sync.redact("s", without_secret)
    store.close()
    return any(SECRET.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_copy_of_the_old_log_is_found_by_its_words(tmp_path):
    assert not leaves_words(FileSystem(), tmp_path / "right")
    assert leaves_words(KeepsACopy(), tmp_path / "copy")


# The suite itself


class TwoWritesARow(FileSessionStore):
    """Reads, changes and writes as three steps, each of them locked."""

    async def save_snapshot(self, snapshot_id, fn, /, **options):
        there = await self.get_snapshot(snapshot_id) if snapshot_id else None
        wanted = fn(there)
        return await super().save_snapshot(snapshot_id, lambda _: wanted, **options)


class HearsNothing(FileSessionStore):
    """Has no net, and its notices come to nobody."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._core.hub._watch = lambda wake: lambda: None


async def test_a_store_that_reads_and_writes_in_three_steps_fails_the_suite(tmp_path):
    test = SessionStoreContract().test_eight_writers_of_one_row_each_land_once
    right, false = FileSessionStore(tmp_path / "right"), TwoWritesARow(tmp_path / "false")
    await test(right)
    with pytest.raises(AssertionError):
        await test(false)
    right.close()
    false.close()


async def test_a_store_that_hears_of_nobody_else_fails_the_suite(tmp_path):
    test = SessionStoreContract().test_a_change_by_the_other_is_told
    for kind in (FileSessionStore, HearsNothing):
        place = tmp_path / kind.__name__
        store, other = kind(place), FileSessionStore(place)
        if kind is FileSessionStore:
            await test(store, other)
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await test(store, other)
        store.close()
        other.close()
