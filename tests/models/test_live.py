"""The driver of live models: what it owes a codec and a wire, whoever cancels, sends or stops when."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import pytest

from antiphon.content import AudioDelta, BidiMessage, TextBlock
from antiphon.errors import (
    ConnectionEndedError,
    ConnectionTimeoutError,
    ModelConnectionError,
    ModelProtocolError,
    TransportError,
)
from antiphon.events import BidiTextDeltaEvent, OutputEvent
from antiphon.models.live import Codec, WiredModel
from antiphon.testing import VirtualClock


class EchoCodec(Codec):
    """`hello` opens, `ready` is the answer; every other frame is an event. `fail` is an error, `again` asks for an alarm."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.config = config
        self.rung: list[str] = []
        self.lost: list[TransportError | None] = []

    def open(self) -> None:
        self.outbox.append("hello")

    def send(self, content: BidiMessage | AudioDelta, /) -> None:
        if isinstance(content, BidiMessage):
            self.outbox += [block.text for block in content.content if isinstance(block, TextBlock)]

    def receive(self, frame, /) -> Sequence[OutputEvent]:
        if frame == "ready":
            self.ready = True
            return []
        if frame == "fail":
            raise ModelProtocolError("failed")
        if frame.startswith("alarm"):
            _, name, seconds = frame.split()
            self.alarms[name] = float(seconds) if seconds != "off" else None
            return []
        if frame == "ping":
            self.outbox.append("pong")
        return [BidiTextDeltaEvent(delta=frame)]

    def ring(self, name: str, /) -> None:
        self.rung.append(name)
        if name == "limit":
            raise ConnectionTimeoutError("the time is up", handle="h")
        self.outbox.append(f"rung {name}")

    def close(self) -> None:
        self.outbox.append("bye")

    def explain(self, error: TransportError | None, /) -> Exception:
        self.lost.append(error)
        return ConnectionEndedError("the wire is gone")


