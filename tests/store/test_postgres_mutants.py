"""Backends with one mistake each, and the test that sees it."""

import asyncio
import threading

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from antiphon.ids import new_uuid7  # noqa: E402
from antiphon.store.backend import Job  # noqa: E402
from antiphon.store.core import StoreCore  # noqa: E402
from antiphon.store.line_store import LineStore  # noqa: E402
from antiphon.store.postgres.backend import PostgresBackend  # noqa: E402
from antiphon.store.postgres.view import ReadView  # noqa: E402
from antiphon.testing.store_suite.support import PATIENCE_S, becomes, row, said, snapshot  # noqa: E402

SETTINGS = {"listen_dsn": None, "poll_interval": 3600.0, "erasure": "vacuum"}


class NoLock(PostgresBackend):
    """Lets writers of one session meet."""

    def _keys(self, jobs):
        return []


class TornReads(PostgresBackend):
    """Reads each statement's own state of the database."""

    def _look(self, connection, tenant, look):
        return look(ReadView(connection, tenant, (b"BEGIN ISOLATION LEVEL READ COMMITTED", self._path)))


class Silent(PostgresBackend):
    """Tells nobody."""

    def write(self, jobs):
        self._channel = "nobody_listens"
        return super().write(jobs)


def waits_for_its_turn(make) -> bool:
    """Whether a writer waits for another of the same session."""
    first, second = make(), make()
    inside, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def hold(tx) -> None:
        inside.set()
        assert go_on.wait(PATIENCE_S)

    def run(backend, work, name) -> None:
        backend.write([Job("global", "s", work)])
        done.append(name)

    threads = [
        threading.Thread(target=run, args=(first, hold, "first")),
        threading.Thread(target=run, args=(second, lambda tx: None, "second")),
    ]
    threads[0].start()
    assert inside.wait(PATIENCE_S)
    threads[1].start()
    threads[1].join(0.5)
    waited = threads[1].is_alive()
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    first.close()
    second.close()
    return waited


def sees_one_state(make) -> bool:
    """Whether a reader sees nothing of what is committed while it reads."""
    backend, other = make(), LineStore(StoreCore(make(), name="other"))
    session, first, second = new_uuid7(), new_uuid7(), new_uuid7()
    other.sync.save_snapshot(first, becomes(row(session_id=session, snapshot=snapshot(said("one")))))

    def look(view):
        before = view.row(first)
        other.sync.save_snapshot(second, becomes(row(1, session, snapshot=snapshot(said("one", "two")))))
        assert before is not None
        return view.row(second) is None and view.length(session, before.record.spans[0].line) == 1

    same = backend.read("global", look)
    backend.close()
    other.close()
    return same


def tells_others(make) -> bool:
    """Whether another object's subscriber hears of a change."""

    async def main() -> bool:
        one, other = (LineStore(StoreCore(make(), name="one")) for _ in range(2))
        name = new_uuid7()
        await one.save_snapshot(name, becomes(row(status="pending")))
        statuses = other.on_snapshot_status_change(name)
        assert await anext(statuses) == "pending"
        try:
            async with asyncio.timeout(2):
                # Twice: what comes before the connection listens is told by its first look.
                for status in ("aborting", "aborted"):
                    await one.save_snapshot(name, becomes(row(status=status)))
                    assert await anext(statuses) == status
        except TimeoutError:
            return False
        finally:
            await statuses.aclose()
            await asyncio.to_thread(one.close)
            await asyncio.to_thread(other.close)
        return True

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("law", "mutant"), [(waits_for_its_turn, NoLock), (sees_one_state, TornReads), (tells_others, Silent)]
)
def test_a_mistake_is_seen(postgres_dsn, schema, law, mutant):
    assert law(lambda: PostgresBackend(postgres_dsn, schema=schema, **SETTINGS))
    assert not law(lambda: mutant(postgres_dsn, schema=schema, **SETTINGS))
