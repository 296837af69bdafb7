"""Functions as tools: `@tool`."""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from pydantic_core import to_jsonable_python

from antiphon.content import ToolResult, ToolSpec
from antiphon.errors import InvalidTypeError, NotJsonError, ToolLoadError
from antiphon.iothread import run_in_worker
from antiphon.tools.base import AgentTool, ToolCall, ToolProgress
from antiphon.tools.context import ToolContext
from antiphon.tools.docstring import Docstring, read_docstring
from antiphon.tools.registry import check_tool_name
from antiphon.tools.schema import Parameters, read_hints

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

DONE = "done"
"""What the model is told when a function without a declared result returns."""

_NO_VALUE = object()
_UNREADABLE = (NameError, AttributeError, TypeError, SyntaxError)
"""What an annotation raises that names something not there (yet), or is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """What `@tool` was given."""

    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    context: bool | str = False
    repeatable: bool = False


class _Definition:
    """What a tool is, shared by it and its bound methods.

    Hints are read as soon as they can be: a name that is defined further down in the module is looked up when the tool is
    first described.
    """

    def __init__(self, function: Callable[..., Any], options: ToolOptions, names: Mapping[str, Any]) -> None:
        self.options = options
        self._function = function
        self._label: str = getattr(function, "__qualname__", repr(function))
        self._hints: dict[str, Any] | None = None
        if not callable(function) or isinstance(function, (type, AgentTool)) or inspect.isgeneratorfunction(function):
            raise ToolLoadError(f"@tool takes a function or an asynchronous generator, not {function!r}")
        self.name = check_tool_name(options.name or getattr(function, "__name__", None))
        try:
            self._hints = read_hints(function, names)
        except _UNREADABLE:
            pass
        else:
            _ = self.context_name  # a wrong `context=` is told where it stands

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        if self._hints is None:
            try:
                self._hints = read_hints(self._function)
            except _UNREADABLE as error:
                raise ToolLoadError(f"tool {self._label!r}: an annotation cannot be read: {error}") from error
        return self._hints

    @functools.cached_property
    def context_name(self) -> str | None:
        """The parameter that takes the `ToolContext`: the named one, or the one annotated so."""
        parameters = inspect.signature(self._function).parameters
        named = self.options.context
        if named is True:
            named = "tool_context"
        if named:
            if named not in parameters:
                raise ToolLoadError(f"tool {self._label!r} has no parameter {named!r} for its ToolContext")
            return named
        found = [name for name in parameters if _is_context(self.hints.get(name))]
        if len(found) > 1:
            raise ToolLoadError(f"tool {self._label!r} has several parameters for its ToolContext: {found!r}")
        return found[0] if found else None

    @functools.cached_property
    def docs(self) -> Docstring:
        function = self._function
        while isinstance(function, functools.partial):
            function = function.func
        return read_docstring(function.__doc__)

    @functools.cached_property
    def parameters(self) -> Parameters:
        skip = () if self.context_name is None else (self.context_name,)
        return Parameters(self._function, hints=self.hints, docs=self.docs.arguments, skip=skip)

    @functools.cached_property
    def spec(self) -> ToolSpec:
        schema = self.options.input_schema
        if schema is None:
            schema = {"json": self.parameters.json_schema}
        elif "json" not in schema:
            schema = {"json": schema}
        description = self.options.description or self.docs.text or self.name
        return ToolSpec(name=self.name, description=description, inputSchema=schema)

    @functools.cached_property
    def nothing(self) -> str:
        """What None stands for: "done", or "null" where the function declares a result."""
        return "null" if self.hints.get("return", NoneType) not in (NoneType, Any) else DONE


class FunctionTool(AgentTool, Generic[P, R_co]):
    """A function that is a tool. Called, it is the function; on an instance, the bound method is a tool, too.

    A synchronous function runs on a thread of its own, in the caller's `contextvars`. What an asynchronous generator
    yields is reported while it works, and the last value is the result (a `ToolProgress` is only reported; without any
    other value there is no result, which is an error).

    Results: a dict with `status` and `content` is passed on; a string is text; None is the text "done", or "null" where
    the function declares another result than None; other scalars are their JSON as text; dicts, lists, dataclasses and
    pydantic models are one `json` block.

    Attributes:
        repeatable: Whether a call that was cut short by a crash may simply run again.
    """

    def __init__(self, function: Callable[P, R_co], how: ToolOptions | _Definition | None = None) -> None:
        plain = _plain(function)
        if not isinstance(how, _Definition):
            how = _Definition(plain, how or ToolOptions(), _names_of_caller())
        functools.update_wrapper(self, plain)
        self._function = function
        self._definition = how
        self.repeatable = how.options.repeatable

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self._function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: Callable[Concatenate[S, Q], R_co], instance: S, owner: type[S] | None = None
    ) -> FunctionTool[Q, R_co]: ...
    def __get__(self, instance: Any, owner: Any = None) -> FunctionTool[Any, R_co]:
        """The tool itself on the class, the bound method as a tool on an instance."""
        bind = getattr(self._function, "__get__", None)
        bound = self._function if bind is None else bind(instance, owner)
        if bound is self._function:
            return self
        return FunctionTool(cast("Callable[..., R_co]", bound), self._definition)

    def __repr__(self) -> str:
        return f"<tool {self.tool_name!r}>"

    @property
    def tool_spec(self) -> ToolSpec:
        """What the model is told. Not to be changed.

        Raises:
            ToolLoadError: If a parameter's type cannot be described.
        """
        if next(iter(inspect.signature(self._function).parameters), None) in {"self", "cls"}:
            raise ToolLoadError(f"tool {self.tool_name!r} is a method: give that of an instance")
        return self._definition.spec

    @property
    def tool_name(self) -> str:
        return self._definition.name

    @property
    def tool_type(self) -> str:
        return "function"

    async def stream(self, call: ToolCall) -> AsyncGenerator[ToolProgress | ToolResult, None]:
        """Check the input, call the function, and make a result of what it returns.

        Raises:
            InvalidInputError: If the input does not fit; the message names the parameter.
            InterruptException: If the call needs a person first.
            Exception: Whatever the function raises.
        """
        definition = self._definition
        args, kwargs = definition.parameters.read(call.tool_use["input"])
        if definition.context_name is not None:
            if not isinstance(call, ToolContext):
                raise InvalidTypeError(f"tool {self.tool_name!r} needs a ToolContext, not a {type(call).__name__}")
            kwargs[definition.context_name] = call
        function: Callable[..., Any] = self._function
        if inspect.isasyncgenfunction(_called(function)):
            value = function(*args, **kwargs)
        elif inspect.iscoroutinefunction(_called(function)):
            value = await function(*args, **kwargs)
        else:
            value = await run_in_worker(function, *args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
        if inspect.isasyncgen(value):
            values, value = value, _NO_VALUE
            async with aclosing(values):
                async for item in values:
                    if isinstance(item, ToolProgress):
                        yield item
                    else:
                        value = item
                        yield ToolProgress(item)
            if value is _NO_VALUE:
                return
        yield tool_result(call.tool_use["toolUseId"], value, nothing=definition.nothing)


def _plain(function: object) -> Callable[..., Any]:
    """The function itself, below a `classmethod` or `staticmethod`."""
    if isinstance(function, (classmethod, staticmethod)):
        return cast("classmethod[Any, ..., Any]", function).__func__
    return cast("Callable[..., Any]", function)


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    """What runs when `function` is called: of an object, its `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _names_of_caller() -> Mapping[str, Any]:
    """What is defined where the tool is: its annotations may name it, as strings, inside a function or a class."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return {} if frame is None or frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _is_context(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    kinds = typing.get_args(hint) if typing.get_origin(hint) in {typing.Union, UnionType} else (hint,)
    plain = [typing.get_origin(kind) or kind for kind in kinds]
    return any(isinstance(kind, type) and issubclass(kind, ToolCall) for kind in plain)


def tool_result(tool_use_id: str, value: Any, *, nothing: str = DONE) -> ToolResult:
    """The result that a function's return value stands for; see `FunctionTool`.

    Args:
        tool_use_id: The call.
        value: What the function returned. It is not changed.
        nothing: The text that None stands for.

    Raises:
        NotJsonError: If JSON cannot carry the value.

    >>> tool_result("t1", 4)
    {'toolUseId': 't1', 'status': 'success', 'content': [{'text': '4'}]}
    >>> tool_result("t1", {"seat": 4})["content"]
    [{'json': {'seat': 4}}]
    """
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if "status" in fields and fields["status"] in ("success", "error") and isinstance(fields.get("content"), list):
            return {"toolUseId": tool_use_id, "status": fields["status"], "content": fields["content"]}
    block: dict[str, Any]
    if value is None:
        block = {"text": nothing}
    elif isinstance(value, str):
        block = {"text": value}
    else:
        try:
            data = to_jsonable_python(value, bytes_mode="base64")
        except ValueError as error:  # pydantic's serialisation errors, and values that contain themselves
            raise NotJsonError("result", f"cannot be told to the model: {error}") from error
        if isinstance(data, (dict, list)):
            block = {"json": data}
        else:
            block = {"text": data if isinstance(data, str) else json.dumps(data)}
    return {"toolUseId": tool_use_id, "status": "success", "content": [block]}


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    inputSchema: dict[str, Any] | None = None,  # noqa: N803
    context: bool | str = False,
    repeatable: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    inputSchema: dict[str, Any] | None = None,  # noqa: N803 - the name that Bedrock and the seeds have
    context: bool | str = False,
    repeatable: bool = False,
) -> Any:
    """Make a tool of a function: `@tool`, or `@tool(name=..., ...)`.

    What the model is told comes from the signature and the docstring (Google, numpy or Sphinx style; lines such as
    `Examples: ...` are told, too). A parameter annotated `ToolContext`, or `ToolContext[Agent]`, is given the call's
    context.

    Args:
        function: The function: synchronous, asynchronous, or an asynchronous generator; also a method.
        name: The tool's name, instead of the function's.
        description: Instead of the docstring.
        inputSchema: A JSON Schema to tell the model instead of the signature's, bare or as `{"json": schema}`.
        context: The name of the parameter that takes the `ToolContext`, where it has no annotation; True means
            `tool_context`.
        repeatable: Whether a call that was cut short by a crash may simply run again.

    Raises:
        ToolLoadError: If the name cannot be a tool's, or the function cannot be one.

    >>> @tool
    ... def add(a: int, b: int = 1) -> int:
    ...     "Add two numbers."
    ...     return a + b
    >>> add(2), add.tool_spec["inputSchema"]["json"]["required"]
    (3, ['a'])
    """
    options = ToolOptions(
        name=name, description=description, input_schema=inputSchema, context=context, repeatable=repeatable
    )
    if function is None:
        return functools.partial(FunctionTool[..., Any], how=options)
    return FunctionTool(function, options)
