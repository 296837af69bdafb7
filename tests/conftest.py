"""What holds for every test: bounded property tests, and few that run in real time."""

import pytest
from hypothesis import HealthCheck, settings

REALTIME_TESTS_ALLOWED = 3

# No deadline: two busy cores say nothing about the code. Few examples: the suite has 20 minutes in all.
settings.register_profile("house", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    realtime = [item.nodeid for item in items if item.get_closest_marker("realtime")]
    if len(realtime) > REALTIME_TESTS_ALLOWED:
        listed = "\n  ".join(realtime)
        raise pytest.UsageError(
            f"{len(realtime)} tests are marked realtime, {REALTIME_TESTS_ALLOWED} may be: "
            f"drive the others by a VirtualClock\n  {listed}"
        )
