"""Which callbacks an event reaches, in which order, and what cannot be registered."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import HookRegistrationError, InvalidInputError
from antiphon.hooks.events import AgentInitializedEvent, HookEvent, MessageAddedEvent
from antiphon.hooks.registry import BaseHookEvent, HookOrder, HookProvider, HookRegistry
from antiphon.interrupts import Interrupt, InterruptException

if TYPE_CHECKING:
    from nowhere import Missing


@dataclass(kw_only=True)
class Opened(BaseHookEvent):
    place: str = ""


@dataclass(kw_only=True)
class OpenedLate(Opened):
    pass


@dataclass(kw_only=True)
class Closed(BaseHookEvent):
    reverse: ClassVar[bool] = True


@dataclass(kw_only=True)
class Built(BaseHookEvent):
    synchronous: ClassVar[bool] = True


@dataclass(kw_only=True)
class Judged(BaseHookEvent):
    writable: ClassVar[frozenset[str]] = frozenset({"verdict"})
    verdict: str = ""
    case: int = 0


class Heard(list[str]):
    """A callback per name, that writes the name down."""

    def by(self, name: str) -> Callable[[BaseHookEvent], None]:
        return lambda event: self.append(name)


# --- who hears what ---


def test_a_callback_hears_the_events_of_its_class_and_of_its_subclasses():
    heard, registry = Heard(), HookRegistry()
    registry.add_callback(Opened, heard.by("opened"))
    registry.add_callback(OpenedLate, heard.by("late"))
    registry.invoke_callbacks(Opened())
    assert heard == ["opened"]
    registry.invoke_callbacks(OpenedLate())
    assert heard == ["opened", "opened", "late"]


def test_a_callback_for_a_class_and_its_base_hears_an_event_once():
    heard, registry = Heard(), HookRegistry()
    registry.add_callback([Opened, OpenedLate, Opened], heard.by("a"))
    registry.invoke_callbacks(OpenedLate())
    assert heard == ["a"]


def test_callbacks_of_a_base_and_a_subclass_run_in_order_of_registration():
    heard, registry = Heard(), HookRegistry()
    registry.add_callback(Opened, heard.by("1"))
    registry.add_callback(OpenedLate, heard.by("2"))
    registry.add_callback(Opened, heard.by("3"))
    registry.invoke_callbacks(OpenedLate())
    assert heard == ["1", "2", "3"]


def test_the_event_class_is_read_from_the_first_parameter():
    def hear(event: Opened) -> None:
        heard.append(event.place)

    heard, registry = Heard(), HookRegistry()
    registry.add_callback(None, hear)
    registry.invoke_callbacks(Opened(place="door"))
    assert heard == ["door"]


def test_every_member_of_a_union_is_registered_however_it_is_written():
    def one(event: Opened | Closed) -> None: ...
    def two(event: Union[Opened, Closed]) -> None: ...  # noqa: UP007 - both ways are tested
    def three(event: Union[Opened, Judged | Closed]) -> None: ...  # noqa: UP007

    registry = HookRegistry()
    for callback in (one, two, three):
        registry.add_callback(None, callback)
    assert registry.get_callbacks_for(Opened()) == (one, two, three)
    assert registry.get_callbacks_for(Closed()) == (three, two, one)
    assert registry.get_callbacks_for(Judged()) == (three,)


def test_unions_and_lists_may_be_given_instead_of_a_class():
    heard, registry = Heard(), HookRegistry()
    registry.add_callback(Opened | Closed, heard.by("union"))
    registry.add_callback([Opened, Closed | Judged], heard.by("list"))
    registry.add_callback((Closed,), heard.by("tuple"))
    for event in (Opened(), Closed(), Judged()):
        registry.invoke_callbacks(event)
    assert heard == ["union", "list", "tuple", "list", "union", "list"]


def test_a_parameterised_event_stands_for_its_class():
    def hear(event: MessageAddedEvent[object]) -> None: ...

    registry = HookRegistry()
    registry.add_callback(None, hear)
    registry.add_callback(MessageAddedEvent[object], hear)
    event = MessageAddedEvent(agent=None, message={"role": "user", "content": []})
    assert registry.get_callbacks_for(event) == (hear, hear)


def test_only_the_first_annotation_must_exist_at_run_time():
    def hear(event: Opened, other: Missing | None = None) -> Missing | None:
        return None

    registry = HookRegistry()
    registry.add_callback(None, hear)
    assert registry.listens(Opened)


def test_methods_partials_and_objects_tell_their_event_too():
    class Listener:
        def hear(self, event: Opened) -> None:
            heard.append("method")

        @classmethod
        def hear_all(cls, event: Opened) -> None:
            heard.append("classmethod")

        def __call__(self, event: Opened) -> None:
            heard.append("object")

    def named(name: str, event: Opened) -> None:
        heard.append(name)

    heard, registry = Heard(), HookRegistry()
    for callback in (Listener().hear, Listener.hear_all, Listener(), functools.partial(named, "partial")):
        registry.add_callback(None, callback)
    registry.invoke_callbacks(Opened())
    assert heard == ["method", "classmethod", "object", "partial"]


def test_a_decorated_callback_is_read_where_it_was_written():
    def decorate(function):
        @functools.wraps(function)
        def inner(*args):
            return function(*args)

        return inner

    @decorate
    def hear(event: Opened) -> None: ...

    registry = HookRegistry()
    registry.add_callback(None, hear)
    assert registry.get_callbacks_for(Opened()) == (hear,)


def test_nobody_listens_until_somebody_is_registered():
    registry = HookRegistry()
    assert not registry.has_callbacks()
    assert not registry.listens(OpenedLate)
    registry.add_callback(Opened, print)
    assert registry.has_callbacks()
    assert registry.listens(OpenedLate)
    assert not registry.listens(Closed)


def test_what_is_registered_while_an_event_is_told_hears_the_next_one():
    heard, registry = Heard(), HookRegistry()

    def once(event: Opened) -> None:
        heard.append("once")
        registry.add_callback(Opened, heard.by("more"))

    registry.add_callback(None, once)
    registry.invoke_callbacks(Opened())
    assert heard == ["once"]
    registry.invoke_callbacks(Opened())
    assert heard == ["once", "once", "more"]


def test_a_provider_registers_its_callbacks():
    class Provider:
        def register_hooks(self, registry, **kwargs):
            registry.add_callback(Opened, heard.by("provider"))

    heard, registry = Heard(), HookRegistry()
    assert isinstance(Provider(), HookProvider)
    registry.add_hook(Provider())
    registry.invoke_callbacks(Opened())
    assert heard == ["provider"]


# --- order ---


def test_a_lower_order_runs_first_and_after_events_reverse_within_one_order():
    for kind, expected in ((Opened, "first a b last"), (Closed, "first b a last")):
        heard, registry = Heard(), HookRegistry()
        registry.add_callback(kind, heard.by("last"), order=HookOrder.SDK_LAST)
        registry.add_callback(kind, heard.by("a"))
        registry.add_callback(kind, heard.by("b"), order=HookOrder.DEFAULT)
        registry.add_callback(kind, heard.by("first"), order=HookOrder.SDK_FIRST)
        registry.invoke_callbacks(kind())
        assert " ".join(heard) == expected


def test_the_named_places_are_in_order():
    places = ["SDK_FIRST", "INTERVENTION_OUTPUT", "DEFAULT", "MODEL_ROUTING", "INTERVENTION_INPUT", "SDK_LAST"]
    values = [getattr(HookOrder, name) for name in places]
    assert values == sorted(values)
    assert values == [-100, -90, 0, 50, 90, 100]


@given(st.lists(st.sampled_from([-100, -0.5, 0, 0.5, 100]), max_size=8), st.booleans())
def test_order_is_by_number_and_then_by_registration(orders, after):
    kind = Closed if after else Opened
    heard, registry = Heard(), HookRegistry()
    for index, order in enumerate(orders):
        registry.add_callback(kind, heard.by(str(index)), order=order)
    registry.invoke_callbacks(kind())
    turn = -1 if after else 1
    assert heard == [str(i) for i in sorted(range(len(orders)), key=lambda i: (orders[i], turn * i))]


# --- synchronous and asynchronous ---


class AsyncObject:
    def __init__(self, heard: Heard) -> None:
        self.heard = heard

    async def __call__(self, event: Opened) -> None:
        await asyncio.sleep(0)
        self.heard.append("object")


async def test_whatever_can_be_awaited_is_awaited_before_the_next_callback_runs():
    async def function(event: Opened) -> None:
        await asyncio.sleep(0)
        heard.append("function")

    async def named(name: str, event: Opened) -> None:
        await asyncio.sleep(0)
        heard.append(name)

    class Listener:
        async def hear(self, event: Opened) -> None:
            await asyncio.sleep(0)
            heard.append("method")

    heard, registry = Heard(), HookRegistry()
    registry.add_callback(None, function)
    registry.add_callback(None, AsyncObject(heard))
    registry.add_callback(None, functools.partial(named, "partial"))
    registry.add_callback(Opened, lambda event: named("lambda", event))
    registry.add_callback(None, Listener().hear)
    registry.add_callback(Opened, heard.by("plain"))
    event = Opened()
    assert await registry.invoke_callbacks_async(event) == (event, [])
    assert heard == ["function", "object", "partial", "lambda", "method", "plain"]


def test_asynchronous_callbacks_are_refused_where_nobody_can_await_them():
    async def hear(event: Built) -> None: ...
    async def hear_more(place: str, event: Built) -> None: ...

    registry = HookRegistry()
    for callback in (hear, AsyncObject(Heard()), functools.partial(hear_more, "here")):
        with pytest.raises(HookRegistrationError, match="Built can only be registered with a synchronous callback"):
            registry.add_callback([Opened, Built], callback)
    assert not registry.has_callbacks()
    with pytest.raises(ValueError, match="AgentInitializedEvent can only be registered with a synchronous callback"):
        registry.add_callback(AgentInitializedEvent, hear)


@pytest.mark.parametrize("late", [False, True])
def test_telling_asynchronous_callbacks_synchronously_is_refused(late):
    async def hear(event: Opened) -> None: ...

    heard, registry = Heard(), HookRegistry()
    registry.add_callback(Opened, heard.by("before"))
    registry.add_callback(Opened, (lambda event: hear(event)) if late else hear)  # noqa: PLW0108 - not known to be async
    with pytest.raises(HookRegistrationError, match="use invoke_callbacks_async to invoke async callback"):
        registry.invoke_callbacks(Opened())
    assert heard == (["before"] if late else [])


# --- questions and failures ---


def ask(name: str) -> Callable[[BaseHookEvent], None]:
    def hear(event: BaseHookEvent) -> None:
        raise InterruptException(Interrupt(f"id-{name}", name))

    return hear


async def test_questions_are_collected_and_the_other_callbacks_still_run():
    heard, registry = Heard(), HookRegistry()
    for callback in (ask("one"), heard.by("between"), ask("two"), heard.by("after")):
        registry.add_callback(Opened, callback)
    _, questions = await registry.invoke_callbacks_async(Opened())
    assert [question.name for question in questions] == ["one", "two"]
    assert registry.invoke_callbacks(Opened())[1] == questions
    assert heard == ["between", "after"] * 2


async def test_two_questions_of_one_name_are_an_error():
    registry = HookRegistry()
    registry.add_callback(Opened, ask("same"))
    registry.add_callback(Opened, ask("same"))
    with pytest.raises(InvalidInputError, match=r"interrupt_name=<same> \| interrupt name used more than once"):
        await registry.invoke_callbacks_async(Opened())
    with pytest.raises(ValueError, match="more than once"):
        registry.invoke_callbacks(Opened())


@pytest.mark.parametrize("awaited", [False, True])
async def test_the_error_of_a_callback_stops_the_rest_and_reaches_the_caller(awaited):
    def fail(event: Opened) -> None:
        raise LookupError("no such door")

    heard, registry = Heard(), HookRegistry()
    for callback in (heard.by("before"), fail, heard.by("after")):
        registry.add_callback(Opened, callback)
    with pytest.raises(LookupError, match="no such door"):
        if awaited:
            await registry.invoke_callbacks_async(Opened())
        else:
            registry.invoke_callbacks(Opened())
    assert heard == ["before"]


# --- what cannot be registered ---


def test_a_callback_without_an_annotation_needs_an_event_type():
    registry = HookRegistry()
    for callback in (lambda event: None, lambda: None, print):
        with pytest.raises(HookRegistrationError, match="please provide event_type explicitly"):
            registry.add_callback(None, callback)
    with pytest.raises(HookRegistrationError, match="has no type hint"):
        registry.add_callback(None, lambda event: None)


def test_an_annotation_that_cannot_be_read_is_named():
    def hear(event: Missing) -> None: ...

    with pytest.raises(HookRegistrationError, match="name 'Missing' is not defined"):
        HookRegistry().add_callback(None, hear)


def test_none_is_no_event_type():
    def hear(event: Optional[Opened]) -> None: ...  # noqa: UP045 - both ways are tested
    def hear_too(event: Opened | None) -> None: ...

    for callback in (hear, hear_too):
        with pytest.raises(HookRegistrationError, match="None is not a valid event type in union"):
            HookRegistry().add_callback(None, callback)


@pytest.mark.parametrize("wrong", [int, "Opened", Opened(), int | Opened, [Opened, str], [None]])
def test_what_is_no_event_class_is_refused_by_name(wrong):
    registry = HookRegistry()
    with pytest.raises(HookRegistrationError, match=r"Invalid event type: .* must be a subclass of BaseHookEvent"):
        registry.add_callback(wrong, print)
    assert not registry.has_callbacks()


def test_an_empty_list_is_refused():
    with pytest.raises(HookRegistrationError, match="event_type list cannot be empty"):
        HookRegistry().add_callback([], print)


def test_what_cannot_be_called_or_ordered_is_refused():
    with pytest.raises(HookRegistrationError, match="cannot be called"):
        HookRegistry().add_callback(Opened, "print")
    with pytest.raises(HookRegistrationError, match="no place in an order"):
        HookRegistry().add_callback(Opened, print, order=float("nan"))
    with pytest.raises(HookRegistrationError, match="has no register_hooks"):
        HookRegistry().add_hook(print)


# --- events ---


def test_only_the_declared_fields_of_an_event_can_be_assigned():
    event = Judged(case=1)
    event.verdict = "fine"
    assert event.verdict == "fine"
    with pytest.raises(AttributeError, match="Property case is not writable"):
        event.case = 2
    with pytest.raises(AttributeError, match="Property mood is not writable"):
        event.mood = "good"
    assert event == Judged(case=1, verdict="fine")


def test_a_callback_may_listen_to_every_event_of_agents():
    heard, registry = Heard(), HookRegistry()
    registry.add_callback(HookEvent, heard.by("any"))
    registry.invoke_callbacks(AgentInitializedEvent(agent=None))
    registry.invoke_callbacks(Opened())
    assert heard == ["any"]
