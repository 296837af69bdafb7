"""Sessions in files: `Backend` over logs."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TypeVar

from antiphon.errors import SessionRowError, SessionStoreError
from antiphon.filesystem import OS, FileSystem
from antiphon.store.backend import Job, Outcome, Reading, Wake
from antiphon.store.file.folder import LOG, Folders, digest, shard, tenant_folder, translated
from antiphon.store.file.index import Index
from antiphon.store.file.noticing import Inotify, Noticer
from antiphon.store.file.transaction import Transaction
from antiphon.store.file.view import LogCache, View

T = TypeVar("T")

_log = logging.getLogger(__name__)

_MOST_TENANTS = 64


class _Tenant:
    """What is known of one tenant: by both threads, by the one that reads, and by the one that writes."""

    def __init__(self) -> None:
        self.index = Index()
        self.reads = LogCache()
        self.writes = LogCache()


class FileBackend:
    """One append-only log for each session, in a folder for each tenant (`store.file.folder` shows where).

    A commit is one write and one `fdatasync`. Its log is locked meanwhile, across processes; reading locks nothing.

    Args:
        directory: The folder; made if it is missing.
        max_chain_length: How many rows of a chain may stay; None for all.
        poll_interval: Seconds between two looks where nothing tells of changes.
        filesystem: The file operations; others only in tests.
        notices: Makes the system's notices of changes.

    Raises:
        SessionStoreError: If the folder cannot be made.
        StoreSchemaError: If it is something else's, or of a newer version.
        SessionRowError: If a number makes no sense.
    """

    blocking = True

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        max_chain_length: int | None = None,
        poll_interval: float = 2.0,
        filesystem: FileSystem = OS,
        notices: Callable[[], Inotify] = Inotify,
    ) -> None:
        if max_chain_length is not None and (type(max_chain_length) is not int or max_chain_length < 1):
            raise SessionRowError(f"max_chain_length={max_chain_length!r} is not a count of at least 1")
        if not 0 < poll_interval < 1e6:
            raise SessionRowError(f"poll_interval={poll_interval!r} is not a positive number of seconds")
        self._folders = Folders(os.path.abspath(os.fspath(directory)), filesystem)
        self._most, self._poll_interval, self._notices = max_chain_length, poll_interval, notices
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Tenant] = OrderedDict()
        self._names: dict[str, str] = {}  # tenants by their folders
        self._noticers: list[Noticer] = []

    def read(self, tenant: str, look: Callable[[Reading], T]) -> T:
        known = self._tenant(tenant)
        with (
            translated(f"reading {self._folders.path!r}"),
            self._folders.tenant(tenant) as folder,
            View(folder, known.reads, known.index) as view,
        ):
            return look(view)

    def write(self, jobs: Sequence[Job]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        for group in _groups(jobs):
            numbered = [(number, jobs[number]) for number in group]
            while numbered:
                numbered = self._carry_out(numbered, outcomes)
        return [outcomes[number] for number in range(len(jobs))]

    def watch(self, wake: Wake) -> Callable[[], None]:
        noticer = Noticer(
            self._folders.path,
            wake,
            self._names.get,
            poll_interval=self._poll_interval,
            fs=self._folders.fs,
            make=self._notices,
        )
        self._noticers.append(noticer)

        def stop() -> None:
            noticer.stop()
            self._noticers.remove(noticer)

        return stop

    def close(self) -> None:
        with self._lock:
            self._known.clear()

    def _tenant(self, name: str) -> _Tenant:
        with self._lock:
            known = self._known.pop(name, None)
            if known is None:
                known = _Tenant()
                self._names[tenant_folder(name)] = name
                while len(self._known) >= _MOST_TENANTS:
                    self._known.popitem(last=False)
            self._known[name] = known
            return known

    def _carry_out(self, jobs: list[tuple[int, Job]], outcomes: dict[int, Outcome]) -> list[tuple[int, Job]]:
        """Carry out jobs of one session with one fsync. Returns those that are to be tried again, without others."""
        tenant, session_id = jobs[0][1].tenant, jobs[0][1].session_id
        done: list[tuple[int, object]] = []
        try:
            with (
                translated(f"writing session {session_id!r}"),
                self._folders.tenant(tenant, make=True) as folder,
                ExitStack() as held,
            ):
                if folder is None:  # not with `make`
                    return []
                known = self._tenant(tenant)
                file = digest(session_id).hex() + LOG
                new = (name for _, job in jobs for name in (job.is_new, *job.also_new) if name is not None)
                shards = sorted({shard(name) for name in new})
                for name in shards:  # in one order, and before the session: so nobody waits in a circle
                    held.enter_context(folder.locked(name))
                lock = folder.lock(file, make=bool(shards))
                if lock is not None:
                    held.callback(folder.fs.close, lock)
                with Transaction(folder, known.writes, known.index, session_id, lock) as tx:
                    for number, job in jobs:
                        try:
                            value = job.work(tx)
                        except Exception as error:  # noqa: BLE001 - it belongs to the one who handed the job in
                            outcomes[number] = Outcome(error=error)
                            if tx.is_dirty:  # nothing of it may stay: begin again without it
                                return [(other, each) for other, each in jobs if other not in outcomes]
                            continue
                        if self._most is not None:
                            tx.shorten(self._most)
                        tx.end_job()
                        done.append((number, value))
                    tx.commit()
                    self._tidy(tx, session_id)
                    tx.keep_log()
                    if tx.is_empty:
                        folder.fs.remove(file, folder.at)
        except SessionStoreError as error:
            done = []
            for number, _ in jobs:
                outcomes.setdefault(number, Outcome(error=error))
        for number, value in done:
            outcomes[number] = Outcome(value)
        return []

    def _tidy(self, tx: Transaction, session_id: str) -> None:
        try:
            tx.tidy()
        except (OSError, SessionStoreError) as error:  # what was to be saved is: the log is as long as it was
            _log.warning("the log of session %r could not be written anew: %s", session_id, error)


def _groups(jobs: Sequence[Job]) -> Iterator[list[int]]:
    """Which jobs share a write: new rows of one session. Any other change stands for itself, in its place."""
    groups: list[list[int]] = []
    open_groups: dict[tuple[str, str], list[int]] = {}
    for number, job in enumerate(jobs):
        place = job.tenant, job.session_id
        group = open_groups.get(place)
        if job.is_new is None or job.scrub:
            open_groups.pop(place, None)
            groups.append([number])
        elif group is None:
            open_groups[place] = [number]
            groups.append(open_groups[place])
        else:
            group.append(number)
    return iter(groups)
