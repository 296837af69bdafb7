"""A websocket to a provider."""

from __future__ import annotations

import asyncio
import logging

import pytest
from websockets.asyncio.server import serve

from antiphon.errors import TransportError
from antiphon.transports.websocket import WebSocket


async def url_of(server) -> str:
    return f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


async def echo(connection) -> None:
    async for frame in connection:
        await connection.send(frame)


async def test_frames_come_back_whole_and_in_order():
    async with serve(echo, "127.0.0.1", 0, max_size=None) as server:
        wire = await WebSocket.open(await url_of(server))
        frames = ["text", b"bytes", "", "x" * 3_000_000]
        await wire.send(frames)
        assert [await wire.receive() for _ in frames] == frames
        await wire.close()
        await wire.close()
        assert await wire.receive() is None
        with pytest.raises(TransportError):
            await wire.send(["more"])


async def test_cancelling_loses_no_frame():
    async with serve(echo, "127.0.0.1", 0) as server:
        wire = await WebSocket.open(await url_of(server))
        waiting = asyncio.ensure_future(wire.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await wire.send(["kept"])
        assert await wire.receive() == "kept"
        await wire.close()


async def test_a_close_says_why():
    async def close(connection) -> None:
        await connection.close(1011, "Deadline expired")

    async with serve(close, "127.0.0.1", 0) as server:
        wire = await WebSocket.open(await url_of(server))
        with pytest.raises(TransportError) as ended:
            await wire.receive()
        assert (ended.value.code, ended.value.reason, ended.value.opened) == (1011, "Deadline expired", True)
        await wire.close()


async def test_a_line_that_dies_is_an_error():
    async def die(connection) -> None:
        connection.transport.abort()
        await connection.wait_closed()

    async with serve(die, "127.0.0.1", 0) as server:
        wire = await WebSocket.open(await url_of(server))
        with pytest.raises(TransportError) as ended:
            await wire.receive()
        assert ended.value.code == 0
        await wire.close()


async def test_a_refusal_has_its_status_and_its_words_but_not_what_was_sent():
    def refuse(connection, request):
        return connection.respond(401, f"no: {request.headers['Authorization']} and {request.headers['X-Key']}")

    async with serve(echo, "127.0.0.1", 0, process_request=refuse) as server:
        with pytest.raises(TransportError) as refused:
            await WebSocket.open(
                await url_of(server), headers={"Authorization": "Bearer secret-0123", "X-Key": "another-secret"}
            )
    assert (refused.value.code, refused.value.opened) == (401, False)
    assert "no:" in refused.value.reason
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "address", ["ws://127.0.0.1:9", "wss://127.0.0.1:9", "ws://[", "http://127.0.0.1:9", "ws://:x"]
)
async def test_an_address_where_nobody_listens_is_an_error(address):
    with pytest.raises(TransportError) as refused:
        await WebSocket.open(address)
    assert not refused.value.opened


async def test_neither_headers_nor_frames_are_logged(caplog):
    caplog.set_level(logging.DEBUG)
    async with serve(echo, "127.0.0.1", 0, logger=logging.getLogger("server")) as server:
        wire = await WebSocket.open(await url_of(server), headers={"Authorization": "Bearer secret-0123"})
        await wire.send(["what was said"])
        await wire.receive()
        await wire.close()
    client = [record.getMessage() for record in caplog.records if record.name != "server"]
    assert not [line for line in client if "secret" in line or "what was said" in line]


async def test_a_frame_that_breaks_the_protocol_is_not_taken_for_a_close_of_the_server():
    async def babble(connection) -> None:
        await connection.send(b"\xff\xfe", text=True)
        await connection.wait_closed()

    async with serve(babble, "127.0.0.1", 0) as server:
        wire = await WebSocket.open(await url_of(server))
        with pytest.raises(TransportError, match="given up") as given_up:
            await wire.receive()
        assert given_up.value.code == 0
        assert given_up.value.opened
        await wire.close()


async def test_a_server_that_repeats_the_key_when_it_closes_does_not_make_it_known():
    key = "sk-very-secret-key"

    async def tell(connection) -> None:
        await connection.close(1008, f"no such key: {key}")

    async with serve(tell, "127.0.0.1", 0) as server:
        wire = await WebSocket.open(await url_of(server), headers={"Authorization": f"Bearer {key}"})
        with pytest.raises(TransportError, match="no such key") as closed:
            await wire.receive()
        for doing in (wire.receive(), wire.send(["x"])):
            with pytest.raises(TransportError):
                await doing
        error: BaseException | None = closed.value
        assert closed.value.code == 1008
        while error is not None:
            assert key not in f"{error!s} {error!r} {getattr(error, 'reason', '')}"
            error = error.__cause__ or error.__context__
        await wire.close()


async def test_a_proxy_that_cannot_be_used_is_an_error_without_its_password(monkeypatch):
    monkeypatch.setenv("https_proxy", "ftp://user:pass-word@127.0.0.1:9")
    with pytest.raises(TransportError, match="HTTPS_PROXY") as refused:
        await WebSocket.open("wss://api.example.com/v1")
    error: BaseException | None = refused.value
    assert not refused.value.opened
    while error is not None:
        assert "pass-word" not in str(error)
        error = error.__cause__ or error.__context__
