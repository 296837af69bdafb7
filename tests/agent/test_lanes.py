"""The lanes of a call's events: order, what a barge-in overtakes, what is dropped when nobody takes it."""

import asyncio
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.agent.lanes import HEARD_BOUND_MS, UNHEARD_BOUND_MS, EventLanes
from antiphon.conversation.heard import Speech
from antiphon.events import BidiAudioDeltaEvent, BidiBargeInEvent, BidiTextDeltaEvent, BidiUsageEvent

RATE = 1000  # two bytes a millisecond


def lanes_at(now=0.0, *, attached=True):
    lanes = EventLanes(lambda: now)
    if attached:
        lanes.attach()
    return lanes


def speech(name="r"):
    return Speech(name, 0.0)


def sound(ms, fill=b"\1\0", response_id="r"):
    return BidiAudioDeltaEvent(audio=fill * ms, sample_rate=RATE, response_id=response_id)


def note(number):
    return BidiTextDeltaEvent(delta=str(number))


def drained(lanes):
    events = []
    while (event := lanes.pop()) is not None:
        events.append(event)
    return events


def ms_of(events):
    return sum(len(event.audio) // 2 for event in events if isinstance(event, BidiAudioDeltaEvent))


pieces = st.lists(
    st.one_of(st.integers(1, 40), st.integers(500, 6_000), st.integers(20_000, 130_000)), min_size=1, max_size=60
)


@pytest.mark.parametrize(("attached", "bound"), [(True, HEARD_BOUND_MS), (False, UNHEARD_BOUND_MS)])
@given(sizes=pieces)
def test_queued_sound_is_bounded_whatever_the_sizes_of_its_pieces(attached, bound, sizes):
    lanes, answer = lanes_at(attached=attached), speech()
    for number, size in enumerate(sizes):
        lanes.put_audio(sound(size, number.to_bytes(2, "little")), answer, size)
    kept = drained(lanes)
    assert ms_of(kept) <= bound
    # The newest is kept, and no more is dropped than has to be.
    assert ms_of(kept) >= min(sum(sizes), bound - max(sizes))
    whole = b"".join(number.to_bytes(2, "little") * size for number, size in enumerate(sizes))
    assert whole.endswith(b"".join(event.audio for event in kept))


def test_the_bounds_are_two_minutes_for_a_listener_and_five_seconds_for_nobody():
    assert (HEARD_BOUND_MS, UNHEARD_BOUND_MS) == (120_000, 5_000)


@given(sizes=pieces)
def test_sound_that_a_listener_never_got_is_a_gap_in_what_was_heard(sizes):
    lanes, answer = lanes_at(), speech()
    for size in sizes:
        lanes.put_audio(sound(size), answer, size)
    lost = sum(sizes) - ms_of(drained(lanes))
    assert answer.delivered_ms == pytest.approx(sum(sizes))
    assert answer.gap_ms == (None if not lost else 0.0)


@given(sizes=pieces)
def test_sound_that_nobody_asks_for_counts_as_given_when_it_comes(sizes):
    lanes, answer = lanes_at(attached=False), speech()
    for size in sizes:
        lanes.put_audio(sound(size), answer, size)
    assert answer.delivered_ms == pytest.approx(sum(sizes))
    assert answer.gap_ms is None
    lanes.attach()
    drained(lanes)
    assert answer.delivered_ms == pytest.approx(sum(sizes))


operations = st.lists(
    st.sampled_from(["note", "sound a", "sound b", "cut a", "cut b", "pop", "silence"]), min_size=1, max_size=60
)


@given(operations)
def test_events_come_in_order_but_for_a_barge_in_which_takes_the_cut_sound_with_it(steps):
    lanes = lanes_at()
    answers = {"a": speech("a"), "b": speech("b")}
    expected = deque()
    for number, step in enumerate(steps):
        verb, _, name = step.partition(" ")
        match verb:
            case "note":
                lanes.put(note(number))
                expected.append(note(number))
            case "sound":
                event = sound(number + 1, response_id=name)
                lanes.put_audio(event, answers[name], number + 1)
                if not answers[name].cut:
                    expected.append(event)
            case "cut":
                answers[name].cut = True
                lanes.put_first(BidiBargeInEvent(response_id=name))
                rest = [event for event in expected if not is_sound_of(event, name)]
                expected = deque([BidiBargeInEvent(response_id=name), *rest])
            case "pop":
                assert lanes.pop() == (expected.popleft() if expected else None)
            case "silence":
                lanes.silence()
                expected = deque(event for event in expected if not isinstance(event, BidiAudioDeltaEvent))
    assert drained(lanes) == list(expected)


def is_sound_of(event, name):
    return isinstance(event, BidiAudioDeltaEvent) and event.response_id == name


def test_muted_lanes_give_no_sound_and_it_does_not_count_as_delivered():
    lanes, answer = lanes_at(), speech()
    lanes.put_audio(sound(20), answer, 20)
    lanes.put(note(1))
    lanes.muted = True
    assert drained(lanes) == [note(1)]
    assert answer.delivered_ms == 0


def test_events_other_than_sound_are_never_dropped():
    lanes = lanes_at(attached=False)
    for number in range(10_000):
        lanes.put(note(number))
    assert len(drained(lanes)) == 10_000


async def test_whoever_waits_goes_on_when_something_is_queued_or_the_lanes_are_closed():
    lanes = lanes_at()
    for act in (lambda: lanes.put(note(1)), lambda: lanes.put_audio(sound(1), speech(), 1), lanes.close):
        waiting = asyncio.ensure_future(lanes.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        act()
        await waiting
        drained(lanes)
    await lanes.wait()  # closed: at once


async def test_a_waiter_that_is_cancelled_when_its_turn_has_come_passes_it_on():
    lanes = lanes_at()
    first, second = asyncio.ensure_future(lanes.wait()), asyncio.ensure_future(lanes.wait())
    await asyncio.sleep(0)
    lanes.put(note(1))
    first.cancel()
    await second
    assert first.cancelled() or first.done()


async def test_lanes_are_closed_once_and_what_is_queued_is_still_handed_out():
    lanes, error = lanes_at(), ValueError("first")
    lanes.put(note(1))
    lanes.close(error)
    lanes.close(ValueError("second"))
    assert (lanes.closed, lanes.error) == (True, error)
    assert drained(lanes) == [note(1)]


def test_a_usage_event_waits_behind_sound_that_came_before_it():
    lanes, answer = lanes_at(), speech()
    lanes.put_audio(sound(1), answer, 1)
    lanes.put(BidiUsageEvent(input_tokens=1))
    assert [type(event) for event in drained(lanes)] == [BidiAudioDeltaEvent, BidiUsageEvent]
