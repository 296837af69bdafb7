"""Application state of an agent: JSON values by key."""

from __future__ import annotations

import copy
import threading
from typing import Any, overload

from antiphon.errors import InvalidInputError
from antiphon.jsonable import copy_json


class AgentState:
    """JSON values by key; what goes in and what comes out are copies.

    Every change is checked when it is made, so that a save can never fail on it.

    >>> state = AgentState({"cart": ["tea"]})
    >>> state.set("seats", 2)
    >>> state.get("cart"), state.get("seats"), state.get("missing")
    (['tea'], 2, None)
    """

    __slots__ = ("_data", "_lock", "_version")

    def __init__(self, initial: dict[str, Any] | None = None) -> None:
        """Start with a copy of `initial`.

        Raises:
            NotJsonError: If a value is not JSON; its path is in the message.
            InvalidInputError: If `initial` is not a dict.
        """
        self._lock = threading.RLock()
        self._data: dict[str, Any] = _checked({} if initial is None else initial)
        self._version = 0

    @property
    def version(self) -> int:
        """How often the state was changed."""
        return self._version

    @overload
    def get(self) -> dict[str, Any]: ...
    @overload
    def get(self, key: str, default: Any = None) -> Any: ...
    def get(self, key: str | None = None, default: Any = None) -> Any:
        """A copy of the value at `key` (`default` when there is none), or of the whole state."""
        with self._lock:
            if key is None:
                return copy.deepcopy(self._data)
            return copy.deepcopy(self._data[key]) if key in self._data else default

    def set(self, key: str, value: Any) -> None:
        """Store a copy of `value`.

        Raises:
            InvalidInputError: If `key` is not a non-blank string.
            NotJsonError: If `value` is not JSON.
        """
        if not isinstance(key, str) or not key.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(f"key={key!r} is not a non-blank string")
        value = copy_json(value, f"state.{key}", binary=False)
        with self._lock:
            self._data[copy_json(key, "state")] = value
            self._version += 1

    def delete(self, key: str) -> None:
        """Remove `key`; nothing happens when it is not there."""
        with self._lock:
            if key in self._data:
                del self._data[key]
                self._version += 1

    def replace(self, data: dict[str, Any]) -> None:
        """Put a copy of `data` in place of everything.

        Raises:
            NotJsonError: If a value is not JSON; nothing is changed then.
        """
        data = _checked(data)
        with self._lock:
            self._data = data
            self._version += 1

    def __repr__(self) -> str:
        return f"AgentState({self._data!r})"


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(data, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"state={data!r} is not a dict")
    copied: dict[str, Any] = copy_json(data, "state", binary=False)
    return copied
