"""The type of a session's state: checked when it is loaded and saved, and brought up to date by migrations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from antiphon.errors import InvalidInputError, InvalidTypeError, StateValidationError
from antiphon.jsonable import copy_json

T = TypeVar("T")

Migration = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes the state of one version from that of the version before; pure, and given a copy."""


@dataclass(frozen=True, slots=True)
class StateType(Generic[T]):
    """A session's state as a pydantic model, a dataclass or a TypedDict (before Python 3.12: that of typing_extensions).

    Attributes:
        type: The type. Its JSON form is an object.
        version: Of the type, from 1; stored with the state.
        migrations: How a state of version `n` becomes one of `n + 1`, by `n`; one for each version before this.

    Raises:
        InvalidInputError: If the version is not positive, or a migration is missing.
        InvalidTypeError: If pydantic cannot read or write such a type.
    """

    type: type[T]
    version: int = 1
    migrations: Mapping[int, Migration] = field(default_factory=dict[int, Migration])
    _adapter: TypeAdapter[T] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.version, bool) or not isinstance(cast("object", self.version), int) or self.version < 1:
            raise InvalidInputError(f"version={self.version!r} is not a positive number")
        if missing := [version for version in range(1, self.version) if version not in self.migrations]:
            raise InvalidInputError(f"no migration makes version {missing[0] + 1} of the state from {missing[0]}")
        try:
            object.__setattr__(self, "_adapter", TypeAdapter(self.type))
        except (PydanticUserError, TypeError) as error:
            raise InvalidTypeError(f"state_type={self.type!r} cannot be the type of a state: {error}") from error

    def read(self, data: dict[str, Any]) -> T:
        """The value that a state holds.

        Raises:
            StateValidationError: If it does not fit; the message names the path.
        """
        try:
            # As JSON: so a date that was written as text is read back, however strict the type is.
            return self._adapter.validate_json(json.dumps(data))
        except ValidationError as error:
            raise _told(error) from error

    def write(self, value: T) -> dict[str, Any]:
        """The state that holds a value.

        Raises:
            StateValidationError: If the value does not fit its type, or is not JSON.
        """
        try:
            data = self._adapter.dump_python(value, mode="json", warnings="error")
        except ValueError as error:  # pydantic's serialisation errors among them
            raise StateValidationError("state", f"cannot be written as {self.type!r}: {error}") from error
        if not isinstance(data, dict):
            raise StateValidationError("state", f"is {type(data).__name__} as JSON, not an object")
        state = cast("dict[str, Any]", data)
        self.read(state)
        return state

    def migrated(self, data: dict[str, Any], version: int) -> dict[str, Any]:
        """A stored state in this version: a copy, where it was in an older one.

        Raises:
            StateValidationError: If it is of a newer version, or a migration failed.
        """
        if version > self.version:
            raise StateValidationError("state", f"is of version {version}, newer than {self.version}: upgrade the code")
        for step in range(version, self.version):
            migrate = self.migrations[step]
            try:
                data = migrate(copy_json(data, "state"))
            except Exception as error:
                raise StateValidationError("state", f"could not be brought from version {step} on: {error}") from error
            if not isinstance(cast("object", data), dict):
                raise StateValidationError("state", f"is {type(data).__name__} after the migration of version {step}")
        return data

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the state, for clients."""
        return self._adapter.json_schema()


def state_type_of(given: object) -> StateType[Any] | None:
    """What a runner was given as `state_type`."""
    if given is None or isinstance(given, StateType):
        return given  # pyright: ignore[reportUnknownVariableType]
    return StateType(cast("type[Any]", given))


def _told(error: ValidationError) -> StateValidationError:
    """The first thing that is wrong; how many there are."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = "state" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return StateValidationError(path, f"does not fit: {first['msg']}{more}")
