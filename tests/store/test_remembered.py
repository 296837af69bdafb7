"""What a store remembers saves questions, and never decides anything."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from antiphon.errors import SessionConflictError, StaleEpochError, TerminalStatusError
from antiphon.store import LineStore, SessionSnapshot
from antiphon.store.core import StoreCore
from antiphon.store.known import Footing, KnownRows
from antiphon.store.lines import Span
from antiphon.store.memory import MemoryBackend
from antiphon.store.messages import Origin, StoredMessages
from antiphon.store.record import Record, Row
from antiphon.testing.store_suite.support import exact, found, put, row, said, snapshot, words


class Counting(MemoryBackend):
    """Memory that counts how often it is read from and written to, and what is appended."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.writes = self.appended = 0

    def read(self, tenant, look):
        self.reads += 1
        return super().read(tenant, look)

    def write(self, jobs):
        self.writes += len(jobs)
        for job in jobs:
            commit = getattr(job.work, "__self__", None)
            self.appended += 0 if commit is None else len(commit.fresh) + len(commit.grown)
        return super().write(jobs)

    def taken(self) -> tuple[int, int]:
        """Reads and writes since this was asked before."""
        taken = self.reads, self.writes
        self.reads = self.writes = 0
        return taken


@pytest.fixture
def backend() -> Counting:
    return Counting()


@pytest.fixture
def store(backend: Counting) -> LineStore:
    return LineStore(StoreCore(backend, name="one"))


@pytest.fixture
def other(backend: Counting) -> LineStore:
    """Another process's, over the same place."""
    return LineStore(StoreCore(backend, name="other"))


async def begin(store: LineStore, *texts: str, **fields: Any) -> SessionSnapshot:
    """The first turn of session `s`."""
    return await put(store, "t0", row(0, snapshot=snapshot(said(*texts or ("a", "b"))), **fields), expected_tip=None)


async def go_on(store: LineStore, turn: int, **fields: Any) -> SessionSnapshot:
    """A turn of session `s`, after the one before it."""
    texts = [f"m{number}" for number in range(2 * turn)]
    wanted = row(turn, parent_id=f"t{turn - 1}", snapshot=snapshot(said("a", "b", *texts)), **fields)
    return await put(store, f"t{turn}", wanted, expected_tip=f"t{turn - 1}")


async def test_a_turn_after_a_turn_of_ours_asks_nothing_and_writes_once(store: LineStore, backend: Counting):
    await begin(store)
    backend.taken()
    for turn in range(1, 20):
        await go_on(store, turn)
    assert backend.taken() == (0, 19)
    assert backend.appended == 2 * 20
    assert words(await found(store, "t19"))[-1] == "m37"


async def test_a_row_that_grows_is_shown_to_its_change_from_memory_until_it_is_settled(
    store: LineStore, backend: Counting
):
    await begin(store, status="pending", journal={"open": [1]}, usage={"n": 1})
    shown: list[bytes] = []

    def grow(there: SessionSnapshot | None) -> SessionSnapshot:
        shown.append(exact(there))
        assert there is not None
        loaded = there.loaded()
        assert loaded is not None
        messages = [*loaded.data["messages"], *said("more")]
        return replace(there, snapshot=snapshot(messages, n=len(messages)), journal={"open": messages})

    before = exact(await found(store, "t0"))
    backend.taken()
    for _ in range(5):
        saved = await store.save_snapshot("t0", grow, expected_tip="t0")
        assert shown[-1] == before
        before = exact(saved)
    assert backend.taken() == (0, 5)
    assert exact(await found(store, "t0")) == before
    await store.save_snapshot("t0", lambda there: there and replace(there, status="completed"))
    backend.taken()
    await store.save_snapshot("t0", lambda there: there and replace(there, usage={"n": 2}))
    assert backend.taken()[0] > 0


async def test_the_first_turn_of_another_store_asks_and_the_next_ones_do_not(
    store: LineStore, other: LineStore, backend: Counting
):
    await begin(store)
    backend.taken()
    await go_on(other, 1)
    assert backend.taken()[0] > 0
    await go_on(other, 2)
    assert backend.taken() == (0, 1)
    assert backend.appended == 6


Meddle = Callable[[LineStore], Any]


async def rewrite_parent(other: LineStore) -> None:
    await put(other, "t1", row(1, parent_id="t0", snapshot=snapshot(said("quite", "another"))))


async def branch_off(other: LineStore) -> None:
    listed = said("a", "b", "m0", "m1", "branch")
    await put(other, "b", row(0.5, parent_id="t1", snapshot=snapshot(listed)))


