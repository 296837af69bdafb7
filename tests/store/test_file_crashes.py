"""A file store dies at any change of a file, and the power with it or not: what was acknowledged is there afterwards."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.errors import SessionStoreError
from antiphon.store.file import FileSessionStore
from antiphon.testing import UnsyncedFileSystem
from antiphon.testing.store_suite.support import words
from tests.store.sqlite_life import SECRET, Told, faults, live, take_turn, without_secret

TOP = Path(__file__).parents[2]
FOR_EVER = 1_000_000


def lives_and_loses_power(
    folder: Path, operations: int, chance: random.Random | None, disk: UnsyncedFileSystem | None = None
) -> tuple[bool, list[str]]:
    """Whether the power was cut before the end, and what is wrong afterwards."""
    disk, told, was_cut = disk or UnsyncedFileSystem(), Told(), False
    store = FileSessionStore(folder, filesystem=disk)
    take_turn(store, "long-0")
    told.hear("turn long-0 0")
    disk.cut_power_after(operations)
    try:
        live(store, operations, told.hear, turns=3)
    except SessionStoreError:
        was_cut = True
    store.close()
    disk.crash(chance)
    there = FileSessionStore(folder, filesystem=disk)
    found = faults(there, told)
    told = Told()
    for _ in range(2):
        told.hear(f"turn long-0 {take_turn(there, 'long-0')}")
    there.close()
    disk.crash()
    again = FileSessionStore(folder, filesystem=disk)
    tip = again.sync.get_latest_snapshot("long-0")
    if tip is None or tip.snapshot.data["state"]["turn"] != told.turns["long-0"]:
        found.append(f"after another life: {tip and tip.snapshot.data['state']}, and {told.turns} was acknowledged")
    again.close()
    return was_cut, found


def dies_and_loses_power_later(
    folder: Path, operations: int, disk: UnsyncedFileSystem | None = None
) -> tuple[bool, list[str]]:
    """As above, but only the process dies. Another one goes on, and then the power is cut."""
    disk, told, was_cut = disk or UnsyncedFileSystem(), Told(), False
    store = FileSessionStore(folder, filesystem=disk)
    disk.cut_power_after(operations)
    try:
        live(store, operations, told.hear, turns=2)
    except SessionStoreError:
        was_cut = True
    store.close()
    disk.cut_power_after(FOR_EVER)
    second = FileSessionStore(folder, filesystem=disk)
    found = faults(second, told)
    told = Told()
    for session in ("long-0", "long-1", "long-2", "short-0", "short-1"):
        for _ in range(2):
            told.hear(f"turn {session} {take_turn(second, session)}")
    second.close()
    disk.crash()
    there = FileSessionStore(folder, filesystem=disk)
    tips = {session: there.sync.get_latest_snapshot(session) for session in told.turns}
    found += [
        f"{session}: {tip and tip.snapshot.data['state']}, and {told.turns[session]} was acknowledged"
        for session, tip in tips.items()
        if tip is None or tip.snapshot.data["state"]["turn"] != told.turns[session]
    ]
    there.close()
    return was_cut, found


def is_redacted_and_dies(
    folder: Path, operations: int, ending: str, disk: UnsyncedFileSystem | None = None
) -> tuple[bool, list[str]]:
    """As above, while a log is written anew. How it ends: the process dies, or the power goes, and with it more or less."""
    disk, was_cut = disk or UnsyncedFileSystem(), False
    store = FileSessionStore(folder, filesystem=disk)
    for _ in range(7):
        take_turn(store, "s")
    rows = [info.snapshot_id for info in store.sync.list_snapshots("s").snapshots]
    disk.cut_power_after(operations)
    try:
        store.sync.redact("s", without_secret)
    except SessionStoreError:
        was_cut = True
    store.close()
    disk.cut_power_after(FOR_EVER)
    if ending != "only the process":
        disk.crash(random.Random(operations) if ending == "some" else None)
    there = FileSessionStore(folder, filesystem=disk)
    found = [] if [info.snapshot_id for info in there.sync.list_snapshots("s").snapshots] == rows else ["rows are lost"]
    texts = [words(row) for row in map(there.sync.get_snapshot, rows) if row is not None]
    if len({SECRET in text for said in texts for text in said if "turn 0" in text or "turn 3" in text}) > 1:
        found.append(f"half redacted: {texts}")
    if not was_cut and SECRET in str(texts):
        found.append("it was acknowledged, and the words are there")
    there.close()
    return was_cut, found


@pytest.mark.parametrize("ending", ["only the process", "all", "some"])
def test_a_log_that_is_written_anew_is_the_old_one_or_the_new_one_wherever_that_ends(tmp_path, ending):
    cuts = 0
    for operations in range(24):
        was_cut, found = is_redacted_and_dies(tmp_path / str(operations), operations, ending)
        assert not found, f"after {operations} operations"
        cuts += was_cut
    assert 10 < cuts < 24


@pytest.mark.parametrize("seed", [None, 1, 2], ids=["all is lost", "some is lost", "other is lost"])
def test_what_was_acknowledged_survives_a_power_cut_at_any_operation(tmp_path, seed):
    cuts = 0
    for operations in range(130):
        chance = None if seed is None else random.Random(seed * 1000 + operations)
        was_cut, found = lives_and_loses_power(tmp_path / str(operations), operations, chance)
        assert not found, f"after {operations} operations"
        cuts += was_cut
    assert cuts > 60


def test_what_the_next_process_acknowledges_survives_whatever_the_one_that_died_left_half_done(tmp_path):
    cuts = 0
    for operations in range(1, 130):
        was_cut, found = dies_and_loses_power_later(tmp_path / str(operations), operations)
        assert not found, f"after {operations} operations"
        cuts += was_cut
    assert cuts > 60


@pytest.mark.timeout(150)
def test_a_process_that_is_killed_at_any_change_of_a_file_loses_nothing_that_was_acknowledged(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.file_kills", tmp_path, "500"],
        capture_output=True,
        text=True,
        check=False,
        timeout=140,
        cwd=TOP,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["killed"] >= 500
    assert report["turns"] > 100
