"""Hooks: callbacks that run at named moments of an agent's life.

The registry knows events, not agents. Who may listen to what is said by types: an event for `Agent`s is refused on a
`BidiAgent` by `add_hook`'s signature.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, cast, runtime_checkable

from typing_extensions import TypeVar

from antiphon.errors import HookRegistrationError, InvalidInputError
from antiphon.interrupts import Interrupt, InterruptException

Agent_contra = TypeVar("Agent_contra", contravariant=True)


class EventFor(Protocol[Agent_contra]):
    """Bound of `add_hook`: an event that may be shown to callbacks of this agent. Exists for type checkers only."""

    @property
    def _shown_to(self) -> Callable[[Agent_contra], None]: ...


@dataclass(kw_only=True)
class BaseHookEvent:
    """Base of all hook events.

    Fields cannot be assigned, save those a class names in `writable`.

    Attributes:
        synchronous: Only synchronous callbacks may listen.
        reverse: Callbacks of one order run last-registered first, so that clean-up mirrors set-up.
        writable: Names of the fields a callback may assign.
    """

    synchronous: ClassVar[bool] = False
    reverse: ClassVar[bool] = False
    writable: ClassVar[frozenset[str]] = frozenset()

    if TYPE_CHECKING:

        @property
        def _shown_to(self) -> Callable[[Any], None]: ...

    def __post_init__(self) -> None:
        self.__dict__["_sealed"] = True

    def __setattr__(self, name: str, value: Any) -> None:
        if "_sealed" in self.__dict__ and name not in self.writable:
            raise AttributeError(f"Property {name} is not writable")
        self.__dict__[name] = value


T = TypeVar("T")
HookCallback = Callable[[T], Awaitable[None] | None]
EventTypes = type[T] | Callable[..., T] | Sequence[type[T]] | Sequence[type[BaseHookEvent]] | None


class HookOrder:
    """Named places in the order of callbacks; lower runs first."""

    SDK_FIRST: ClassVar[float] = -100
    INTERVENTION_OUTPUT: ClassVar[float] = -90
    DEFAULT: ClassVar[float] = 0
    MODEL_ROUTING: ClassVar[float] = 50
    INTERVENTION_INPUT: ClassVar[float] = 90
    SDK_LAST: ClassVar[float] = 100


@runtime_checkable
class HookProvider(Protocol):
    """An object that brings several callbacks."""

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        """Add callbacks to `registry`."""
        ...


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    """A registration. `number` counts registrations: one that names several classes hears an event once."""

    order: float
    number: int
    callback: HookCallback[T]


class HookRegistry:
    """Callbacks by event class, in order.

    A callback registered for a class also hears its subclasses. What is registered while an event is told hears the
    next one.
    """

    def __init__(self) -> None:
        self._entries: dict[type[BaseHookEvent], list[_Entry[Any]]] = {}
        self._plans: dict[type[BaseHookEvent], tuple[HookCallback[Any], ...]] = {}
        self._count = 0

    def add_callback(self, event_type: EventTypes[T], callback: HookCallback[T], *, order: float = 0) -> None:
        """Call `callback` with each event of these classes.

        Args:
            event_type: An event class, a list of them, or None to read them from the first parameter's annotation
                (unions count for each member).
            callback: A function or object, synchronous or asynchronous.
            order: Lower runs first; equal ones in order of registration (after-events: reversed).

        Raises:
            HookRegistrationError: If no event class can be told, or an asynchronous callback is added to an event that
                takes synchronous ones only.
        """
        if not callable(callback):
            raise HookRegistrationError(f"callback={callback!r} cannot be called")
        if math.isnan(order):
            raise HookRegistrationError(f"order={order!r} is no place in an order")
        kinds = _event_types(event_type, callback)
        for kind in kinds:
            if kind.synchronous and is_async(callback):
                raise HookRegistrationError(f"{kind.__name__} can only be registered with a synchronous callback")
        self._count += 1
        for kind in kinds:
            self._entries.setdefault(kind, []).append(_Entry(order, self._count, callback))
        self._plans = {}

    def add_hook(self, provider: HookProvider) -> None:
        """Let `provider` register its callbacks.

        Raises:
            HookRegistrationError: If it has no `register_hooks`.
        """
        if not isinstance(cast("object", provider), HookProvider):
            raise HookRegistrationError(f"hook={provider!r} has no register_hooks: pass a callback to agent.add_hook")
        provider.register_hooks(self)

    def has_callbacks(self) -> bool:
        """Whether anybody listens to anything."""
        return bool(self._entries)

    def listens(self, event_type: type[BaseHookEvent]) -> bool:
        """Whether anybody listens to events of this class. Costs a dict look-up: use it on hot paths."""
        return bool(self._plan(event_type))

    def get_callbacks_for(self, event: BaseHookEvent) -> tuple[HookCallback[Any], ...]:
        """The callbacks of an event, in the order in which they are called."""
        return self._plan(type(event))

    def _plan(self, kind: type[BaseHookEvent]) -> tuple[HookCallback[Any], ...]:
        plans = self._plans  # one object for the whole method: another thread may register meanwhile
        plan = plans.get(kind)
        if plan is None:
            entries = {entry.number: entry for base in kind.__mro__ for entry in self._entries.get(base, ())}
            turn = -1 if kind.reverse else 1
            ordered = sorted(entries.values(), key=lambda entry: (entry.order, turn * entry.number))
            plan = plans[kind] = tuple(entry.callback for entry in ordered)
        return plan

    def invoke_callbacks(self, event: T) -> tuple[T, list[Interrupt]]:
        """Call the listeners one after the other; an error of one stops the rest.

        Returns:
            The event, and the questions that callbacks asked.

        Raises:
            HookRegistrationError: If a listener is asynchronous. None is called then, unless it can only be told
                afterwards, from what a listener returns.
            InvalidInputError: If two listeners ask questions of one name.
        """
        plan = self._plan(cast("type[BaseHookEvent]", type(event)))
        if any(is_async(callback) for callback in plan):
            raise _needs_await(event)
        questions: list[Interrupt] = []
        for callback in plan:
            try:
                result = callback(event)
            except InterruptException as asked:
                _collect(questions, asked.interrupt)
            else:
                if result is not None and inspect.isawaitable(result):
                    if inspect.iscoroutine(result):
                        result.close()
                    raise _needs_await(event)
        return event, questions

    async def invoke_callbacks_async(self, event: T) -> tuple[T, list[Interrupt]]:
        """Like `invoke_callbacks`, and awaits whatever a listener returns that can be awaited.

        Raises:
            InvalidInputError: If two listeners ask questions of one name.
        """
        questions: list[Interrupt] = []
        for callback in self._plan(cast("type[BaseHookEvent]", type(event))):
            try:
                result = callback(event)
                if result is not None and inspect.isawaitable(result):
                    await result
            except InterruptException as asked:
                _collect(questions, asked.interrupt)
        return event, questions


def _needs_await(event: object) -> HookRegistrationError:
    return HookRegistrationError(f"event=<{event}> | use invoke_callbacks_async to invoke async callback")


def _collect(questions: list[Interrupt], question: Interrupt) -> None:
    if any(known.name == question.name for known in questions):
        raise InvalidInputError(f"interrupt_name=<{question.name}> | interrupt name used more than once")
    questions.append(question)


def is_async(callback: Callable[..., Any]) -> bool:
    """Whether calling `callback` gives something to await: a coroutine function, or an object with such a `__call__`."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
        getattr(callback, "__call__", None)  # noqa: B004 - asks for the method, not whether there is one
    )