async def redact(other: LineStore) -> None:
    def gone(message: Any) -> Any:
        return said("[gone]")[0] if message["content"][0]["text"] == "m0" else None

    assert await other.redact("s", gone)


async def erase_and_begin_anew(other: LineStore) -> None:
    await other.delete_session("s")
    await begin(other, "new", "talk")
    await put(other, "t1", row(1, parent_id="t0", snapshot=snapshot(said("new", "talk", "x"))))


async def prune(other: LineStore) -> None:
    await other.prune("s", keep=1)


async def rewrite_parent_and_sweep(other: LineStore) -> None:
    await put(other, "t0", row(0, snapshot=snapshot(said("quite"))))
    await rewrite_parent(other)
    assert await other.sweep("s") == 4


async def prune_parent(other: LineStore) -> None:
    await put(other, "newer", row(5, snapshot=snapshot(said("newer"))))
    assert (await other.prune("s", keep=1)).messages == 4


async def take_the_name(other: LineStore) -> None:
    await put(other, "t2", row(9, "elsewhere", snapshot=snapshot(said("taken"))))
    await other.delete_session("elsewhere")


MEDDLES = [
    rewrite_parent,
    rewrite_parent_and_sweep,
    branch_off,
    redact,
    erase_and_begin_anew,
    prune,
    prune_parent,
    take_the_name,
]


@pytest.mark.parametrize("meddle", MEDDLES)
@pytest.mark.parametrize("more", [["m2", "m3"], []], ids=["a turn", "nothing new"])
async def test_whatever_another_process_did_meanwhile_a_turn_reads_back_as_if_it_had_been_asked(
    store: LineStore, other: LineStore, meddle: Meddle, more: list[str]
):
    await begin(store)
    await go_on(store, 1)
    await meddle(other)
    if meddle is prune_parent:
        assert await store.get_snapshot("t1") is None
    wanted = row(2, parent_id="t1", snapshot=snapshot(said("a", "b", "m0", "m1", *more)))
    saved = await put(store, "t2", wanted, expected_tip="newer" if meddle is prune_parent else "t1")
    expected = ["a", "b", "[gone]" if meddle is redact else "m0", "m1", *more]
    assert words(saved) == words(await found(other, "t2")) == expected
    assert exact(await found(store, "t2")) == exact(await found(other, "t2")) == exact(saved)


async def test_a_row_that_is_there_already_is_shown_before_it_is_replaced(store: LineStore, other: LineStore):
    await begin(store)
    await go_on(store, 1)
    there = await put(other, "t2", row(2, parent_id="t1", status="pending", snapshot=snapshot(said("theirs"))))
    shown: list[SessionSnapshot | None] = []

    def change(before: SessionSnapshot | None) -> SessionSnapshot:
        shown.append(before)
        return row(3, parent_id="t1", status="pending", snapshot=snapshot(said("ours")))

    with pytest.raises(SessionConflictError):
        await store.save_snapshot("t2", change, expected_tip="t1")
    assert exact(shown[-1]) == exact(there) == exact(await found(store, "t2"))


async def test_a_change_that_objects_to_what_is_remembered_is_asked_again_about_what_is_stored(
    store: LineStore, other: LineStore
):
    await begin(store, status="pending")
    await other.save_snapshot("t0", lambda there: there and replace(there, usage={"n": 1}))

    def needs_usage(there: SessionSnapshot | None) -> SessionSnapshot:
        if there is None or there.usage is None:
            raise ValueError("no usage")
        return replace(there, usage={"n": there.usage["n"] + 1})

    def if_used(there: SessionSnapshot | None) -> SessionSnapshot | None:
        return None if there is None or there.usage is None else replace(there, finish_reason="stop")

    saved = await store.save_snapshot("t0", needs_usage)
    assert saved is not None
    assert saved.usage == {"n": 2}
    await other.save_snapshot("t0", lambda there: there and replace(there, usage=None))
    with pytest.raises(ValueError, match="no usage"):
        await store.save_snapshot("t0", needs_usage)
    assert await store.save_snapshot("t0", if_used) is None
    await other.save_snapshot("t0", lambda there: there and replace(there, usage={"n": 7}))
    saved = await store.save_snapshot("t0", if_used)
    assert saved is not None
    assert (saved.usage, saved.finish_reason) == ({"n": 7}, "stop")


