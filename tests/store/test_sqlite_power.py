"""Cut the power at any write to the disk: what was acknowledged is there afterwards."""

import random
from pathlib import Path

import apsw
import pytest

from antiphon.errors import SessionStoreError
from antiphon.store.sqlite import SQLiteSessionStore, Synchronous
from tests.store.sqlite_life import Told, faults, live, take_turn
from tests.store.sqlite_power import PowerDriver, PowerVFS


class Cut:
    """Lets so many operations pass, and none after them."""

    def __init__(self, operations: int) -> None:
        self.left = operations

    def __call__(self, moment: str, kind: str, name: str) -> None:
        if moment == "before":
            self.left -= 1
        if self.left < 0:
            raise apsw.IOError("power cut")


def lives_and_loses_power(
    folder: Path, operations: int, chance: random.Random | None, synchronous: Synchronous = "FULL"
) -> tuple[bool, list[str]]:
    """Whether the power was cut before the end, and what is wrong afterwards."""
    before, after = folder / "before", folder / "after"
    before.mkdir(parents=True)
    after.mkdir()
    told, vfs, was_cut = Told(), PowerVFS(), False
    store = SQLiteSessionStore(before / "s.db", driver=PowerDriver(vfs, pages=40), synchronous=synchronous)
    take_turn(store, "long-0")
    told.hear("turn long-0 0")
    vfs.hook = Cut(operations)
    try:
        live(store, operations, told.hear, turns=3)
    except SessionStoreError:
        was_cut = True
    vfs.hook = Cut(0)
    store.close()
    vfs.cut_power(after, chance)
    there = SQLiteSessionStore(after / "s.db")
    found = faults(there, told)
    there.close()
    return was_cut, found


@pytest.mark.parametrize("seed", [None, 1, 2], ids=["all is lost", "some is lost", "other is lost"])
def test_what_was_acknowledged_survives_a_power_cut_at_any_write(tmp_path, seed):
    cuts = 0
    for operations in range(seed or 0, 240, 3):
        chance = None if seed is None else random.Random(seed * 1000 + operations)
        was_cut, found = lives_and_loses_power(tmp_path / str(operations), operations, chance)
        assert not found, f"after {operations} operations"
        cuts += was_cut
    assert cuts > 40
