"""The provider's end of a wire, in a process of its own: `python -m benchmarks.far_end PROTOCOL BURST`.

It opens sessions, and answers each frame of the user's sound with BURST pieces of 20 ms of an answer, as fast as the wire
takes them. It tells its port on the first line it prints. Standard library and `websockets` only: peers' interpreters run it,
but for Nova Sonic, which no peer here speaks without AWS's own service (`benchmarks/far_end_nova.py`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from benchmarks.load import FRAME

_SOUND = base64.b64encode(FRAME).decode()


async def openai(connection: ServerConnection, burst: int) -> None:
    """OpenAI's Realtime API: one response without an end."""
    session = {"id": "sess_1", "type": "realtime", "object": "realtime.session", "model": "gpt-realtime-2"}
    at = {"response_id": "resp_1", "item_id": "item_1", "output_index": 0, "content_index": 0}
    response = {"object": "realtime.response", "id": "resp_1", "status": "in_progress", "output": []}
    await _tell(connection, "session.created", session=session)
    begun = False
    pieces = [
        json.dumps({"type": "response.output_audio.delta", "event_id": f"event_{number}", **at, "delta": _SOUND})
        for number in range(50)
    ]
    async for frame in connection:
        kind = frame[:60] if isinstance(frame, str) else ""
        if "input_audio_buffer.append" in kind:
            if burst and not begun:
                begun = True
                await _tell(connection, "response.created", response=response)
            for number in range(burst):
                await connection.send(pieces[number % len(pieces)])
        elif "session.update" in kind:
            await _tell(connection, "session.updated", session=session)


async def gemini(connection: ServerConnection, burst: int) -> None:
    """Gemini Live: one answer without an end. It sends JSON in binary frames."""
    part = {"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": _SOUND}}
    piece = json.dumps({"serverContent": {"modelTurn": {"role": "model", "parts": [part]}}}).encode()
    async for frame in connection:
        kind = frame[:60] if isinstance(frame, str) else ""
        if '"audio"' in kind:
            for _ in range(burst):
                await connection.send(piece)
        elif '"setup"' in kind:
            await connection.send(json.dumps({"setupComplete": {}}).encode())


async def _tell(connection: ServerConnection, kind: str, **fields: Any) -> None:
    await connection.send(json.dumps({"type": kind, "event_id": "event_0", **fields}))


PROTOCOLS: dict[str, Callable[[ServerConnection, int], Awaitable[None]]] = {"openai": openai, "gemini": gemini}
"""Those that are spoken over websockets."""


async def main() -> None:
    """Serve until the standard input ends."""
    name, burst = sys.argv[1], int(sys.argv[2])
    if name == "nova":
        from benchmarks import far_end_nova

        await far_end_nova.main(burst)
        return
    protocol = PROTOCOLS[name]

    async def talk(connection: ServerConnection) -> None:
        await protocol(connection, burst)

    async with serve(talk, "127.0.0.1", 0, max_size=None, compression=None, ping_interval=None) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
