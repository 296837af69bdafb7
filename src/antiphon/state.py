"""Application state of an agent: JSON values by key."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from antiphon.errors import InvalidInputError, InvalidTypeError
from antiphon.jsonable import copy_json

T = TypeVar("T")


class AgentState:
    """JSON values by key; what goes in and what comes out are copies.

    Every change is checked when it is made, so that a save can never fail on it.

    >>> state = AgentState({"cart": ["tea"]})
    >>> state.set("seats", 2)
    >>> state.get("cart"), state.get("seats"), state.get("missing")
    (['tea'], 2, None)
    """

    __slots__ = ("_data", "_lock", "_version", "_watchers")

    def __init__(self, initial: dict[str, Any] | None = None) -> None:
        """Start with a copy of `initial`.

        Raises:
            NotJsonError: If a value is not JSON; its path is in the message.
            InvalidInputError: If `initial` is not a dict.
        """
        self._lock = threading.RLock()
        self._data: dict[str, Any] = _checked({} if initial is None else initial)
        self._version = 0
        self._watchers: tuple[Callable[[dict[str, Any]], None], ...] = ()

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
            self._changed()

    def delete(self, key: str) -> None:
        """Remove `key`; nothing happens when it is not there."""
        with self._lock:
            if key in self._data:
                del self._data[key]
                self._changed()

    def replace(self, data: dict[str, Any]) -> None:
        """Put a copy of `data` in place of everything.

        Raises:
            NotJsonError: If a value is not JSON; nothing is changed then.
        """
        data = _checked(data)
        with self._lock:
            self._data = data
            self._changed()

    def update(self, fn: Callable[[dict[str, Any]], dict[str, Any] | None]) -> dict[str, Any]:
        """Read, change and write the whole state as one step: no other change comes between.

        Args:
            fn: Gets a copy of the state. It returns the new state, or None when it has changed the copy in place. It must
                not wait for anything: others wait for it.

        Returns:
            A copy of the new state.

        Raises:
            InvalidTypeError: If `fn` is asynchronous; nothing is changed then.
            NotJsonError: If a value is not JSON; nothing is changed then.

        >>> AgentState({"count": 1}).update(lambda state: {"count": state["count"] + 1})
        {'count': 2}
        """
        with self._lock:
            given = copy.deepcopy(self._data)
            returned = not_awaitable(fn(given))
            self._data = _checked(given if returned is None else returned)
            self._changed()
            return copy.deepcopy(self._data)

    def watch(self, watcher: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Call `watcher` after each change, in the order of the changes, on the thread that makes it.

        Args:
            watcher: Gets a copy of the whole state. It must neither wait nor raise.

        Returns:
            Ends it.
        """
        with self._lock:
            self._watchers = (*self._watchers, watcher)

        def end() -> None:
            with self._lock:
                self._watchers = tuple(other for other in self._watchers if other is not watcher)

        return end

    def _changed(self) -> None:
        """Count a change and tell it, under the lock: so they are told in their order."""
        self._version += 1
        for watcher in self._watchers:
            watcher(copy.deepcopy(self._data))

    def __repr__(self) -> str:
        return f"AgentState({self._data!r})"


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(data, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"state={data!r} is not a dict")
    copied: dict[str, Any] = copy_json(data, "state", binary=False)
    return copied


def not_awaitable(value: T) -> T:
    """`value`, which a function that must not be asynchronous has returned.

    Raises:
        InvalidTypeError: If it must be awaited.
    """
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise InvalidTypeError("the function is asynchronous: await what it needs first, and change the state then")
    return value


class TypedState(Generic[T]):
    """An agent's state, read and changed as a value of one type.

    Args:
        state: Where it is kept.
        read: Makes a value of the state.
        write: Makes the state of a value.
    """

    __slots__ = ("_read", "_state", "_write")

    def __init__(
        self, state: AgentState, read: Callable[[dict[str, Any]], T], write: Callable[[T], dict[str, Any]]
    ) -> None:
        self._state, self._read, self._write = state, read, write

    @classmethod
    def plain(cls, state: AgentState) -> TypedState[dict[str, Any]]:
        """A view without a type: dicts."""
        return TypedState(state, dict, dict)

    def get(self) -> T:
        """The value; changing it changes nothing that is kept.

        Raises:
            StateValidationError: If what is kept does not fit the type.
        """
        return self._read(self._state.get())

    def set(self, value: T) -> None:
        """Keep `value`.

        Raises:
            StateValidationError: If it does not fit the type; nothing is changed then.
        """
        self._state.replace(self._write(value))

    def update(self, fn: Callable[[T], T | None]) -> T:
        """Read, change and write as one step: no other change comes between.

        Args:
            fn: Gets the value. It returns the new one, or None when it has changed the value in place. It must not wait
                for anything.

        Returns:
            The new value.

        Raises:
            StateValidationError: If the value, old or new, does not fit the type; nothing is changed then.
            InvalidTypeError: If `fn` is asynchronous; nothing is changed then.
        """

        def change(data: dict[str, Any]) -> dict[str, Any]:
            value = self._read(data)
            returned = not_awaitable(fn(value))
            return self._write(value if returned is None else returned)

        return self._read(self._state.update(change))
