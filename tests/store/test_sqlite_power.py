"""Cut the power at any write to the disk: what was acknowledged is there afterwards."""

import random

import pytest

from tests.store.sqlite_checks import lives_and_loses_power


@pytest.mark.parametrize("seed", [None, 1, 2], ids=["all is lost", "some is lost", "other is lost"])
def test_what_was_acknowledged_survives_a_power_cut_at_any_write(tmp_path, seed):
    cuts = 0
    for operations in range(seed or 0, 240, 3):
        chance = None if seed is None else random.Random(seed * 1000 + operations)
        was_cut, found = lives_and_loses_power(tmp_path / str(operations), operations, chance)
        assert not found, f"after {operations} operations"
        cuts += was_cut
    assert cuts > 40
