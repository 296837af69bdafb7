"""Where everything stands: the store's folder, one below it for each tenant, and the files in that one.

    <directory>/antiphon-sessions.json              what this folder is, and in which version
    <directory>/<tenant>/<digest of session>.log    a session (store.file.frames)
    <directory>/<tenant>/<digest of a name>.note    a small value
    <directory>/<tenant>/index                      which session an id is in (store.file.index)
    <directory>/<tenant>/ids-.., notes-.., keys     nothing: they are locked while an id, a note or a key is changed

Names of files are digests, so that any id can be one, on file systems too that take `A` for `a`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress

import msgspec

from antiphon.errors import ContendedError, SessionStoreError, StoreSchemaError
from antiphon.filesystem import FileSystem
from antiphon.ids import new_uuid7
from antiphon.store.file.frames import VERSION

LOG = ".log"
NOTE = ".note"
TEMPORARY = ".tmp"
INDEX = "index"
KEYS = "keys"

_MARKER = "antiphon-sessions.json"
_FORMAT = "antiphon-sessions"
_SHARDS = 64
_TRIES = 1000
_KEPT = re.compile(r"[^a-z0-9._-]+")


def digest(name: str) -> bytes:
    """16 bytes that stand for a name."""
    return hashlib.sha256(name.encode()).digest()[:16]


def tenant_folder(tenant: str) -> str:
    """The name of a tenant's folder: something to recognise it by, and a digest.

    >>> tenant_folder("org-42/user-7")
    'org-42.user-7~a14dfbb87749ffc2604589eac982b785'
    """
    readable = _KEPT.sub("_", tenant.lower().replace("/", "."))[:60]
    return f"{readable}~{digest(tenant).hex()}"


def shard(snapshot_id: str) -> str:
    """The file that is locked while this id is taken."""
    return f"ids-{digest(snapshot_id)[0] % _SHARDS:02}"


def note_lock(name: str) -> str:
    """The file that is locked while this note is changed."""
    return f"notes-{digest(name)[0] % _SHARDS:02}"


@contextmanager
def translated(what: str) -> Generator[None]:
    """Errors of the system as errors of the store."""
    try:
        yield
    except OSError as error:
        told = error.strerror or str(error)
        number = errno.errorcode.get(error.errno or 0, "")
        raise SessionStoreError(f"{what} failed: {told}" + (f" [{number}]" if number else "")) from error


class _Marker(msgspec.Struct, frozen=True):
    """What a folder of sessions says of itself."""

    format: str
    version: int


_decode_marker = msgspec.json.Decoder(_Marker).decode


class Folders:
    """The store's folder.

    Args:
        path: An absolute path.
        filesystem: The file operations.

    Raises:
        SessionStoreError: If the folder cannot be made.
        StoreSchemaError: If it is of a newer version, or something else's.
    """

    def __init__(self, path: str, filesystem: FileSystem) -> None:
        self.path, self.fs = path, filesystem
        with translated(f"making the folder {path!r}"):
            filesystem.make_base(path)
            at = filesystem.open_base(path)
            try:
                self._check(at)
            finally:
                filesystem.close(at)

    def _check(self, at: int) -> None:
        try:
            data = self.fs.read(_MARKER, at)
        except FileNotFoundError:
            write_whole(self.fs, at, _MARKER, msgspec.json.encode(_Marker(_FORMAT, VERSION)))
            return
        try:
            found = _decode_marker(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreSchemaError(f"{self.path!r} is not a folder of sessions: {_MARKER}: {error}") from error
        if found.format != _FORMAT:
            raise StoreSchemaError(f"{self.path!r} is not a folder of sessions: its {_MARKER} says {found.format!r}")
        if found.version > VERSION:
            raise StoreSchemaError(
                f"{self.path!r} has version {found.version}, and this version of Antiphon reads {VERSION}: upgrade it"
            )

    @contextmanager
    def tenant(self, tenant: str, *, make: bool = False) -> Generator[Folder | None]:
        """A tenant's folder, open; None when it is not there and is not to be made."""
        fs = self.fs
        name = tenant_folder(tenant)
        above = fs.open_base(self.path)
        at = -1
        try:
            try:
                at = fs.open_folder(name, above)
            except FileNotFoundError:
                if make:
                    fs.make_folder(name, above)
                    at = fs.open_folder(name, above)
            except OSError as error:
                if fs.kind(name, above) == "symlink":
                    raise SessionStoreError(
                        f"{os.path.join(self.path, name)!r} is a symlink, and symlinks are not followed"
                    ) from error
                raise
            yield None if at < 0 else Folder(fs, os.path.join(self.path, name), at, above)
        finally:
            if at >= 0:
                fs.close(at)
            fs.close(above)


class Folder:
    """A tenant's folder while it is open.

    Attributes:
        fs: The file operations.
        at: Its descriptor.
    """

    __slots__ = ("_above", "_path", "at", "fs")

    def __init__(self, fs: FileSystem, path: str, at: int, above: int) -> None:
        self.fs, self.at = fs, at
        self._path, self._above = path, above

    def path(self, name: str) -> str:
        """For messages."""
        return os.path.join(self._path, name)

    def sync_above(self) -> None:
        """Make this folder's own name durable."""
        self.fs.sync_folder(self._above)

    def open(self, name: str, *, write: bool = False, make: bool = False) -> int | None:
        """A file's descriptor; None when it is not there and is not to be made."""
        try:
            return self.fs.open_file(name, self.at, write=write, make=make)
        except FileNotFoundError:
            if make:
                raise
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise SessionStoreError(f"{self.path(name)!r} is a symlink, and symlinks are not followed") from error
            raise

    def is_at(self, fd: int, name: str) -> bool:
        """Whether an open file is the one that has this name now."""
        try:
            now = os.stat(name, dir_fd=self.at, follow_symlinks=False)
        except FileNotFoundError:
            return False
        mine = os.fstat(fd)
        return (now.st_ino, now.st_dev) == (mine.st_ino, mine.st_dev)

    def lock(self, name: str, *, make: bool = True) -> int | None:
        """Wait for a file, and return its descriptor, which holds it until it is closed. None as in `open`.

        It is opened anew each time: a lock belongs to an open file, so threads of one process exclude one another too.
        While one waits the file may be replaced or removed; then the lock is worth nothing, and one waits for the new file.
        """
        for _ in range(_TRIES):
            fd = self.open(name, write=True, make=make)
            if fd is None:
                return None
            try:
                self.fs.lock(fd)
                if self.is_at(fd, name):
                    return fd
            except BaseException:
                self.fs.close(fd)
                raise
            self.fs.close(fd)
        raise ContendedError(f"{self.path(name)!r} was replaced {_TRIES} times while it was waited for")

    @contextmanager
    def locked(self, name: str) -> Generator[int]:
        """`lock`, for a while; the file is made when it is missing."""
        fd = self.lock(name)
        if fd is None:  # not with `make`
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        try:
            yield fd
        finally:
            self.fs.close(fd)


def write_whole(fs: FileSystem, at: int, name: str, data: bytes) -> None:
    """Put a file in the place of the one of this name, durably, in one step."""
    temporary = f"{name}.{new_uuid7()}{TEMPORARY}"
    try:
        fd = fs.create(temporary, at)
        try:
            fs.write(fd, data)
            fs.sync(fd)
            fs.replace(temporary, name, at)
        finally:
            fs.close(fd)
    except OSError:
        with suppress(OSError):
            fs.remove(temporary, at)
        raise
    fs.sync_folder(at)
