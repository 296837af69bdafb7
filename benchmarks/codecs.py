"""The load of the codecs suite: sound over loopback, both ways, with the provider's end in another process.

Standard library only: peers' interpreters run it, too. CPU is that of the process that talks: the wire, the protocol, and
what hands the events out; not the provider's end.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from benchmarks.child import Numbers, Work

ROUNDS = 5


class Line(Protocol):
    """A subject's end of the wire."""

    async def start(self, url: str) -> None:
        """Open a session at `url`, which has no path; its scheme is the protocol's, without TLS."""
        ...

    async def hear(self) -> None:
        """Send a frame of the user's sound."""
        ...

    async def take(self, sounds: int) -> None:
        """Receive so many pieces of sound, as bytes of PCM."""
        ...

    async def stop(self) -> None:
        """Release everything."""
        ...


def codec_cases(
    protocol: str, *, model: Callable[[], Line], agent: Callable[[], Line] | None = None
) -> dict[str, Work]:
    """The cases of one protocol: sound out of the model, out of an agent with that model, and into the model."""
    cases: dict[str, Work] = {
        f"{protocol}_out": partial(_out, protocol, model, f"{protocol}_out_us"),
        f"{protocol}_in": partial(_in, protocol, model),
    }
    if agent is not None:
        cases[f"{protocol}_agent"] = partial(_out, protocol, agent, f"{protocol}_agent_us")
    return cases


@asynccontextmanager
async def far_end(protocol: str, burst: int) -> AsyncIterator[str]:
    """The provider's end, as an address."""
    command = [sys.executable, "-m", "benchmarks.far_end", protocol, str(burst)]
    child = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        scheme = "http" if protocol == "nova" else "ws"
        yield f"{scheme}://127.0.0.1:{int(await child.stdout.readline())}"
    finally:
        child.stdin.close()
        await child.wait()


async def _out(protocol: str, make: Callable[[], Line], key: str, *, quick: bool) -> Numbers:
    burst = 200 if quick else 10_000
    rounds: list[float] = []
    async with far_end(protocol, burst) as url:
        line = make()
        await line.start(url)
        for _ in range(1 if quick else ROUNDS):
            gc.collect()
            begin = time.process_time()
            await line.hear()
            await line.take(burst)
            rounds.append((time.process_time() - begin) / burst * 1e6)
        await line.stop()
    return {key: min(rounds)}


async def _in(protocol: str, make: Callable[[], Line], *, quick: bool) -> Numbers:
    frames = 200 if quick else 10_000
    rounds: list[float] = []
    async with far_end(protocol, 0) as url:
        line = make()
        await line.start(url)
        for _ in range(1 if quick else ROUNDS):
            gc.collect()
            begin = time.process_time()
            for _ in range(frames):
                await line.hear()
            rounds.append((time.process_time() - begin) / frames * 1e6)
        await line.stop()
    return {f"{protocol}_in_us": min(rounds)}
