"""A full, read-only or broken disk at each operation of the file storage."""

import errno
import os
import re

import pytest

from antiphon.errors import StorageError
from antiphon.storage import LocalFileStorage
from antiphon.storage.base import TEMPORARY
from antiphon.testing import FailingFileSystem

ERRORS = {"full": errno.ENOSPC, "read-only": errno.EROFS, "broken": errno.EIO}


@pytest.fixture
def disk():
    return FailingFileSystem()


@pytest.fixture
def storage(disk, tmp_path):
    storage = LocalFileStorage(tmp_path / "base", filesystem=disk)
    yield storage
    storage.close()


def leftovers(folder):
    return [path.name for path in folder.rglob(f"{TEMPORARY}*")]


async def refusal(work):
    """Why a piece of work was refused; None: it was not."""
    try:
        await work
    except StorageError as error:
        return error
    return None


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("key", ["folder/key", "new/folder/key"])
async def test_a_write_that_fails_at_any_operation_is_an_error_in_its_own_words_and_keeps_what_was_there(
    disk, tmp_path, error, key
):
    old, new = b"old" * 10, b"new" * 10
    refused, after = True, 0
    while refused:
        storage = LocalFileStorage(tmp_path / str(after), filesystem=disk)
        await storage.write("folder/key", old)
        disk.fail(error, after=after)
        refused = await refusal(storage.write(key, new))
        disk.mend()
        if refused:
            assert os.strerror(error) in str(refused)
            assert repr(key) in str(refused)
            assert isinstance(refused.__cause__, OSError)
            # Whole, whichever it is: the last operation flushes a name that stands already.
            assert await storage.read(key) in ({old, new} if key == "folder/key" else {None, new})
        assert await storage.read("folder/key") in {old, new}
        assert set(await storage.list()) <= {"folder/key", key}
        await storage.write(key, b"newer")  # there is room again
        assert await storage.read(key) == b"newer"
        storage.close()
        after += 1
    assert after > (2 if error == errno.ENOSPC else 4)  # each of its operations has failed once


async def test_a_full_disk_leaves_no_half_file_behind(disk, storage, tmp_path):
    await storage.write("folder/key", b"old")
    disk.fail(errno.ENOSPC, after=1)  # the file is made, and its data does not fit
    with pytest.raises(StorageError, match=r"failed to write 'folder/key': No space left on device"):
        await storage.write("folder/key", b"x" * 100_000)
    assert disk.operations[-3:] == ["create", "write", "remove"]
    assert leftovers(tmp_path) == []
    assert await storage.read("folder/key") == b"old"
    assert await storage.list() == ["folder/key"]


async def test_a_read_only_disk_is_read_and_neither_written_nor_deleted_from(disk, storage):
    await storage.write("folder/key", b"old")
    disk.fail(errno.EROFS)
    for refused in (storage.write("folder/key", b"new"), storage.write("other", b"1"), storage.delete("folder/key")):
        with pytest.raises(StorageError, match="Read-only file system"):
            await refused
    assert await storage.read("folder/key") == b"old"
    assert await storage.list() == ["folder/key"]


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
async def test_a_removal_that_fails_can_be_done_again(disk, storage, error):
    await storage.write("folder/key", b"old")
    disk.fail(error)
    if error == errno.ENOSPC:
        await storage.delete("folder/key")  # a full disk lets go
    else:
        with pytest.raises(StorageError, match=re.escape(os.strerror(error))):
            await storage.delete("folder/key")
        disk.mend()
        assert await storage.read("folder/key") == b"old"
        await storage.delete("folder/key")
    assert await storage.list() == []