def _event_types(event_type: object, callback: Callable[..., Any]) -> list[type[BaseHookEvent]]:
    if event_type is None:
        found = _members(_first_hint(callback))
    elif isinstance(event_type, (list, tuple)):
        if not event_type:
            raise HookRegistrationError("event_type list cannot be empty")
        found = [member for item in cast("list[object]", event_type) for member in _members(item)]
    else:
        found = _members(event_type)
    kinds: list[type[BaseHookEvent]] = []
    for kind in found:
        if not isinstance(kind, type) or not issubclass(kind, BaseHookEvent):
            raise HookRegistrationError(f"Invalid event type: {kind!r} must be a subclass of BaseHookEvent")
        if kind not in kinds:
            kinds.append(kind)
    return kinds


def _members(hint: object) -> list[object]:
    origin = typing.get_origin(hint)
    if origin is typing.Union or origin is types.UnionType:
        members = typing.get_args(hint)
        if type(None) in members:
            raise HookRegistrationError("None is not a valid event type in union")
        return [member for item in members for member in _members(item)]
    return [hint if origin is None else origin]


def _first_hint(callback: Callable[..., Any]) -> object:
    function = callback
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    function = inspect.unwrap(function)
    try:
        first = next(iter(inspect.signature(callback).parameters.values()), None)
        if first is None or first.annotation is inspect.Parameter.empty:
            raise HookRegistrationError(
                f"callback={callback!r} has no type hint | cannot infer event type, "
                "please provide event_type explicitly"
            )
        if not isinstance(first.annotation, str):
            return first.annotation
        # Only this one: another annotation may name what only a type checker sees.
        scope = {**getattr(function, "__globals__", {}), **inspect.getclosurevars(function).nonlocals}
        return typing.get_type_hints(_Hint(first.annotation), globalns=scope)["event"]
    except (TypeError, ValueError, NameError, AttributeError, SyntaxError) as error:
        if isinstance(error, HookRegistrationError):
            raise
        raise HookRegistrationError(
            f"callback={callback!r} | cannot infer event type ({error}), please provide event_type explicitly"
        ) from error


class _Hint:
    """Carries one annotation to `get_type_hints`."""

    def __init__(self, annotation: str) -> None:
        self.__annotations__ = {"event": annotation}
