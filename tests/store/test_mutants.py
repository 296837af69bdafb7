"""The suite is strict: stores with one mistake each fail it, and the mistake's own test is the one that fails."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from antiphon.errors import MovedError
from antiphon.store import InMemorySessionStore, LineStore, SessionStore
from antiphon.store.backend import SessionMark
from antiphon.store.core import StoreCore
from antiphon.store.memory import MemoryBackend
from antiphon.testing.store_contract import SessionStoreContract
from antiphon.testing.store_suite.support import becomes


class LastWriterWins(InMemorySessionStore):
    """Reads, changes and writes as three steps."""

    async def save_snapshot(self, snapshot_id, fn, /, **options):
        there = await self.get_snapshot(snapshot_id) if snapshot_id else None
        await asyncio.sleep(0)
        return await super().save_snapshot(snapshot_id, becomes(fn(there)), **options)


class NoTips(InMemorySessionStore):
    """Does not look at the tip."""

    async def save_snapshot(self, snapshot_id, fn, /, **options):
        return await super().save_snapshot(snapshot_id, fn)


class Stamping(InMemorySessionStore):
    """Knows better than the caller when a row was updated."""

    async def save_snapshot(self, snapshot_id, fn, /, **options):
        def stamped(there):
            wanted = fn(there)
            return wanted and replace(wanted, updated_at=wanted.updated_at or wanted.created_at)

        return await super().save_snapshot(snapshot_id, stamped, **options)


class Inferring(InMemorySessionStore):
    """Takes a missing session from the parent."""

    async def save_snapshot(self, snapshot_id, fn, /, **options):
        def inferred(there):
            wanted = fn(there)
            if wanted is None or wanted.session_id or there is not None or wanted.parent_id is None:
                return wanted
            return replace(wanted, session_id=self.sync.get_snapshot(wanted.parent_id).session_id)

        return await super().save_snapshot(snapshot_id, inferred, **options)


class Sharing(InMemorySessionStore):
    """Hands out what it keeps."""

    def __init__(self):
        super().__init__()
        self.kept = {}

    async def save_snapshot(self, snapshot_id, fn, /, **options):
        saved = await super().save_snapshot(snapshot_id, fn, **options)
        self.kept[snapshot_id] = saved
        return saved

    async def get_snapshot(self, snapshot_id, /):
        return self.kept.get(snapshot_id)


class OneTenant(InMemorySessionStore):
    """Gives everybody the same rows."""

    def for_tenant(self, tenant):
        return self


def over(change: Callable[[type], None]) -> Callable[[], SessionStore]:
    """A store over a backend whose tenants are of a changed class."""

    def make() -> SessionStore:
        class Backend(MemoryBackend):
            def _tenant(self, name):
                if name not in self._tenants:
                    plain = type(super()._tenant(name))
                    changed = type("Changed", (plain,), {})
                    change(changed)
                    self._tenants[name] = changed()
                return self._tenants[name]

        return LineStore(StoreCore(Backend(), name="mutant"))

    return make


def smallest_id_on_ties(tenant):
    def latest(self, session_id, agent_id):
        rows = self.rows(session_id)
        newest = max((row.record.created_at for row in rows), default=None)
        tied = [row for row in rows if row.record.created_at == newest]
        return min(tied, key=lambda row: row.snapshot_id, default=None)

    tenant.latest = latest


def appends_over_what_is_there(tenant):
    plain = tenant.append
    tenant.append = lambda self, session_id, line, at, bodies: plain(self, session_id, line, max(0, at - 1), bodies)


def keeps_no_blobs(tenant):
    tenant.keep_blobs = lambda self, session_id, addresses: self._sessions[session_id].blobs.clear()


def forgets_masks(tenant):
    tenant.put_masks = lambda self, session_id, masks: None


def counts_no_redactions(tenant):
    plain = tenant.put_mark
    tenant.put_mark = lambda self, session_id, mark: plain(self, session_id, SessionMark(0, mark.salt))


def sweeps_too_much(tenant):
    plain = tenant.keep_messages

    def keep_messages(self, session_id, kept):
        return plain(self, session_id, {line: parts[-1:] for line, parts in kept.items() if parts[-1][0]})

    tenant.keep_messages = keep_messages


def loses_keys(tenant):
    tenant.keyed = lambda self, key: None


def always_moved(tenant):
    def put_row(self, row):
        raise MovedError("again")

    tenant.put_row = put_row


MUTANTS = [
    (LastWriterWins, "test_eight_writers_of_one_row_each_land_once"),
    (NoTips, "test_exactly_one_of_eight_writers_wins_a_tip"),
    (NoTips, "test_a_tip_that_moved_is_a_conflict_and_nothing_is_written"),
    (Stamping, "test_a_rewrite_replaces_the_row_whole"),
    (Inferring, "test_a_new_row_without_a_session_is_refused_and_nothing_is_inferred"),
    (Sharing, "test_nothing_that_a_caller_holds_is_what_is_stored"),
    (over(smallest_id_on_ties), "test_of_two_at_one_moment_the_greater_id_is_the_latest"),
    (over(appends_over_what_is_there), "test_branches_read_back_each_for_itself"),
    (over(keeps_no_blobs), "test_pruning_keeps_the_newest_and_what_they_share"),
    (over(forgets_masks), "test_who_still_holds_the_old_words_saves_the_new_ones"),
    (over(counts_no_redactions), "test_who_still_holds_the_old_words_saves_the_new_ones"),
    (over(sweeps_too_much), "test_pruning_keeps_the_newest_and_what_they_share"),
    (over(loses_keys), "test_an_idempotency_key_belongs_to_one_row"),
    (over(always_moved), "test_every_field_is_kept_as_it_is"),
]


@pytest.mark.parametrize(("mutant", "name"), MUTANTS, ids=range(len(MUTANTS)))
async def test_a_store_with_a_mistake_fails_the_test_that_is_about_it(mutant, name):
    test = getattr(SessionStoreContract(), name)
    await test(InMemorySessionStore())
    with pytest.raises((Exception, pytest.fail.Exception)):
        await test(mutant())


async def test_a_store_that_knows_no_tenants_fails_too():
    suite = SessionStoreContract()
    store = OneTenant()
    with pytest.raises(AssertionError):
        await suite.test_one_id_in_two_tenants_is_two_rows(store.for_tenant)
