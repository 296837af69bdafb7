"""The provider's end of Nova Sonic: HTTP/2, event streams and signatures, from the pieces of Antiphon's own loopback server."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from contextlib import suppress
from datetime import UTC, datetime

from antiphon.clock import SYSTEM_CLOCK
from antiphon.testing.servers.nova_line import PROTOCOL_ERRORS, Line, Manners, Refusal, verify
from antiphon.testing.servers.nova_sonic import CREDENTIALS
from antiphon.transports.eventstream import encode_message
from benchmarks.load import FRAME

_HEADERS = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
_NAMES = {"sessionId": "bench", "promptName": "bench", "completionId": "bench", "contentId": "sound"}


def _message(name: str, body: dict[str, object]) -> bytes:
    inner = base64.b64encode(json.dumps({"event": {name: {**_NAMES, **body}}}).encode()).decode()
    return encode_message(_HEADERS, json.dumps({"bytes": inner, "p": "abcdefghijk"}).encode())


async def main(burst: int) -> None:
    """Serve until the standard input ends: one answer without an end, `burst` pieces of it for each event of sound."""
    start = {
        "type": "AUDIO",
        "role": "ASSISTANT",
        "audioOutputConfiguration": {"mediaType": "audio/lpcm", "sampleRateHertz": 24000},
    }
    begin = _message("contentStart", start)
    piece = _message("audioOutput", {"role": "ASSISTANT", "content": base64.b64encode(FRAME).decode()})

    def check(line: Line, headers: dict[str, str]) -> Refusal | None:
        verifier, refusal = verify(headers, CREDENTIALS, now=datetime.now(UTC), region="us-east-1", scheme="http")
        if verifier is not None:
            line.trust(verifier)
        return refusal

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        news = asyncio.Event()
        line = Line(reader, writer, clock=SYSTEM_CLOCK, manners=Manners(), check=check, note=news.set)

        async def answer() -> None:
            heard, begun = 0, False
            while True:
                await news.wait()
                news.clear()
                if burst and len(line.session.sound) > heard:
                    heard = len(line.session.sound)
                    if not begun:
                        begun = True
                        await line.message(begin)
                    for _ in range(burst):
                        await line.message(piece)

        with suppress(asyncio.CancelledError):  # the end of the process
            async with asyncio.TaskGroup() as group:
                player = group.create_task(answer())
                with suppress(*PROTOCOL_ERRORS):
                    await line.serve()
                player.cancel()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()