class MemoryWire:
    """A wire that a test holds the other end of. `hold` makes sends wait until it is released."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.closed = 0
        self.hold: asyncio.Event | None = None
        self.broken: TransportError | None = None
        self._came: deque[str | None] = deque()
        self._news = asyncio.Event()

    def say(self, *frames: str | None) -> None:
        self._came.extend(frames)
        self._news.set()

    async def send(self, frames, /) -> None:
        if self.broken is not None:
            raise self.broken
        self.sent.extend(frames)
        if self.hold is not None:
            await self.hold.wait()

    async def receive(self):
        while not self._came:
            if self.closed:
                return None
            self._news.clear()
            await self._news.wait()
        return self._came.popleft()

    async def close(self) -> None:
        self.closed += 1
        self._news.set()


class EchoModel(WiredModel[EchoCodec]):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.wires: list[MemoryWire] = []
        self.codecs: list[EchoCodec] = []
        self.dialling: asyncio.Event | None = None
        self.answers = ["ready"]

    def get_config(self):
        return {"model_id": "echo"}

    def update_config(self, **config) -> None:
        pass

    def _make_codec(self, system_prompt, tools, messages, restart_config):
        self.codecs.append(EchoCodec(restart_config))
        return self.codecs[-1]

    async def _dial(self, codec):
        if self.dialling is not None:
            await self.dialling.wait()
        wire = MemoryWire()
        self.wires.append(wire)
        wire.say(*self.answers)
        return wire


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(autojump=False)


@pytest.fixture
def model(clock) -> EchoModel:
    return EchoModel(clock)


def said(*texts: str) -> BidiMessage:
    return BidiMessage([TextBlock(text) for text in texts])


async def collect(model: EchoModel, into: list[str]) -> None:
    async for event in model.receive():
        into.append(event.delta)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_session_is_opened_used_and_closed_in_good_order(model):
    await model.start()
    [wire] = model.wires
    heard: list[str] = []
    listening = asyncio.ensure_future(collect(model, heard))
    await model.send(said("one", "two"))
    wire.say("first", "ping", "second")
    await turns()
    await model.stop()
    await listening
    assert wire.sent == ["hello", "one", "two", "pong", "bye"]
    assert heard == ["first", "ping", "second"]
    assert wire.closed == 1
    await model.stop()
    assert wire.closed == 1


async def test_what_comes_before_the_session_is_ready_is_not_lost(model):
    model.answers = ["early", "ready", "late"]
    await model.start()
    heard: list[str] = []
    listening = asyncio.ensure_future(collect(model, heard))
    await turns()
    await model.stop()
    await listening
    assert heard == ["early", "late"]


async def test_sends_at_the_same_time_keep_their_order_and_do_not_mix(model):
    await model.start()
    [wire] = model.wires
    wire.hold = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(model.send(said(f"{number}a", f"{number}b")))
        await turns()
        assert wire.sent == ["hello", "0a"]
        wire.hold.set()
    assert wire.sent == ["hello", *(f"{number}{half}" for number in range(5) for half in "ab")]
    await model.stop()


async def test_who_is_cancelled_while_another_sends_loses_nothing_and_sends_nothing_twice(model):
    await model.start()
    [wire] = model.wires
    wire.hold = asyncio.Event()
    first = asyncio.ensure_future(model.send(said("a", "b")))
    second = asyncio.ensure_future(model.send(said("c", "d")))
    await turns()
    second.cancel()
    first.cancel()
    await asyncio.wait([first, second])
    wire.hold.set()
    await model.send(said("e"))
    assert wire.sent == ["hello", "a", "b", "c", "d", "e"]
    await model.stop()


async def test_a_stop_ends_whoever_receives_without_an_error(model):
    await model.start()
    heard: list[str] = []
    listening = asyncio.ensure_future(collect(model, heard))
    await turns()
    await model.stop()
    await asyncio.wait_for(listening, 5)
    with pytest.raises(ConnectionEndedError):
        await model.send(said("more"))
    with pytest.raises(ConnectionEndedError):
        await anext(aiter(model.receive()))


async def test_a_restart_ends_whoever_receives_from_the_old_connection_only(model):
    await model.start()
    old: list[str] = []
    new: list[str] = []
    listening = asyncio.ensure_future(collect(model, old))
    await turns()
    await model.restart(handle="h")
    await asyncio.wait_for(listening, 5)
    assert model.codecs[1].config == {"handle": "h"}
    again = asyncio.ensure_future(collect(model, new))
    model.wires[0].say("old")
    model.wires[1].say("new")
    await turns()
    await model.stop()
    await again
    assert (old, new) == ([], ["new"])


@pytest.mark.parametrize("end", [None, TransportError("broken", code=1011)])
async def test_the_end_of_a_wire_is_explained_by_the_codec(model, end):
    await model.start()
    [wire] = model.wires
    wire.say("last words")
    if end is None:
        wire.say(None)
    else:
        model.wires[0].receive = _failing(wire.receive, end)  # the wire fails after what it had
    heard: list[str] = []
    with pytest.raises(ConnectionEndedError):
        await collect(model, heard)
    assert heard == ["last words"]
    assert model.codecs[0].lost == [end]
    await model.stop()


def _failing(receive, error):
    calls = iter([receive])

    async def fail():
        first = next(calls, None)
        if first is None:
            raise error
        return await first()

    return fail


async def test_a_codecs_error_reaches_whoever_receives(model):
    await model.start()
    model.wires[0].say("one", "fail")
    heard: list[str] = []
    with pytest.raises(ModelProtocolError):
        await collect(model, heard)
    assert heard == ["one"]
    await model.stop()
    assert model.wires[0].closed == 1


async def test_a_wire_that_takes_no_more_is_told_to_senders_and_read_to_its_end(model):
    await model.start()
    [wire] = model.wires
    wire.broken = TransportError("broken")
    with pytest.raises(ConnectionEndedError, match="broken"):
        await model.send(said("more"))
    wire.say("ping", "last words", None)
    heard: list[str] = []
    with pytest.raises(ConnectionEndedError, match="gone"):
        await collect(model, heard)
    assert heard == ["ping", "last words"]
    await model.stop()
    assert wire.closed == 1


async def test_what_the_model_says_is_heard_although_the_network_takes_nothing(model):
    await model.start()
    [wire] = model.wires
    wire.hold = asyncio.Event()
    heard: list[str] = []
    speaking = asyncio.ensure_future(model.send(said("a", "b")))
    await turns()
    listening = asyncio.ensure_future(collect(model, heard))
    wire.say("ping", "one", "ping", "two")
    await turns()
    assert heard == ["ping", "one", "ping", "two"]
    assert wire.sent == ["hello", "a"]
    wire.hold.set()
    await speaking
    await turns()
    assert wire.sent == ["hello", "a", "b", "pong", "pong"]
    await model.stop()
    await listening


async def test_a_stop_ends_answers_that_the_network_does_not_take(model, clock):
    await model.start()
    [wire] = model.wires
    wire.hold = asyncio.Event()
    listening = asyncio.ensure_future(collect(model, []))
    wire.say("ping")
    await turns()
    async with asyncio.TaskGroup() as group:
        stopping = group.create_task(model.stop())
        await turns()
        await clock.advance(5)
    assert stopping.done()
    await listening
    assert wire.closed == 1
    assert clock.sleepers == 0


async def test_a_session_that_is_not_accepted_in_time_is_given_up(model, clock):
    model.answers = []
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(_refused(model.start(), ModelConnectionError))
        await turns()
        await clock.advance(20.5)
    assert "did not accept" in str(starting.result())
    assert model.wires[0].closed == 1
    assert model.wires[0].sent == ["hello"]


async def _refused(work, kind) -> Exception:
    with pytest.raises(kind) as refused:
        await work
    return refused.value


async def test_a_wire_that_ends_while_the_session_is_opened_is_explained(model):
    model.answers = [None]
    with pytest.raises(ConnectionEndedError, match="gone"):
        await model.start()
    assert model.wires[0].closed == 1


@pytest.mark.parametrize("after", range(8))
async def test_a_start_that_is_cancelled_leaves_no_wire_open(model, after):
    model.answers = []
    starting = asyncio.ensure_future(model.start())
    await turns(after)
    starting.cancel()
    with suppress(asyncio.CancelledError):
        await starting
    assert all(wire.closed for wire in model.wires)
    with pytest.raises(ConnectionEndedError):
        await model.send(said("more"))


async def test_a_stop_while_a_session_is_opened_leaves_no_wire_open(model):
    model.dialling = asyncio.Event()
    starting = asyncio.ensure_future(model.start())
    await turns()
    await model.stop()
    model.dialling.set()
    with pytest.raises(ConnectionEndedError, match="stopped"):
        await starting
    assert [wire.closed for wire in model.wires] == [1]


async def test_of_two_starts_at_the_same_time_the_later_one_counts(model):
    model.dialling = asyncio.Event()
    first = asyncio.ensure_future(model.start())
    await turns()
    second = asyncio.ensure_future(model.start())
    await turns()
    model.dialling.set()
    with pytest.raises(ConnectionEndedError):
        await first
    await second
    await model.send(said("to the second"))
    assert sorted(wire.closed for wire in model.wires) == [0, 1]
    await model.stop()


async def test_an_alarm_rings_when_it_is_due_and_the_last_time_counts(model, clock):
    await model.start()
    [wire], [codec] = model.wires, model.codecs
    heard: list[str] = []
    listening = asyncio.ensure_future(collect(model, heard))
    wire.say("alarm early 1", "alarm late 5", "alarm never 2", "alarm never off", "alarm early 3")
    await turns()
    await clock.advance(2.5)
    assert codec.rung == []
    await clock.advance(1)
    assert codec.rung == ["early"]
    await clock.advance(5)
    assert codec.rung == ["early", "late"]
    assert wire.sent == ["hello", "rung early", "rung late"]
    await model.stop()
    await listening
    assert clock.sleepers == 0


async def test_an_alarm_that_fails_ends_the_connection_with_its_error(model, clock):
    await model.start()
    [wire] = model.wires
    wire.say("alarm limit 5")
    heard: list[str] = []
    async with asyncio.TaskGroup() as group:
        ended = group.create_task(_refused(collect(model, heard), ConnectionTimeoutError))
        await turns()
        await clock.advance(6)
    assert ended.result().restart_config == {"handle": "h"}
    await model.stop()
    assert "bye" not in wire.sent


async def test_an_alarm_of_a_connection_that_is_gone_does_not_ring(model, clock):
    await model.start()
    listening = asyncio.ensure_future(collect(model, []))
    model.wires[0].say("alarm early 1")
    await turns()
    await model.restart()
    await listening
    await clock.advance(5)
    assert [codec.rung for codec in model.codecs] == [[], []]
    await model.stop()
    assert clock.sleepers == 0
