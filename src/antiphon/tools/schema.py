"""What a model is told of a function's parameters, and the check of what it asks for.

The parameters become a pydantic model: it gives the JSON Schema, and later reads the input of a call.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import BaseModel, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from antiphon.errors import InvalidInputError, ToolLoadError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)


def read_hints(function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The annotations of a function, `Annotated` kept, strings evaluated (PEP 563).

    Args:
        function: The function.
        names: What its annotations may name beside the globals of its module and what it closes over.

    Raises:
        NameError: If an annotation names something that does not exist (yet).
    """
    plain = inspect.unwrap(function)
    if not inspect.isroutine(plain):
        plain = type(plain).__call__ if not hasattr(plain, "func") else plain.func
    cells: dict[str, Any] = {}
    code = getattr(plain, "__code__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(plain, "__closure__", None) or (), strict=False):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return typing.get_type_hints(plain, localns={**(names or {}), **cells}, include_extras=True)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter that the model fills; `field` names it in the pydantic model, where any name is possible."""

    name: str
    field: str
    kind: Any
    default: Any


class _Schema(GenerateJsonSchema):
    """Without warnings: a default that JSON cannot say is left out."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as the base class has it


class Parameters:
    """The parameters of a function that a model fills.

    Args:
        function: The function.
        hints: Its annotations, from `read_hints`; a parameter without one may be anything.
        docs: Descriptions of parameters, from its docstring.
        skip: Parameters that somebody else fills.

    Raises:
        ToolLoadError: If an annotation cannot be checked or described by pydantic.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        hints: Mapping[str, Any],
        docs: Mapping[str, str] | None = None,
        skip: Collection[str] = (),
    ) -> None:
        name = getattr(function, "__qualname__", repr(function))
        self._fields: list[_Parameter] = []
        self._open = False
        self._model = self._build(function, name, hints, docs or {}, skip)
        try:
            schema = self._model.model_json_schema(schema_generator=_Schema)
        except PydanticUserError as error:
            raise ToolLoadError(f"tool {name!r} has a parameter that JSON Schema cannot describe: {error}") from error
        self.json_schema: dict[str, Any] = _tidied(schema)
        """JSON Schema of an object with a property per parameter."""

    def _build(
        self,
        function: Callable[..., Any],
        name: str,
        hints: Mapping[str, Any],
        docs: Mapping[str, str],
        skip: Collection[str],
    ) -> type[BaseModel]:
        fields: dict[str, Any] = {}
        for index, (key, parameter) in enumerate(inspect.signature(function).parameters.items()):
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self._open = True
            if parameter.kind not in _NAMED or key in skip or (index == 0 and key in {"self", "cls"}):
                continue
            found = _Parameter(key, f"p{len(fields)}", parameter.kind, parameter.default)
            self._fields.append(found)
            hint = _described(hints.get(key, Any), key, docs.get(key) or f"Parameter {key}")
            fields[found.field] = (hint, ... if found.default is inspect.Parameter.empty else found.default)
        try:
            return create_model("Parameters", **fields)
        except (PydanticUserError, TypeError) as error:
            raise ToolLoadError(f"tool {name!r} has a parameter that pydantic cannot check: {error}") from error

    def read(self, value: Any) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with, for the input of a call.

        Defaults are left to the function. What it has no parameter for is dropped, unless it takes `**kwargs`.

        Args:
            value: A dict; None and the empty string stand for an empty one.

        Returns:
            Positional and keyword arguments; nested models and dataclasses are instances of their classes.

        Raises:
            InvalidInputError: If a value is missing or cannot be used; the message names the parameter.
        """
        value = {} if value is None or value == "" else value
        if not isinstance(value, dict):
            raise InvalidInputError(
                f"Validation failed for input parameters: expected an object, got {type(value).__name__}"
            )
        try:
            checked = self._model.model_validate(value)
        except ValidationError as error:
            told = "; ".join(_told(detail) for detail in error.errors(include_url=False))
            raise InvalidInputError(f"Validation failed for input parameters: {told}") from error
        more = cast("dict[object, Any]", value) if self._open else {}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        last = max((i for i, found in enumerate(self._fields) if found.kind is _POSITIONAL[0]), default=-1)
        for index, found in enumerate(self._fields):
            if index <= last:
                args.append(getattr(checked, found.field))
            elif found.field in checked.model_fields_set or isinstance(found.default, FieldInfo):
                kwargs[found.name] = getattr(checked, found.field)
        known = {found.name for found in self._fields}
        return args, {**{str(key): item for key, item in more.items() if key not in known}, **kwargs}


def _told(detail: ErrorDetails) -> str:
    place = ".".join(str(part) for part in detail["loc"]) or "input"
    if detail["type"] == "missing":
        return f"{place}: {detail['msg']}"
    shown = repr(detail["input"])
    return f"{place}: {detail['msg']} (got {shown if len(shown) <= 80 else shown[:77] + '...'})"


def _described(hint: Any, name: str, words: str) -> Any:
    """`hint` with a name and a description: a string in `Annotated` goes before its `Field`'s, that before `words`.

    The name is said here and not by a configuration of the model, which dataclasses in it would inherit.
    """
    base, *notes = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    own = next((note for note in notes if isinstance(note, str)), None)
    rest = [note for note in notes if not isinstance(note, str)]
    last = Field(alias=name) if own is None else Field(alias=name, description=own)
    return Annotated[(base, Field(description=words), *rest, last)]


def _tidied(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without titles, and with `X | None` told as `X` where it may be left out."""
    tidy = cast("dict[str, Any]", _untitled(schema))
    if isinstance(tidy.get("additionalProperties"), bool):
        del tidy["additionalProperties"]
    required = tidy.get("required", [])
    properties: dict[str, Any] = tidy.setdefault("properties", {})
    for name, described in properties.items():
        if name not in required:
            properties[name] = _without_null(described)
    return tidy


_MAPS = {"properties", "$defs", "patternProperties", "dependentSchemas"}
_DATA = {"default", "const", "enum", "examples", "required", "example"}


def _untitled(schema: object) -> Any:
    if isinstance(schema, list):
        return [_untitled(item) for item in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    tidy: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key in _MAPS:
            tidy[key] = {name: _untitled(item) for name, item in value.items()}
        elif key in _DATA:
            tidy[key] = value
        elif key != "title":
            tidy[key] = _untitled(value)
    return tidy


def _without_null(described: dict[str, Any]) -> dict[str, Any]:
    options = [option for option in described.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == len(described.get("anyOf", [])):
        return described
    rest = {key: value for key, value in described.items() if key != "anyOf"}
    if rest.get("default", ...) is None:
        del rest["default"]
    return {**options[0], **rest} if len(options) == 1 else {"anyOf": options, **rest}
