"""What was taken back is in no byte of the files."""

import asyncio
import random
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.store import LineStore
from antiphon.store.sqlite import SQLiteSessionStore
from antiphon.testing.store_suite.support import becomes, row, said, snapshot, words

WORD = "Rumpelstiltskin"
SPARSE = "abcde"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def holders(folder: Path, word: str = WORD) -> list[str]:
    """The files that hold a word, in clear, in UTF-16 or compressed."""
    needles = [word.encode(), word.encode("utf-16-le")]
    found = []
    for file in folder.iterdir():
        data = file.read_bytes()
        streams = [data]
        at = -1
        while (at := data.find(b"\x78", at + 1)) >= 0:
            if data[at + 1 : at + 2] in {b"\x01", b"\x5e", b"\x9c", b"\xda"}:
                try:
                    streams.append(zlib.decompressobj().decompress(data[at:]))
                except zlib.error:
                    continue
        if any(needle in stream for needle in needles for stream in streams):
            found.append(file.name)
    return sorted(found)


def fill(store: LineStore) -> None:
    """Sessions in which the word stands in every kind of place, on pages that were split and merged."""
    for turn in range(60):
        for session in ("s", "t", "u"):
            tip = store.sync.get_latest_snapshot(session)
            messages = list(tip.snapshot.data["messages"]) if tip else []
            name = WORD if session != "u" else "nobody"
            size = (turn * 37 + len(session)) % 700
            more = said(f"{turn} {name} " + "x" * size, f"{turn} {name} " + "y" * (6000 if turn % 11 == 0 else 40))
            wanted = row(
                turn,
                session,
                snapshot=snapshot([*messages, *more], state={"pad": f"{name} {turn} " + "z" * 400}),
                journal={"lines": said(f"{name} {turn}")},
                usage={"turns": turn},
            )
            store.sync.save_snapshot(f"{session}-{turn}", becomes(wanted))
    # A branch, an edited history and a row that was rewritten leave words behind in places no row names.
    tip = store.sync.get_snapshot("s-40")
    edited = list(tip.snapshot.data["messages"])
    edited[3] = said(f"edited {WORD}")[0]
    store.sync.save_snapshot("s-branch", becomes(row(100, "s", parent_id="s-40", snapshot=snapshot(edited))))
    store.sync.save_snapshot("s-branch", becomes(row(100, "s", parent_id="s-40", snapshot=snapshot(edited[:5]))))
    for session in ("s", "t"):
        store.sync.prune(session, keep=30)


def without(message):
    text = message["content"][0]["text"]
    return {**message, "content": [{"text": text.replace(WORD, "somebody")}]} if WORD in text else None


def part_without(name, value):
    if isinstance(value, dict) and WORD in str(value.get("pad", "")):
        return {**value, "pad": value["pad"].replace(WORD, "somebody")}
    return value


def test_a_redaction_leaves_no_byte_of_the_old_words(path):
    with closing(SQLiteSessionStore(path)) as store:
        fill(store)
        assert holders(path.parent)
        assert store.sync.redact("s", without, part=part_without) > 100
        assert store.sync.redact("t", without, part=part_without) > 100
        assert holders(path.parent) == []
        tip = store.sync.get_snapshot("s-59")
        assert words(tip)[1].startswith("0 somebody yy")
        assert "somebody" in tip.snapshot.data["state"]["pad"]
        assert len(words(store.sync.get_snapshot("u-59"))) == 120
    assert holders(path.parent) == []


def test_a_session_that_was_deleted_leaves_no_byte(path):
    with closing(SQLiteSessionStore(path)) as store:
        fill(store)
        for session in ("s", "t"):
            assert store.sync.delete_session(session)
        assert holders(path.parent) == []
        assert len(words(store.sync.get_snapshot("u-59"))) == 120


def old_reader(path: Path) -> sqlite3.Connection:
    """Somebody who reads the database as it is now, for as long as they like."""
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM message").fetchone()[0] > 0
    return reader


