"""The machine's clock, and stamps."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from antiphon.clock import SYSTEM_CLOCK, iso_utc


async def test_the_machines_clock_goes_forward_and_sleeping_lets_others_have_a_turn() -> None:
    told: list[str] = []
    asyncio.get_running_loop().call_soon(told.append, "other")
    before = SYSTEM_CLOCK.now()
    await SYSTEM_CLOCK.sleep(-1)
    await SYSTEM_CLOCK.sleep(0.001)
    assert told == ["other"]
    assert SYSTEM_CLOCK.now() > before
    assert SYSTEM_CLOCK.utc().tzinfo is UTC


@given(st.datetimes(datetime(1970, 1, 2), datetime(9998, 1, 1)), st.integers(-23, 23))  # noqa: DTZ001 - made aware below
def test_stamps_sort_as_the_moments_they_name_whatever_the_zone(moment: datetime, hours: int) -> None:
    there = moment.replace(tzinfo=timezone(timedelta(hours=hours)))
    stamp = iso_utc(there)
    assert datetime.fromisoformat(stamp) == there
    assert len(stamp) == len("2026-01-02T03:04:05.000006Z")
    assert stamp < iso_utc(there + timedelta(microseconds=1))
