"""Asynchronous work for callers that are not: also inside a running event loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end and return what it returns.

    Without a running event loop it runs here; within one, on a thread and a loop of its own, and the caller's loop stands
    still meanwhile. Context variables are the caller's.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1, "antiphon-blocking") as pool:
        return pool.submit(lambda: context.run(asyncio.run, work())).result()