def test_words_that_a_reader_of_an_older_state_holds_are_gone_as_soon_as_it_lets_go(path):
    with closing(SQLiteSessionStore(path)) as store:
        fill(store)
        reader = old_reader(path)
        for session in ("s", "t"):
            store.sync.redact(session, without, part=part_without)
        assert WORD not in str(store.sync.get_snapshot("s-59").loaded())
        before = reader.execute("SELECT body FROM message WHERE instr(body, ?)", (WORD.encode(),)).fetchone()
        assert before is not None, "the reader still has its own"
        store.sync.save_snapshot("later", becomes(row(200)))
        reader.close()
        store._core.backend._scrubber.wait(20)
        assert holders(path.parent) == []
        assert store.sync.get_snapshot("later") is not None


def test_words_that_a_reader_held_while_the_store_was_closed_are_gone_when_it_is_opened_again(path):
    with closing(SQLiteSessionStore(path)) as store:
        fill(store)
        reader = old_reader(path)
        store.sync.delete_session("s")
        store.sync.delete_session("t")
    assert holders(path.parent)
    reader.close()
    with closing(SQLiteSessionStore(path)) as store:
        store._core.backend._scrubber.wait(20)
        assert holders(path.parent) == []
        assert len(words(store.sync.get_snapshot("u-59"))) == 120


def test_what_changes_nothing_rewrites_nothing(path):
    with closing(SQLiteSessionStore(path)) as store:
        fill(store)
        before = path.stat().st_size, path.stat().st_mtime_ns
        assert store.sync.delete_session("unknown") is False
        assert store.sync.redact("unknown", without) == 0
        assert (path.stat().st_size, path.stat().st_mtime_ns) == before


def fill_sparsely(store: LineStore) -> None:
    """Sessions that say the word seldom, on pages that were split: copies of it stay on pages that nothing rewrites."""
    chance = random.Random(0)
    for turn in range(80):
        for session in SPARSE:
            tip = store.sync.get_latest_snapshot(session)
            messages = list(tip.snapshot.data["messages"]) if tip else []
            names = [WORD if chance.random() < 0.1 else "nobody" for _ in range(2)]
            more = said(*(f"{turn} {name} " + "x" * chance.randrange(900) for name in names))
            store.sync.save_snapshot("", becomes(row(turn, session, snapshot=snapshot([*messages, *more]))))


def redaction_holds(path: Path, make: Callable[[Path], LineStore]) -> bool:
    """Whether a store of this make leaves nothing."""
    with closing(make(path)) as store:
        fill_sparsely(store)
        for session in SPARSE:
            store.sync.redact(session, without)
        return holders(path.parent) == []


def test_copies_that_the_tree_left_behind_when_it_was_balanced_are_gone_too(path):
    assert redaction_holds(path, SQLiteSessionStore)


def test_a_store_says_while_words_are_held_by_a_reader(path):
    with closing(SQLiteSessionStore(path)) as store:
        fill(store)
        assert not store.sync.erasure_pending()
        reader = old_reader(path)
        store.sync.redact("s", without, part=part_without)
        assert store.sync.erasure_pending()
        with closing(SQLiteSessionStore(path)) as other:
            assert other.for_tenant("another").sync.erasure_pending()  # the file is everybody's
        reader.close()
        store._core.backend._scrubber.wait(20)
        assert not store.sync.erasure_pending()


def test_closing_a_store_removes_what_a_reader_no_longer_holds_although_others_use_the_file(path):
    with closing(SQLiteSessionStore(path)) as other:
        with closing(SQLiteSessionStore(path)) as store:
            fill(store)
            reader = old_reader(path)
            for session in ("s", "t"):
                store.sync.redact(session, without, part=part_without)
            assert len(words(other.sync.get_snapshot("s-59"))) == 120
            reader.close()
        assert holders(path.parent) == []
        assert not other.sync.erasure_pending()


async def test_no_reader_of_ours_keeps_an_older_state(path):
    async with SQLiteSessionStore(path) as store, SQLiteSessionStore(path) as other:
        await asyncio.to_thread(fill, store)
        lines, statuses = other.export("s"), other.on_snapshot_status_change("s-59")
        await anext(lines)
        assert await anext(statuses) == "completed"
        held = await other.get_snapshot("s-59")
        page = await other.list_snapshots("s", limit=3)
        for session in ("s", "t"):
            await store.redact(session, without, part=part_without)
        assert not await store.erasure_pending()
        assert holders(path.parent) == []
        assert WORD in str(held.loaded()), "what was read is the reader's"
        assert len(page.snapshots) == 3
        await lines.aclose()
        await statuses.aclose()