async def test_the_store_decides_about_statuses_and_epochs(store: LineStore, other: LineStore):
    await begin(store, status="pending")
    await other.save_snapshot("t0", lambda there: there and replace(there, epoch=3))
    with pytest.raises(StaleEpochError):
        await store.save_snapshot("t0", lambda there: row(0, status="pending", epoch=1))
    await store.save_snapshot("t0", lambda there: there and replace(there, owner="o"))
    await other.save_snapshot("t0", lambda there: there and replace(there, status="aborted"))
    with pytest.raises(TerminalStatusError):
        await store.save_snapshot("t0", lambda there: there and replace(there, status="completed"))
    # Once it is gone, its name may be given to a row with another status.
    await other.delete_session("s")
    await begin(other, status="pending")
    saved = await store.save_snapshot("t0", lambda there: there and replace(there, status="completed"))
    assert saved is not None
    assert saved.status == "completed"


async def test_tenants_do_not_share_what_is_remembered(store: LineStore, backend: Counting):
    one, two = store.for_tenant("one"), store.for_tenant("two")
    await begin(one)
    backend.taken()
    await put(two, "t1", row(1, parent_id="t0", snapshot=snapshot(said("a", "b", "c"))))
    assert backend.taken()[0] > 0
    assert await two.get_snapshot("t0") is None
    assert words(await found(two, "t1")) == ["a", "b", "c"]
    assert backend.appended == 5


async def test_nothing_is_remembered_of_what_was_redacted_or_erased(store: LineStore, backend: Counting):
    await begin(store, "secret", status="pending", journal={"words": "secret"})
    await store.redact("s", lambda message: said("[gone]")[0], part=lambda name, value: {"words": "[gone]"})
    known = store._core.known
    assert known.footing("global", "t0") is None
    await store.save_snapshot("t0", lambda there: there and replace(there, owner="o"))
    await store.delete_session("s")
    assert known.footing("global", "t0") is None


def test_rows_are_forgotten_when_they_take_too_much():
    def footing(number: int, size: int, revision: int = 0) -> Footing:
        return Footing(Row(f"r{number}", "s", revision, Record(status="pending", created_at=0)), 0, {"x": bytes(size)})

    known = KnownRows(most_bytes=10_000)
    for number in range(100):
        known.see("t", footing(number, 1_000), 0)
    held = [number for number in range(100) if known.footing("t", f"r{number}") is not None]
    assert held == list(range(95, 100))
    known.see("t", footing(99, 50_000, revision=1), 0)
    assert known.footing("t", "r99") is not None
    assert known.footing("t", "r98") is None
    assert known.footing("other", "r99") is None
    # The same state without its parts: they are still known.
    again = footing(99, 0, revision=1)
    known.see("t", replace(again, parts=None), 0)
    there = known.footing("t", "r99")
    assert there is not None
    assert there.parts == {"x": bytes(50_000)}


async def test_a_branch_of_any_remembered_turn_knows_where_its_line_ends(store: LineStore, backend: Counting):
    await begin(store)
    for turn in range(1, 6):
        await go_on(store, turn)
    backend.taken()
    for number in range(4):
        listed = said("a", "b", "m0", "m1", f"branch {number}")
        tip = "t5" if number == 0 else f"b{number - 1}"
        await put(store, f"b{number}", row(10 + number, parent_id="t1", snapshot=snapshot(listed)), expected_tip=tip)
    assert backend.taken() == (0, 4)
    assert backend.appended == 2 * 6 + 4
    assert words(await found(store, "b0"))[-1] == "branch 0"
    assert words(await found(store, "t5"))[-1] == "m9"


async def test_what_was_wrong_with_a_guess_is_asked_before_the_second_try(
    store: LineStore, other: LineStore, backend: Counting
):
    await begin(store)
    await go_on(store, 1)
    await branch_off(other)
    backend.taken()
    await go_on(store, 2)
    # The guess, which another branch had made wrong; the row and what it builds on; and the row.
    assert backend.taken() == (2, 2)


async def test_what_is_known_to_be_out_of_date_is_not_tried(store: LineStore, other: LineStore, backend: Counting):
    await begin(store)
    await other.save_snapshot("t0", lambda there: there and replace(there, usage={"n": 1}))
    backend.taken()
    # A settled row is read before it is rewritten, and then it is known to have changed.
    await store.save_snapshot("t0", lambda there: there and replace(there, finish_reason="stop"))
    assert backend.taken() == (2, 1)
    await go_on(other, 1)
    await redact(other)
    await go_on(store, 2)
    backend.taken()
    # Who saves in a session that was redacted needs to know what was.
    await go_on(store, 3)
    assert backend.taken() == (1, 1)


async def test_what_another_process_has_written_meanwhile_is_not_written_again(
    store: LineStore, other: LineStore, backend: Counting
):
    await begin(store, status="pending")
    replaced = said(*(f"new {number}" for number in range(20)))
    await put(other, "t0", row(0, status="pending", snapshot=snapshot(replaced)))
    backend.appended = 0
    # The list has nothing of the parent as it is remembered, and all of the parent as it is.
    await put(store, "t1", row(1, parent_id="t0", snapshot=snapshot([*replaced, *said("more")])), expected_tip="t0")
    assert backend.appended == 1


