"""The storage that fails on demand."""

import asyncio

import pytest

from antiphon.errors import StorageError
from antiphon.storage import InMemoryStorage, Storage
from antiphon.testing import FaultStorage


@pytest.fixture
def disk():
    return InMemoryStorage()


async def test_without_faults_it_is_the_storage_within(disk):
    storage = FaultStorage(disk)
    assert isinstance(storage, Storage)
    await storage.write("a/b", b"1")
    assert await storage.read("a/b") == b"1"
    assert await storage.list("a/") == ["a/b"]
    assert await storage.namespace("a").read("b") == b"1"
    await storage.delete("a/b")
    assert disk.sync.list() == []
    assert [operation.verb for operation in storage.operations] == ["write", "read", "list", "read", "delete"]
    assert [operation.size for operation in storage.written()] == [1]
    assert storage.changes == 2


@pytest.mark.parametrize(("cut", "kept"), [("before", ["a"]), ("after", ["a", "b"])])
async def test_the_power_goes_off_before_or_after_a_change_and_stays_off(cut, kept, disk):
    storage = FaultStorage(disk, cut_at=2, cut=cut)
    await storage.write("a", b"1")
    with pytest.raises(StorageError, match="power"):
        await storage.write("b", b"2")
    for refused in (storage.write("c", b"3"), storage.read("a"), storage.delete("a"), storage.list("")):
        with pytest.raises(StorageError, match="power"):
            await refused
    assert disk.sync.list() == kept


async def test_it_fails_as_often_as_told_on_the_keys_it_was_told(disk):
    storage = FaultStorage(disk)
    storage.fail(2, key="b")
    await storage.write("a", b"1")
    for _ in range(2):
        with pytest.raises(StorageError):
            await storage.write("a/b", b"2")
    await storage.write("c/b", b"3")
    assert disk.sync.list() == ["a", "c/b"]


async def test_it_can_fail_after_the_deed_with_any_error(disk):
    storage = FaultStorage(disk)
    storage.fail(when="after", error=ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        await storage.write("a", b"1")
    assert disk.sync.list() == ["a"]
    storage.mend()
    await storage.delete("a")


async def test_reads_and_lists_fail_when_told(disk):
    storage = FaultStorage(disk)
    storage.fail(verbs=["read", "list"])
    with pytest.raises(StorageError):
        await storage.read("a")
    with pytest.raises(StorageError):
        await storage.list("")
    await storage.write("a", b"1")


async def test_held_operations_wait_until_they_are_released(disk):
    storage = FaultStorage(disk)
    gate = storage.hold()
    writing = asyncio.get_running_loop().create_task(storage.write("a", b"1"))
    await gate.reached()
    assert disk.sync.list() == []
    gate.release()
    await writing
    assert disk.sync.list() == ["a"]


async def test_mending_lets_everything_go(disk):
    storage = FaultStorage(disk)
    gate = storage.hold()
    writing = asyncio.get_running_loop().create_task(storage.write("a", b"1"))
    await gate.reached()
    storage.mend()
    await writing


async def test_power_that_is_cut_while_an_operation_waits_is_cut_for_it_too(disk):
    storage = FaultStorage(disk)
    gate = storage.hold()
    writing = asyncio.get_running_loop().create_task(storage.write("a", b"1"))
    await gate.reached()
    storage.cut_power()
    gate.release()
    with pytest.raises(StorageError, match="power"):
        await writing
    assert disk.sync.list() == []
