"""Every storage of ours, and one of somebody else's, against the suite that defines a storage."""

import asyncio
import builtins
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import StorageKeyError
from antiphon.storage import InMemoryStorage, LocalFileStorage, NamespacedStorage, Storage, blocking
from antiphon.storage.base import frozen_bytes, normalize_key, normalize_prefix, on_helper_loop
from antiphon.testing import StorageContract


class TestMemory(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return InMemoryStorage()

    async def test_clearing_forgets_everything(self) -> None:
        storage = InMemoryStorage()
        await storage.write("a", b"1")
        storage.clear()
        assert await storage.list() == []


class TestFiles(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[Storage]:
        storage = LocalFileStorage(tmp_path / "base")
        yield storage
        storage.close()

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], Storage]:
        return lambda: LocalFileStorage(tmp_path / "base")


class TestNamespaceOfMemory(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return InMemoryStorage().namespace("one").namespace("two")


class TestNamespaceOfFiles(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[Storage]:
        storage = LocalFileStorage(tmp_path)
        yield storage.namespace("tenant/é")
        storage.close()

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], Storage]:
        return lambda: LocalFileStorage(tmp_path).namespace("tenant/é")


class Foreign:
    """A storage as somebody else would write it: asynchronous to the bone, and without a synchronous face."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    async def write(self, key: str, data: bytes) -> None:
        data = frozen_bytes(data)
        await asyncio.sleep(0)
        self._values[normalize_key(key)] = data

    async def read(self, key: str) -> bytes | None:
        await asyncio.sleep(0)
        return self._values.get(normalize_key(key))

    async def delete(self, key: str) -> None:
        await asyncio.sleep(0)
        self._values.pop(normalize_key(key), None)

    async def list(self, query: str) -> builtins.list[str]:
        await asyncio.sleep(0)
        prefix = normalize_prefix(query)
        return sorted(key for key in self._values if key.startswith(prefix))


class TestForeign(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return Foreign()


class TestNamespaceOfForeign(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return NamespacedStorage(Foreign(), "mine")


class BoundToALoop(Foreign):
    """Its driver may only be used from the loop that used it first."""

    loop: asyncio.AbstractEventLoop | None = None

    async def read(self, key: str) -> bytes | None:
        self.loop = self.loop or asyncio.get_running_loop()
        assert self.loop is asyncio.get_running_loop()
        return await super().read(key)


async def read(storage: Storage, key: str) -> bytes | None:
    return await storage.read(key)


async def test_a_storage_whose_driver_belongs_to_one_loop_can_be_used_from_every_loop() -> None:
    storage = BoundToALoop()
    assert blocking(storage, read, "a") is None
    assert await on_helper_loop(storage, read, "a") is None
    assert await asyncio.to_thread(lambda: asyncio.run(on_helper_loop(storage, read, "a"))) is None


segments = st.text(st.sampled_from("ab./-é𝄞 "), max_size=8)


@given(segments)
def test_a_key_has_one_spelling_and_normalising_it_twice_changes_nothing(text: str) -> None:
    try:
        key = normalize_key(text)
    except StorageKeyError:
        return
    assert normalize_key(key) == normalize_key(f"//{key.replace('/', '//')}/") == key
    assert ".." not in key.split("/")


@given(st.lists(segments, max_size=8), segments)
def test_a_list_holds_exactly_the_keys_that_begin_with_the_prefix(texts: list[str], text: str) -> None:
    storage, keys = InMemoryStorage(), set[str]()
    for each in texts:
        try:
            storage.sync.write(each, b"")
        except StorageKeyError:
            continue
        keys.add(normalize_key(each))
    try:
        prefix = normalize_prefix(text)
    except StorageKeyError:
        return
    assert storage.sync.list(text) == sorted(key for key in keys if key.startswith(prefix))


@given(st.data())
def test_files_hold_what_memory_holds(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    memory, files = InMemoryStorage(), LocalFileStorage(tmp_path_factory.mktemp("base"))
    keys = st.lists(st.sampled_from(["a", "b", ".c", "d e"]), min_size=2, max_size=2).map("/".join)
    for _ in range(data.draw(st.integers(1, 8))):
        key, verb = data.draw(keys), data.draw(st.sampled_from(["write", "delete"]))
        value = data.draw(st.binary(max_size=4))
        for storage in (memory.sync, files.sync):
            storage.write(key, value) if verb == "write" else storage.delete(key)
        prefix = data.draw(keys.map(lambda key: key[:2]) | st.just(""))
        assert memory.sync.list(prefix) == files.sync.list(prefix)
        assert memory.sync.read(key) == files.sync.read(key)
    files.close()
