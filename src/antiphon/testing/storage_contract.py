"""What a storage is, as tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import cast

import pytest

from antiphon.errors import InvalidTypeError, StorageKeyError
from antiphon.storage.base import Storage, sync_storage
from antiphon.storage.namespace import NamespacedStorage, resolve_namespace

VALUES = [
    b"",
    b"\x00",
    b"a\x00b\xff\r\n",
    "grüße, 𝄞 and 🎧".encode(),
    bytes(range(256)) * 16,
]

GOOD_KEYS = [
    ("a", "a"),
    ("/a", "a"),
    ("a/", "a"),
    ("//a///b//", "a/b"),
    ("a b/c d.json", "a b/c d.json"),
    (".hidden", ".hidden"),
    ("a..b/..c", "a..b/..c"),
    ("...", "..."),
    ("grüße/𝄞", "grüße/𝄞"),
    ("a%2Fb+c&d=e?f#g", "a%2Fb+c&d=e?f#g"),
    ("CON/aux", "CON/aux"),
    ("x" * 200, "x" * 200),
]

BAD_KEYS = [
    "",
    "/",
    "///",
    "..",
    "../a",
    "a/../b",
    "a/..",
    ".",
    "./a",
    "a/./b",
    "a\\b",
    "a\x00b",
    "a\nb",
    "a\x7fb",
    "a\x85b",
    "a\u2028b",
    "a\ud800b",
    "a/.__antiphon_tmp_1",
]


class StorageContract:
    """The suite that defines a storage. Subclass it and give the fixture `storage`, a new and empty one for each test.

    It works only through the contract, and runs with pytest and pytest-asyncio in its auto mode. Override the fixture
    `reopen` where the place outlives the object::

        class TestMine(StorageContract):
            @pytest.fixture
            def storage(self, tmp_path):
                return MyStorage(tmp_path)

            @pytest.fixture
            def reopen(self, tmp_path):
                return lambda: MyStorage(tmp_path)
    """

    @pytest.fixture
    def storage(self) -> Storage:
        raise NotImplementedError("give a fixture `storage` that returns a new, empty storage")

    @pytest.fixture
    def reopen(self) -> Callable[[], Storage] | None:
        """Opens another object over the place of `storage`. None: the place is gone with the object."""
        return None

    def test_it_is_a_storage(self, storage: Storage) -> None:
        assert isinstance(storage, Storage)

    @pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
    async def test_what_was_written_is_read(self, storage: Storage, value: bytes) -> None:
        await storage.write("folder/key", value)
        read = await storage.read("folder/key")
        assert type(read) is bytes
        assert read == value

    async def test_megabytes_are_read_as_they_were_written(self, storage: Storage) -> None:
        value = bytes(range(251)) * 20_000
        await storage.write("large", value)
        assert await storage.read("large") == value

    async def test_a_write_replaces_the_value_whole(self, storage: Storage) -> None:
        await storage.write("key", b"a long first value")
        await storage.write("key", b"short")
        assert await storage.read("key") == b"short"
        assert await storage.list("") == ["key"]

    async def test_a_value_edited_after_it_was_handed_over_stays_as_it_was(self, storage: Storage) -> None:
        value = bytearray(b"before")
        await storage.write("key", cast("bytes", value))
        value[:] = b"after!"
        assert await storage.read("key") == b"before"

    async def test_what_is_not_bytes_is_refused(self, storage: Storage) -> None:
        for value in ("text", 7, None, [1]):
            with pytest.raises(InvalidTypeError):
                await storage.write("key", value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert await storage.list("") == []

    async def test_a_missing_key_reads_as_none(self, storage: Storage) -> None:
        assert await storage.read("nothing") is None
        await storage.write("folder/key", b"1")
        assert await storage.read("folder") is None
        assert await storage.read("folder/key/beyond") is None
        assert await storage.read("folder/other") is None

    async def test_deleting_removes_one_key_and_a_missing_one_is_fine(self, storage: Storage) -> None:
        await storage.delete("nothing")
        await storage.delete("no/such/folder")
        await storage.write("folder/a", b"1")
        await storage.write("folder/b", b"2")
        await storage.delete("folder")
        await storage.delete("folder/a")
        await storage.delete("folder/a")
        assert await storage.read("folder/a") is None
        assert await storage.list("") == ["folder/b"]
        await storage.delete("folder/b")
        assert await storage.list("") == []
        await storage.write("folder/a", b"3")
        assert await storage.read("folder/a") == b"3"

    async def test_keys_are_listed_whole_and_ascending_by_code_point(self, storage: Storage) -> None:
        keys = ["a/b", "a-b", "a.b", "a/B", "a/ä", "a/\uffee", "a/𝄞", "a/b0", "b", "Z", "a/b2/c", "a/b10/c", "a/b1/c"]
        for key in keys:
            if key != "a/b":  # "a/b" itself stays a file beside folders that begin like it
                await storage.write(key, b"")
        await storage.write("a/b", b"")
        assert await storage.list("") == sorted(keys)
        assert await storage.list("/") == sorted(keys)

    async def test_a_prefix_is_a_string_not_a_folder(self, storage: Storage) -> None:
        for key in ("s/1/a", "s/10/a", "s/1x", "t/1", "s1", ".x/.y"):
            await storage.write(key, b"")
        assert await storage.list("s/1") == ["s/1/a", "s/10/a", "s/1x"]
        assert await storage.list("s/1/") == ["s/1/a"]
        assert await storage.list("s") == ["s/1/a", "s/10/a", "s/1x", "s1"]
        assert await storage.list("s/") == ["s/1/a", "s/10/a", "s/1x"]
        assert await storage.list("//s//1/") == ["s/1/a"]
        assert await storage.list("s/1/a") == ["s/1/a"]
        assert await storage.list("s/1/a/") == []
        assert await storage.list("nothing/at/all") == []
        assert await storage.list(".") == [".x/.y"]
        assert await storage.list(".x/.") == [".x/.y"]

    @pytest.mark.parametrize(("key", "normal"), GOOD_KEYS, ids=range(len(GOOD_KEYS)))
    async def test_every_spelling_of_a_key_is_the_same_key(self, storage: Storage, key: str, normal: str) -> None:
        await storage.write(key, b"value")
        assert await storage.list("") == [normal]
        assert await storage.read(normal) == b"value"
        assert await storage.read(key) == b"value"
        await storage.delete(key)
        assert await storage.read(normal) is None

    @pytest.mark.parametrize("key", BAD_KEYS, ids=range(len(BAD_KEYS)))
    async def test_a_bad_key_is_refused_by_every_verb(self, storage: Storage, key: str) -> None:
        with pytest.raises(StorageKeyError):
            await storage.write(key, b"")
        with pytest.raises(StorageKeyError):
            await storage.read(key)
        with pytest.raises(StorageKeyError):
            await storage.delete(key)
        assert await storage.list("") == []

    @pytest.mark.parametrize("prefix", ["..", "../", "a/..", "a/../b", "a/./", "a\\", "a\x00", "a\n"], ids=repr)
    async def test_a_bad_prefix_is_refused(self, storage: Storage, prefix: str) -> None:
        with pytest.raises(StorageKeyError):
            await storage.list(prefix)

    async def test_keys_that_are_not_strings_are_refused(self, storage: Storage) -> None:
        for key in (b"a", None, 1):
            with pytest.raises(InvalidTypeError):
                await storage.read(key)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def test_eight_writers_leave_one_whole_value_and_lose_no_key(self, storage: Storage) -> None:
        async def writer(number: int) -> None:
            for turn in range(5):
                await storage.write("shared", bytes([number]) * (1000 + turn))
                await storage.write(f"own/{number}/{turn}", bytes([number]))
                await storage.read("shared")

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(writer(number))
        shared = await storage.read("shared")
        assert shared is not None
        assert len(set(shared)) == 1
        assert len(shared) >= 1000
        assert len(await storage.list("own/")) == 40

    async def test_writers_and_deleters_in_one_folder_do_not_disturb_each_other(
        self, storage: Storage, reopen: Callable[[], Storage] | None
    ) -> None:
        other = reopen() if reopen is not None else storage

        async def churn(storage: Storage, name: str) -> None:
            for _ in range(15):
                await storage.write(f"folder/inner/{name}", b"x")
                assert await storage.read(f"folder/inner/{name}") == b"x"
                await storage.delete(f"folder/inner/{name}")

        async with asyncio.TaskGroup() as group:
            group.create_task(churn(storage, "a"))
            group.create_task(churn(other, "b"))
        assert await storage.list("") == []

    async def test_two_objects_over_one_place_see_each_other(
        self, storage: Storage, reopen: Callable[[], Storage] | None
    ) -> None:
        if reopen is None:
            pytest.skip("the place of this storage is gone with the object")
        other = reopen()
        await storage.write("a", b"1")
        assert await other.read("a") == b"1"
        await other.write("a", b"2")
        await other.write("b/c", b"3")
        assert await storage.read("a") == b"2"
        assert await storage.list("") == ["a", "b/c"]
        await storage.delete("b/c")
        assert await other.list("") == ["a"]

    def test_one_object_serves_two_event_loops(self, storage: Storage) -> None:
        async def use(name: str) -> None:
            for turn in range(5):
                await storage.write(f"{name}/{turn}", name.encode())
                assert await storage.read(f"{name}/{turn}") == name.encode()

        asyncio.run(use("first"))
        threads = [threading.Thread(target=lambda: asyncio.run(use("second")))]
        threads.append(threading.Thread(target=lambda: asyncio.run(use("third"))))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(asyncio.run(storage.list(""))) == 15

    async def test_synchronous_code_may_use_it_inside_a_running_loop(self, storage: Storage) -> None:
        """As a constructor must, that restores a session."""
        await storage.write("a/b", b"1")
        face = sync_storage(storage)
        assert face.read("a/b") == b"1"
        assert face.read("a/c") is None
        face.write("a/c", b"2")
        assert face.list("a/") == ["a/b", "a/c"]
        face.delete("a/b")
        assert face.list("") == ["a/c"]
        assert await storage.list("") == ["a/c"]
        with pytest.raises(StorageKeyError):
            face.read("../a")

    async def test_a_namespace_is_a_storage_of_its_own(self, storage: Storage) -> None:
        view = NamespacedStorage(storage, "/tenant//one/")
        assert isinstance(view, Storage)
        await storage.write("tenant/one-more/x", b"not mine")
        await storage.write("tenant/two/x", b"not mine")
        await view.write("x", b"1")
        await view.write("/deep//er", b"2")
        assert await view.list("") == ["deep/er", "x"]
        assert await view.list("deep/") == ["deep/er"]
        assert await view.read("x") == b"1"
        assert await storage.read("tenant/one/x") == b"1"
        inner = view.namespace("deep")
        assert await inner.list("") == ["er"]
        assert sync_storage(inner).read("er") == b"2"
        await view.delete("x")
        assert await view.list("") == ["deep/er"]
        for key in ("../two/x", "..", "a/../../two/x"):
            with pytest.raises(StorageKeyError):
                await view.read(key)
            with pytest.raises(StorageKeyError):
                await view.list(key)

    async def test_a_view_that_is_namespaced_is_used_as_it_is(self, storage: Storage) -> None:
        view = NamespacedStorage(storage, "mine")
        assert resolve_namespace(view, "session") is view
        if not isinstance(storage, NamespacedStorage):
            await resolve_namespace(storage, "session").write("k", b"1")
            assert await storage.list("") == ["session/k"]
