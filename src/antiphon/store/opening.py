"""Stores by URL."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from antiphon.errors import InvalidTypeError, SessionRowError
from antiphon.store.line_store import LineStore

# Loaded on first use: a scheme's function takes the whole URL and `open_store`'s other arguments.
_SCHEMES = {
    "memory": "antiphon.store.memory:open_url",
    "file": "antiphon.store.file:open_url",
    "sqlite": "antiphon.store.sqlite:open_url",
    "postgresql": "antiphon.store.postgres:open_url",
    "postgres": "antiphon.store.postgres:open_url",
}


def open_store(url: str, **options: Any) -> LineStore:
    """The session store that a URL names.

    `memory:`, `file:<folder>`, `sqlite:<path>` or `postgresql://...`; paths are relative unless they begin with `/`. A
    PostgreSQL URL has the parameters of libpq, and `schema`: `postgresql://host/database?schema=talks`.

    Args:
        url: Where.
        **options: For the store's class, such as `prefix=`.

    Raises:
        InvalidTypeError: If `url` is not a string.
        SessionRowError: If no store has this scheme.
        MissingExtraError: If its package is not installed.

    >>> open_store("memory:").sync.get_snapshot("s1") is None
    True
    """
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller without types
        raise InvalidTypeError(f"url={url!r} is not a string, such as 'sqlite:sessions.db'")
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in _SCHEMES:
        # Not the whole URL: it may hold a password.
        raise SessionRowError(f"no store is called {scheme!r}: use one of {', '.join(f'{name}:' for name in _SCHEMES)}")
    module, _, name = _SCHEMES[scheme].partition(":")
    opener = cast("Callable[..., LineStore]", getattr(import_module(module), name))
    return opener(url, **options)
