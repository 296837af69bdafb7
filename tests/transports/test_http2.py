"""A request over HTTP/2 that goes on both ways, against a server that does as a test says."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, PingReceived, RequestReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import InvalidInputError, TransportError
from antiphon.testing.servers.certificates import LoopbackAuthority
from antiphon.transports.http2 import HTTP2Stream

OK = [(":status", "200"), ("x-amzn-requestid", "r1")]


class Peer:
    """A server for one connection. `on` is called with each event, and may use `h2`; what it makes is sent."""

    def __init__(self, on: Callable[[Peer, object], None], *, window: int | None = None, cuts: tuple[int, ...] = ()):
        self.on = on
        self.window = window
        self.cuts = cuts
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.body = bytearray()
        self.headers: dict[str, str] = {}
        self.seen: list[object] = []
        self.acknowledge = True
        self.raw = b""
        self.news = asyncio.Event()
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        try:
            self.h2.initiate_connection()
            if self.window is not None:
                self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: self.window})
            await self.flush()
            while data := await reader.read(65536):
                for event in self.h2.receive_data(data):
                    self.seen.append(event)
                    if isinstance(event, RequestReceived):
                        self.headers = {str(name): str(value) for name, value in event.headers}
                    if isinstance(event, DataReceived):
                        self.body += event.data
                        if self.acknowledge:
                            self.h2.acknowledge_received_data(event.flow_controlled_length, 1)
                    self.on(self, event)
                await self.flush()
        except OSError:
            pass
        finally:
            self.news.set()
            writer.close()

    async def flush(self) -> None:
        assert self.writer is not None
        data, self.raw = self.h2.data_to_send() + self.raw, b""
        at = 0
        for cut in self.cuts or (len(data),):
            self.writer.write(data[at : at + cut])
            await self.writer.drain()
            await asyncio.sleep(0)
            at += cut
        self.writer.write(data[at:])
        await self.writer.drain()
        self.news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.news.clear()
            await self.news.wait()


@asynccontextmanager
async def peer(on: Callable[[Peer, object], None], *, tls: ssl.SSLContext | None = None, **options):
    one = Peer(on, **options)
    async with await asyncio.start_server(one.serve, "127.0.0.1", 0, ssl=tls) as server:
        one.url = f"{'https://localhost' if tls else 'http://127.0.0.1'}:{server.sockets[0].getsockname()[1]}/path?q=1"
        yield one
        if one.writer is not None:
            one.writer.transport.abort()


def accept(one: Peer, event: object) -> None:
    if isinstance(event, RequestReceived):
        one.h2.send_headers(1, OK)


def echo(one: Peer, event: object) -> None:
    accept(one, event)
    if isinstance(event, DataReceived) and event.data:
        one.h2.send_data(1, event.data)
    if isinstance(event, StreamEnded):
        one.h2.end_stream(1)


async def everything(stream: HTTP2Stream) -> bytes:
    found = b""
    while (data := await stream.receive()) is not None:
        found += data
    return found


async def test_bytes_go_both_ways_while_the_request_is_open():
    async with peer(echo) as one:
        stream = await HTTP2Stream.open(one.url, headers=[("x-a", "1")])
        await stream.accepted()
        assert stream.headers == {"x-amzn-requestid": "r1"}
        await stream.send([b"one"])
        assert await stream.receive() == b"one"
        await stream.send([b"two", "three"])
        assert await stream.receive() == b"twothree"
        await stream.end()
        await stream.end()
        assert await stream.receive() is None
        assert await stream.receive() is None
        with pytest.raises(TransportError, match="complete"):
            await stream.send([b"more"])
        await stream.close()
        await stream.close()
        assert one.headers[":method"] == "POST"
        assert one.headers[":path"] == "/path?q=1"
        assert one.headers["x-a"] == "1"


async def test_over_tls_http2_is_agreed_on():
    authority = LoopbackAuthority()
    async with peer(echo, tls=authority.server_context("h2")) as one:
        stream = await HTTP2Stream.open(one.url, tls=authority.client_context())
        await stream.send([b"hello"])
        assert await stream.receive() == b"hello"
        await stream.close()
        assert one.headers[":scheme"] == "https"


@settings(max_examples=25)
@given(st.lists(st.integers(1, 40), max_size=12), st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=5))
def test_however_the_network_cuts_the_answer_it_is_the_same(cuts, pieces):
    def on(one: Peer, event: object) -> None:
        accept(one, event)
        if isinstance(event, StreamEnded):
            for piece in pieces:
                one.h2.send_data(1, piece)
            one.h2.end_stream(1)

    async def run() -> bytes:
        async with peer(on, cuts=tuple(cuts)) as one:
            stream = await HTTP2Stream.open(one.url)
            await stream.end()
            found = await everything(stream)
            await stream.close()
            return found

    assert asyncio.run(run()) == b"".join(pieces)


async def test_a_sender_waits_for_room_and_everything_arrives_in_order():
    async with peer(accept, window=1000) as one:
        stream = await HTTP2Stream.open(one.url)
        await stream.accepted()
        data = bytes(range(256)) * 1200
        async with asyncio.TaskGroup() as group:
            group.create_task(stream.send([data]))
            group.create_task(stream.send([b"the end"]))
        await stream.end()
        await one.until(lambda: any(isinstance(event, StreamEnded) for event in one.seen))
        assert bytes(one.body) == data + b"the end"
        await stream.close()


async def test_who_is_cancelled_while_it_waits_for_room_has_sent_everything_all_the_same():
    async with peer(accept) as one:
        one.acknowledge = False
        stream = await HTTP2Stream.open(one.url)
        await stream.accepted()
        sending = asyncio.create_task(stream.send([b"x" * 100_000]))
        await one.until(lambda: len(one.body) == 65535)
        sending.cancel()
        await asyncio.wait([sending])
        one.h2.acknowledge_received_data(65535, 1)
        await one.flush()
        await one.until(lambda: len(one.body) == 100_000)
        await stream.send([b"y"])
        await one.until(lambda: one.body.endswith(b"y"))
        await stream.close()


async def test_a_server_may_not_send_more_than_was_taken_leaves_room_for():
    async with peer(accept) as one:
        stream = await HTTP2Stream.open(one.url)
        await stream.accepted()
        await one.until(lambda: one.h2.local_flow_control_window(1) > 65535)
        sent = 0
        while (room := min(one.h2.local_flow_control_window(1), one.h2.max_outbound_frame_size)) > 0:
            one.h2.send_data(1, b"z" * room)
            sent += room
        await one.flush()
        assert sent >= 256 * 1024
        found = 0
        while found < sent:
            found += len(await stream.receive() or b"")
        await one.until(lambda: one.h2.local_flow_control_window(1) > 0)
        await stream.close()


async def test_pings_are_answered_both_ways():
    async with peer(accept) as one:
        stream = await HTTP2Stream.open(one.url)
        await stream.accepted()
        one.h2.ping(b"12345678")
        await one.flush()
        await stream.ping()
        await stream.ping()
        assert sum(isinstance(event, PingReceived) for event in one.seen) == 2
        assert any(type(event).__name__ == "PingAckReceived" for event in one.seen)
        await stream.close()


async def test_a_goodbye_that_lets_the_request_finish_does_not_end_it():
    async with peer(echo) as one:
        stream = await HTTP2Stream.open(one.url)
        await stream.accepted()
        one.raw = bytes([0, 0, 8, 7, 0, 0, 0, 0, 0]) + (1).to_bytes(4, "big") + bytes(4)
        await one.flush()
        await stream.send([b"still here"])
        assert await stream.receive() == b"still here"
        await stream.end()
        assert await stream.receive() is None
        await stream.close()


def reset(one: Peer) -> None:
    one.h2.reset_stream(1, ErrorCodes.INTERNAL_ERROR)


def go_away(one: Peer) -> None:
    one.h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM, b"too much", 0)


def hang_up(one: Peer) -> None:
    assert one.writer is not None
    one.writer.transport.abort()


def talk_nonsense(one: Peer) -> None:
    one.raw = b"HTTP/1.1 400 Bad Request\r\n\r\n"


def break_the_rules(one: Peer) -> None:
    one.raw = bytes([0, 0, 1, 0, 0, 0, 0, 0, 9]) + b"x"  # DATA of a stream that nobody opened


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (reset, "RST_STREAM INTERNAL_ERROR"),
        (go_away, "GOAWAY ENHANCE_YOUR_CALM too much"),
        (hang_up, ""),
        (talk_nonsense, "no HTTP/2"),
        (break_the_rules, ""),
    ],
)
async def test_whoever_waits_is_told_how_the_wire_failed_after_what_had_come(what, told):
    async with peer(accept) as one:
        stream = await HTTP2Stream.open(one.url)
        await stream.accepted()
        one.h2.send_data(1, b"before")
        await one.flush()
        assert await stream.receive() == b"before"
        receiving = asyncio.create_task(stream.receive())
        await asyncio.sleep(0)
        what(one)
        if not one.writer.transport.is_closing():
            await one.flush()
        with pytest.raises(TransportError) as failed:
            await receiving
        assert failed.value.opened
        assert failed.value.code == 0
        assert failed.value.reason.startswith(told)
        with pytest.raises(TransportError):
            await stream.send([b"x"])
        with pytest.raises(TransportError):
            await stream.ping()
        await stream.close()


async def test_a_sender_that_waits_for_room_learns_that_the_stream_was_reset():
    async with peer(accept) as one:
        one.acknowledge = False
        stream = await HTTP2Stream.open(one.url)
        await stream.accepted()
        sending = asyncio.create_task(stream.send([b"x" * 100_000]))
        await one.until(lambda: len(one.body) == 65535)
        reset(one)
        await one.flush()
        with pytest.raises(TransportError, match="reset"):
            await sending
        await stream.close()


async def test_a_refusal_is_an_error_with_its_status_and_words_but_not_with_what_was_told_in_confidence():
    def on(one: Peer, event: object) -> None:
        if isinstance(event, RequestReceived):
            token = dict(event.headers)["x-amz-security-token"]
            one.h2.send_headers(1, [(":status", "403"), ("x-amzn-errortype", "Refused")])
            one.h2.send_data(1, f"no: the canonical string has {token} in it".encode(), end_stream=True)

    async with peer(on) as one:
        stream = await HTTP2Stream.open(one.url, headers=[("x-amz-security-token", "a-long-secret-token")])
        with pytest.raises(TransportError) as refused:
            await stream.receive()
        assert refused.value.code == 403
        assert refused.value.reason == "no: the canonical string has (not shown) in it"
        assert stream.headers["x-amzn-errortype"] == "Refused"
        await stream.close()


async def test_no_log_has_the_headers_in_it(caplog):
    caplog.set_level(logging.DEBUG)
    async with peer(echo) as one:
        stream = await HTTP2Stream.open(one.url, headers=[("x-amz-security-token", "a-long-secret-token")])
        await stream.accepted()
        await stream.close()
    assert "a-long-secret-token" not in "".join(
        record.getMessage() for record in caplog.records if "decod" not in record.getMessage().lower()
    )


async def test_a_cancelled_receiver_loses_nothing():
    async with peer(echo) as one:
        stream = await HTTP2Stream.open(one.url)
        await stream.accepted()
        receiving = asyncio.create_task(stream.receive())
        await asyncio.sleep(0)
        receiving.cancel()
        await asyncio.wait([receiving])
        await stream.send([b"kept"])
        assert await stream.receive() == b"kept"
        await stream.close()


async def test_where_nobody_listens_the_wire_was_never_open():
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(TransportError, match="cannot be reached") as failed:
        await HTTP2Stream.open(f"http://127.0.0.1:{port}/")
    assert not failed.value.opened


async def test_a_server_whom_nobody_trusts_is_not_spoken_to():
    async with peer(accept, tls=LoopbackAuthority().server_context("h2")) as one:
        with pytest.raises(TransportError, match="certificate") as failed:
            await HTTP2Stream.open(one.url)
        assert not failed.value.opened


async def test_a_server_that_does_not_offer_http2_is_not_spoken_to():
    authority = LoopbackAuthority()
    async with peer(accept, tls=authority.server_context("http/1.1")) as one:
        with pytest.raises(TransportError, match="does not offer HTTP/2") as failed:
            await HTTP2Stream.open(one.url, tls=authority.client_context())
        assert not failed.value.opened


@pytest.mark.parametrize("url", ["http://example.org/", "ftp://localhost/", "https://", "localhost"])
async def test_only_loopback_is_spoken_to_without_tls(url):
    with pytest.raises(InvalidInputError, match="https"):
        await HTTP2Stream.open(url)


async def test_a_client_that_leaves_says_goodbye():
    async with peer(accept) as one:
        stream = await HTTP2Stream.open(one.url)
        await stream.accepted()
        await stream.close()
        await one.until(lambda: any(type(event).__name__ == "ConnectionTerminated" for event in one.seen))
        assert not any(isinstance(event, StreamReset) for event in one.seen)


async def test_a_wire_to_a_server_that_takes_nothing_any_more_closes_within_a_bound():
    def on(one: Peer, event: object) -> None:
        accept(one, event)

    async with peer(on) as one:
        one.acknowledge = False
        stream = await HTTP2Stream.open(one.url)
        await stream.accepted()
        sending = asyncio.create_task(stream.send([b"x" * 500_000]))
        await one.until(lambda: len(one.body) == 65535)
        async with asyncio.timeout(5):
            await stream.close()
        with pytest.raises(TransportError):
            await sending
