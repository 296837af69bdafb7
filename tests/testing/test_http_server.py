"""The HTTP server on loopback ends with its context, whatever it is in the middle of."""

import asyncio

from antiphon.testing.servers.http import HTTPResponse, HTTPServer


async def test_a_server_ends_in_the_middle_of_an_answer_that_is_held():
    reached = asyncio.Event()
    ended = asyncio.Event()

    async def body():
        try:
            yield b"first"
            reached.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def handler(request):
        return HTTPResponse(body=body())

    async with HTTPServer(handler) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: loopback\r\n\r\n")
        await reached.wait()
    await ended.wait()
    await reader.read()
    writer.close()
