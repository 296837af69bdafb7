"""LocalFileStorage: what it does on a bad day."""

import asyncio
import builtins
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import StorageError
from antiphon.storage import LocalFileStorage
from antiphon.storage.base import TEMPORARY
from antiphon.testing import UnsyncedFileSystem


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[LocalFileStorage]:
    storage = LocalFileStorage(tmp_path / "base")
    yield storage
    storage.close()


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    if shutil.which("mount") is None:
        pytest.skip("this machine has no mount command")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def temporaries(folder: Path) -> builtins.list[str]:
    return [path.name for path in folder.rglob(f"{TEMPORARY}*")]


async def test_nothing_is_made_before_something_is_written(storage: LocalFileStorage) -> None:
    assert await storage.read("a") is None
    assert await storage.list() == []
    await storage.delete("a")
    assert not os.path.exists(storage.base_dir)


async def test_files_and_folders_are_for_their_owner_only(storage: LocalFileStorage, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        await storage.write("a/b/c", b"1")
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "base", *tmp_path.rglob("*")]}
    assert modes == {"base": 0o700, "a": 0o700, "b": 0o700, "c": 0o600}


def test_a_relative_folder_stays_where_it_was_when_the_process_moves(tmp_path: Path) -> None:
    code = (
        "import os; from antiphon.storage import LocalFileStorage; s = LocalFileStorage('here'); s.sync.write('k', b'1');"
        " os.makedirs('other'); os.chdir('other'); s.sync.write('l', b'2'); print(s.sync.list(), os.listdir('../here'))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert sorted(re.findall("[kl]", done.stdout)) == ["k", "k", "l", "l"]


async def test_a_full_disk_is_an_error_in_its_own_words_and_the_old_value_stays(mount: Path) -> None:
    storage = LocalFileStorage(mount / "base")
    await storage.write("folder/key", b"old")
    with pytest.raises(StorageError, match=r"failed to write 'folder/key': No space left on device") as caught:
        await storage.write("folder/key", b"x" * 200_000)
    assert isinstance(caught.value.__cause__, OSError)
    assert await storage.read("folder/key") == b"old"
    assert await storage.list() == ["folder/key"]
    assert temporaries(mount) == []
    await storage.write("folder/key", b"new")  # there is room again
    assert await storage.read("folder/key") == b"new"
    storage.close()


async def test_a_read_only_disk_can_be_read_and_refuses_in_its_own_words(mount: Path) -> None:
    storage = LocalFileStorage(mount / "base")
    await storage.write("folder/key", b"old")
    subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
    for refused in (
        storage.write("folder/key", b"new"),
        storage.write("other/key", b"1"),
        storage.delete("folder/key"),
    ):
        with pytest.raises(StorageError, match="Read-only file system"):
            await refused
    assert await storage.read("folder/key") == b"old"
    assert await storage.list() == ["folder/key"]
    storage.close()


@pytest.mark.parametrize("key", ["link", "link/key", "a/link", "a/link/key"])
async def test_a_symlink_in_the_way_is_an_error_that_names_it(
    storage: LocalFileStorage, tmp_path: Path, key: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_bytes(b"secret")
    await storage.write("a/own", b"1")
    for link in (tmp_path / "base/link", tmp_path / "base/a/link"):
        link.symlink_to(outside if key.endswith("key") else outside / "key")
    named = re.escape(str(tmp_path / "base" / key.removesuffix("/key")))
    for refused in (storage.write(key, b"new"), storage.read(key), storage.delete(key)):
        with pytest.raises(StorageError, match=f"{named}.* is a symlink"):
            await refused
    if key.endswith("/key"):
        with pytest.raises(StorageError, match=f"{named}.* is a symlink"):
            await storage.list(key)
    assert (outside / "key").read_bytes() == b"secret"
    assert [path.name for path in outside.iterdir()] == ["key"]
    assert await storage.list() == ["a/own"]


async def test_the_base_folder_itself_may_be_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "base").symlink_to(tmp_path / "real")
    storage = LocalFileStorage(tmp_path / "base")
    await storage.write("a", b"1")
    assert (tmp_path / "real/a").read_bytes() == b"1"
    storage.close()


async def test_names_that_no_file_can_have_are_a_clear_error(storage: LocalFileStorage) -> None:
    with pytest.raises(StorageError, match="longer than a file's name"):
        await storage.write("folder/" + "x" * 256, b"")
    with pytest.raises(StorageError, match="longer than a file's name"):
        await storage.read("é" * 128)
    with pytest.raises(StorageError, match="more than 100 folders"):
        await storage.write("a/" * 101 + "b", b"")
    assert not os.path.exists(storage.base_dir)
    deep = "a/" * 100 + "x" * 255
    await storage.write(deep, b"1")
    assert await storage.list() == [deep]
    await storage.delete(deep)
    assert os.listdir(storage.base_dir) == []


async def test_a_key_and_its_folder_cannot_both_be_files(storage: LocalFileStorage) -> None:
    await storage.write("a", b"1")
    with pytest.raises(StorageError, match="Not a directory"):
        await storage.write("a/b", b"2")
    await storage.write("c/d", b"3")
    with pytest.raises(StorageError, match="Is a directory"):
        await storage.write("c", b"4")
    assert await storage.list() == ["a", "c/d"]
    assert temporaries(Path(storage.base_dir)) == []


async def test_a_pipe_or_a_foreign_file_is_neither_listed_nor_waited_for(storage: LocalFileStorage) -> None:
    await storage.write("a", b"1")
    os.mkfifo(os.path.join(storage.base_dir, "pipe"))
    for foreign in (b"back\\slash", b"not-utf-8-\xff", b"line\nbreak", b".__strands_tmp_1"):
        with open(os.path.join(os.fsencode(storage.base_dir), foreign), "wb"):
            pass
    assert await storage.list() == ["a"]
    with pytest.raises(StorageError, match="not a regular file"):
        await storage.read("pipe")


async def test_listing_looks_only_into_the_folder_that_the_prefix_names(tmp_path: Path) -> None:
    files = UnsyncedFileSystem()
    storage = LocalFileStorage(tmp_path, filesystem=files)
    for number in range(20):
        await storage.write(f"session/{number}/snapshot", b"")
    files.counts.clear()
    assert await storage.list("session/7/") == ["session/7/snapshot"]
    assert files.counts["entries"] == 1
    files.counts.clear()
    assert len(await storage.list("session/1")) == 11
    assert files.counts["entries"] == 12
    storage.close()


async def test_a_write_flushes_the_file_and_its_folder_once(tmp_path: Path) -> None:
    files = UnsyncedFileSystem()
    storage = LocalFileStorage(tmp_path, filesystem=files)
    await storage.write("a/b", b"1")
    files.counts.clear()
    await storage.write("a/b", b"22")
    assert (files.counts["sync"], files.counts["sync_folder"], files.counts["write"]) == (1, 1, 1)
    assert files.bytes_written == 3
    storage.close()


WRITER = """
import os, signal, sys
from antiphon.storage import LocalFileStorage
from antiphon.filesystem import FileSystem
class Killed(FileSystem):
    def replace(self, old, new, at):
        print("about to rename", flush=True)
        if sys.argv[2] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stdin.read()
        super().replace(old, new, at)
LocalFileStorage(sys.argv[1], filesystem=Killed()).sync.write("folder/key", b"new" * 1000)
print("done", flush=True)
"""


async def test_a_writer_killed_before_the_rename_leaves_the_old_value_and_its_leftover_is_removed(
    storage: LocalFileStorage, tmp_path: Path
) -> None:
    await storage.write("folder/key", b"old")
    command = [sys.executable, "-c", WRITER, storage.base_dir, "kill"]
    for clean in ("list", "write", "delete"):
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL
        assert len(temporaries(tmp_path)) == 1
        other = LocalFileStorage(storage.base_dir)  # a new process, in effect
        assert await other.read("folder/key") == b"old"
        if clean == "list":
            assert await other.list() == ["folder/key"]
        elif clean == "write":
            await other.write("folder/key", b"old")
        else:
            await other.delete("folder/key")
            assert os.listdir(storage.base_dir) == []
        assert temporaries(tmp_path) == []
        other.close()


async def test_the_unfinished_file_of_a_living_writer_is_left_alone(storage: LocalFileStorage, tmp_path: Path) -> None:
    await storage.write("folder/key", b"old")
    command = [sys.executable, "-c", WRITER, storage.base_dir, "live"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.readline() == "about to rename\n"
        assert await storage.list() == ["folder/key"]
        await storage.write("folder/other", b"1")
        assert len(temporaries(tmp_path)) == 1
        writer.stdin.close()
        assert writer.stdout.readline() == "done\n"
    assert await storage.read("folder/key") == b"new" * 1000


async def test_a_cancelled_write_is_finished(storage: LocalFileStorage) -> None:
    task = asyncio.get_running_loop().create_task(storage.write("key", b"whole"))
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert await storage.read("key") == b"whole"


KEYS = ["a", "b/c", "b/d", "e/f/g"]


@given(st.data())
def test_what_was_acknowledged_survives_a_power_cut_at_any_operation(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    files = UnsyncedFileSystem()
    storage = LocalFileStorage(tmp_path_factory.mktemp("base") / "new" / "base", filesystem=files)
    known: dict[str, bytes | None] = {}
    chance = data.draw(st.none() | st.integers(0, 1000).map(random.Random))
    for _ in range(3):
        open_key, open_value = "", None
        files.cut_power_after(data.draw(st.integers(0, 40)))
        try:
            while True:
                open_key = data.draw(st.sampled_from(KEYS))
                open_value = data.draw(st.none() | st.binary(max_size=9).map(lambda tail: b"value" + tail))
                if open_value is None:
                    storage.sync.delete(open_key)
                else:
                    storage.sync.write(open_key, open_value)
                known[open_key] = open_value
        except StorageError:
            assert files.is_cut
        files.crash(chance)
        found = {key: storage.sync.read(key) for key in KEYS}
        # The operation under way has happened or has not; every other one is as it was acknowledged.
        assert found[open_key] in {known.get(open_key), open_value}
        known[open_key] = found[open_key]
        assert found == {key: known.get(key) for key in KEYS}
        assert storage.sync.list() == sorted(key for key in KEYS if known.get(key) is not None)
    storage.close()


def test_without_flushing_a_power_cut_takes_everything(tmp_path: Path) -> None:
    """The fault layer itself: it does lose what nobody flushed."""

    class Careless(UnsyncedFileSystem):
        def sync(self, fd: int) -> None:
            pass

        def sync_folder(self, fd: int) -> None:
            pass

    files = Careless()
    (tmp_path / "before").write_bytes(b"flushed")
    storage = LocalFileStorage(tmp_path, filesystem=files)
    storage.sync.write("before", b"lost")
    storage.sync.write("a/b", b"lost")
    files.crash()
    assert storage.sync.list() == ["before"]
    assert storage.sync.read("before") == b"flushed"
    storage.close()


def test_a_file_whose_name_was_flushed_and_whose_data_was_not_is_empty_after_a_power_cut(tmp_path: Path) -> None:
    class Hasty(UnsyncedFileSystem):
        def sync(self, fd: int) -> None:
            pass

    files = Hasty()
    storage = LocalFileStorage(tmp_path, filesystem=files)
    storage.sync.write("a", b"data")
    files.crash()
    assert storage.sync.read("a") == b""
    storage.close()
