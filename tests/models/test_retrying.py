"""A provider is asked again only while nothing of its answer has been seen, and not for ever."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidInputError, ModelError, ModelRequestError, ModelThrottledException
from antiphon.models.retrying import Retries, with_retries
from antiphon.testing import VirtualClock

ANSWER = [{"messageStart": {"role": "assistant"}}, {"contentBlockDelta": {"delta": {"text": "Hi."}}}]


class Provider:
    """Gives what it is told to, attempt by attempt: events, and then an error."""

    def __init__(self, *attempts):
        self.attempts = list(attempts)
        self.asked = 0
        self.closed = 0

    async def __call__(self):
        events, error = self.attempts[self.asked]
        self.asked += 1
        try:
            for event in events:
                yield event
            if error is not None:
                raise error
        finally:
            self.closed += 1


async def collect(provider, clock=None, **retries):
    events = []
    async for event in with_retries(provider, retries=Retries(**retries), clock=clock or VirtualClock()):
        events.append(event)
    return events


async def test_an_error_that_passes_is_waited_out_with_waits_whose_bound_doubles():
    clock = VirtualClock()
    busy = ModelError("busy", passing=True)
    provider = Provider(([], busy), ([], busy), (ANSWER, None))
    assert await collect(provider, clock, max_attempts=3, initial_delay=0.5, chance=lambda: 1.0) == ANSWER
    assert clock.now() == 0.5 + 1.0
    assert provider.asked == provider.closed == 3


async def test_how_much_of_a_wait_is_waited_is_left_to_chance_each_time_anew():
    clock = VirtualClock()
    busy = ModelError("busy", passing=True)
    provider = Provider(([], busy), ([], busy), ([], busy), (ANSWER, None))
    parts = iter([0.0, 0.5, 0.25])
    assert await collect(provider, clock, max_attempts=4, initial_delay=1, chance=lambda: next(parts)) == ANSWER
    assert clock.now() == 0.0 * 1 + 0.5 * 2 + 0.25 * 4


@given(
    failures=st.integers(1, 40),
    initial=st.floats(0.01, 30),
    most=st.floats(0.01, 300),
    seed=st.integers(),
)
def test_a_wait_is_never_longer_than_its_bound_and_the_same_seed_gives_the_same_one(failures, initial, most, seed):
    busy = ModelError("busy", passing=True)
    one, other = (
        Retries(max_attempts=50, initial_delay=initial, max_delay=most, chance=Random(seed).random) for _ in range(2)
    )
    wait = one.delay(failures, busy)
    assert 0 <= wait <= min(initial * 2.0 ** (failures - 1), most)
    assert wait == other.delay(failures, busy)


def test_those_who_are_refused_together_do_not_come_back_together():
    busy = ModelError("busy", passing=True)
    waits = {Retries().delay(1, busy) for _ in range(20)}
    assert len(waits) > 1
    assert max(waits) <= Retries().initial_delay


async def test_the_providers_own_wait_is_honoured():
    clock = VirtualClock()
    provider = Provider(([], ModelThrottledException("slow", retry_after_s=11)), (ANSWER, None))
    assert await collect(provider, clock, chance=lambda: 0.0) == ANSWER
    assert clock.now() == 11


async def test_a_wait_that_is_too_long_is_left_to_the_caller():
    clock = VirtualClock()
    provider = Provider(([], ModelThrottledException("slow", retry_after_s=3600)))
    with pytest.raises(ModelThrottledException) as caught:
        await collect(provider, clock, longest_wait=60)
    assert caught.value.retry_after_s == 3600
    assert clock.now() == 0


async def test_after_the_last_attempt_the_error_is_raised():
    provider = Provider(*[([], ModelThrottledException("slow"))] * 2)
    with pytest.raises(ModelThrottledException, match="slow"):
        await collect(provider, max_attempts=2)
    assert provider.asked == 2


async def test_an_error_that_does_not_pass_is_raised_at_once():
    provider = Provider(([], ModelRequestError("no such parameter")))
    with pytest.raises(ModelRequestError):
        await collect(provider)
    assert provider.asked == 1


async def test_a_stream_that_only_began_is_asked_for_again_and_begins_once():
    provider = Provider((ANSWER[:1], ModelThrottledException("overloaded")), (ANSWER, None))
    assert await collect(provider) == ANSWER


async def test_once_something_was_seen_nobody_is_asked_again():
    provider = Provider((ANSWER, ModelThrottledException("overloaded")), (ANSWER, None))
    events = []
    with pytest.raises(ModelThrottledException):
        async for event in with_retries(provider, retries=Retries(), clock=VirtualClock()):
            events.append(event)
    assert events == ANSWER
    assert provider.asked == provider.closed == 1


async def test_who_stops_listening_closes_the_request():
    provider = Provider((ANSWER, None))
    events = with_retries(provider, retries=Retries(), clock=VirtualClock())
    await anext(events)
    await events.aclose()
    assert provider.closed == 1


def test_no_attempt_at_all_is_refused():
    with pytest.raises(InvalidInputError, match="max_attempts=0"):
        Retries(max_attempts=0)