async def test_a_row_that_begins_with_its_grandparents_messages_shares_them(store: LineStore, backend: Counting):
    await begin(store)
    await put(store, "t1", row(1, parent_id="t0", status="failed"), expected_tip="t0")
    await put(store, "t2", row(2, parent_id="t1", status="pending", snapshot=snapshot(said("quite", "another"))))
    backend.appended = 0
    await store.save_snapshot("t2", lambda there: there and replace(there, snapshot=snapshot(said("a", "b", "c"))))
    assert backend.appended == 1
    assert words(await found(store, "t2")) == ["a", "b", "c"]


async def test_rows_without_messages_are_not_remembered_for_ever():
    known = KnownRows(most=1_000)
    for number in range(10_000):
        known.put(Origin("t", "r", number, 0), StoredMessages.of([]))
    held = sum(known.get(Origin("t", "r", number, 0)) is not None for number in range(10_000))
    assert 0 < held <= 1_000


def test_what_stands_in_a_record_counts_as_what_it_takes():
    known = KnownRows(most_bytes=10_000)
    for number in range(20):
        record = Record(status="completed", created_at=0, parts={"error": bytes(4_000)})
        known.see("t", Footing(Row(f"r{number}", "s", 0, record), 0), 0)
    assert [number for number in range(20) if known.footing("t", f"r{number}") is not None] == [18, 19]


def test_only_so_many_lines_ends_are_remembered():
    known = KnownRows(most_ends=10)
    rows = [
        Row(f"r{line}", "s", 0, Record(status="completed", created_at=0, spans=(Span(line, 0, 2),)))
        for line in range(1, 31)
    ]
    for each in rows:
        known.see("t", Footing(each, 0), 2)
    assert [known.end("t", each) for each in rows] == [None] * 20 + [2] * 10
    assert known.end("other", rows[-1]) is None


async def test_large_messages_are_let_go_of_by_their_bytes_however_they_became_known(
    store: LineStore, other: LineStore, backend: Counting
):
    known = store._core.known = KnownRows(most_text=100_000)
    kept: list[str] = []

    def held() -> list[str]:
        return [name for name in kept if known.size(last[name], 1)]

    last: dict[str, Origin] = {}
    for number in range(12):  # each 30 KB: written here, grown here, or read from another's
        name, session = f"r{number}", f"s{number}"
        listed = said("x" * 20_000, "y" * 10_000)
        writer = other if number % 3 == 2 else store
        await put(
            writer, name, row(number, session, status="pending", snapshot=snapshot(listed[: 1 + (number % 3 > 0)]))
        )
        if number % 3 == 0:
            change = replace(row(number, session, status="pending"), snapshot=snapshot(listed))
            await store.save_snapshot(name, lambda there, change=change: there and change)
        elif number % 3 == 2:
            await found(store, name)
        kept.append(name)
        there = backend._tenants["global"].row(name)
        last[name] = Origin("global", name, there.revision, 0)
        assert len(known.get(last[name]) or ()) == 2
        assert 30_000 < known.size(last[name], 2) < 30_500
        assert known._text <= 100_000
    assert held() == ["r9", "r10", "r11"]
    # A window that slides weighs no more for that.
    texts = [f"{number}" + "z" * 1_000 for number in range(10)]
    await put(store, "w0", row(0, "w", snapshot=snapshot(said(*texts))))
    for turn in range(1, 50):
        texts = [*texts[2:], f"q{turn}" + "z" * 1_000, f"a{turn}" + "z" * 1_000]
        await put(store, f"w{turn}", row(turn, "w", parent_id=f"w{turn - 1}", snapshot=snapshot(said(*texts))))
    there = backend._tenants["global"].row("w49")
    assert 10_000 < known.size(Origin("global", "w49", there.revision, 0), 10) < 12_000


def test_the_newest_rows_messages_are_remembered_however_large_they_are():
    known = KnownRows(most_text=1_000)
    for number in range(3):
        known.put(Origin("t", f"r{number}", 0, 0), StoredMessages.of(said("x")), 5_000)
    assert [known.size(Origin("t", f"r{number}", 0, 0), 1) for number in range(3)] == [0, 0, 5_000]
    known.put(Origin("t", "r2", 0, 0), StoredMessages.of(said("x")))
    assert known.size(Origin("t", "r2", 0, 0), 1) == 5_000
    known.forget()
    assert (known._text, known._held) == (0, 0)
