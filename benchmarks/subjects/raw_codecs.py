"""The least that a client in this Python does: `websockets` and `json`, no events, no state."""

from __future__ import annotations

import base64
import json

from websockets.asyncio.client import connect

from benchmarks.child import main
from benchmarks.codecs import codec_cases
from benchmarks.load import FRAME


class OpenAILine:
    """OpenAI's Realtime API."""

    async def start(self, url: str) -> None:
        self._connection = await connect(f"{url}/v1/realtime?model=gpt-realtime-2", max_size=None, compression=None)
        await self._connection.recv()
        await self._connection.send(json.dumps({"type": "session.update", "session": {"type": "realtime"}}))
        await self._connection.recv()

    async def hear(self) -> None:
        sound = base64.b64encode(FRAME).decode()
        await self._connection.send(json.dumps({"type": "input_audio_buffer.append", "audio": sound}))

    async def take(self, sounds: int) -> None:
        while sounds:
            event = json.loads(await self._connection.recv())
            if event["type"] == "response.output_audio.delta":
                base64.b64decode(event["delta"])
                sounds -= 1

    async def stop(self) -> None:
        await self._connection.close()


class GeminiLine:
    """Gemini Live."""

    async def start(self, url: str) -> None:
        self._connection = await connect(url, max_size=None, compression=None)
        await self._connection.send(json.dumps({"setup": {"model": "models/gemini-3.8-live"}}))
        await self._connection.recv()

    async def hear(self) -> None:
        sound = {"data": base64.b64encode(FRAME[:640]).decode(), "mimeType": "audio/pcm;rate=16000"}
        await self._connection.send(json.dumps({"realtimeInput": {"audio": sound}}))

    async def take(self, sounds: int) -> None:
        while sounds:
            event = json.loads(await self._connection.recv())
            for part in event["serverContent"]["modelTurn"]["parts"]:
                base64.b64decode(part["inlineData"]["data"])
                sounds -= 1

    async def stop(self) -> None:
        await self._connection.close()


if __name__ == "__main__":
    main({**codec_cases("openai", model=OpenAILine), **codec_cases("gemini", model=GeminiLine)})
