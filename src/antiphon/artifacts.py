"""Artifacts: named results of a session beside its messages, such as documents and images."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from antiphon.errors import InvalidInputError
from antiphon.jsonable import copy_json


@dataclass(frozen=True, slots=True)
class Artifact:
    """A result that is kept with the session.

    Attributes:
        parts: What it consists of: content blocks such as `{"text": ...}`; JSON and bytes.
        name: A later artifact of the same name takes its place; one without a name is always a new one.
        metadata: Of the application's own; JSON.
    """

    parts: list[dict[str, Any]]
    name: str | None = None
    metadata: dict[str, Any] | None = field(default=None, kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {} if self.name is None else {"name": self.name}
        told["parts"] = self.parts
        if self.metadata is not None:
            told["metadata"] = self.metadata
        return told

    @classmethod
    def from_dict(cls, data: object, path: str = "artifact") -> Artifact:
        """The artifact that `to_dict` gave; a copy.

        Raises:
            InvalidInputError: If `data` has another shape; the message names where.
        """
        copied = copy_json(data, path)
        if not isinstance(copied, dict):
            raise InvalidInputError(f"{path} is {type(data).__name__}, not an object")
        entry = cast("dict[str, Any]", copied)
        name, parts, metadata = entry.get("name"), entry.get("parts"), entry.get("metadata")
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidInputError(f"{path}.name={name!r} is not a non-empty text")
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in cast("list[object]", parts)):
            raise InvalidInputError(f"{path}.parts is not a list of objects")
        if metadata is not None and not isinstance(metadata, dict):
            raise InvalidInputError(f"{path}.metadata is {type(metadata).__name__}, not an object")
        return cls(cast("list[dict[str, Any]]", parts), name, metadata=cast("dict[str, Any] | None", metadata))


class Artifacts:
    """The artifacts of a session, in the order in which they first came. May be used from any thread.

    >>> artifacts = Artifacts()
    >>> artifacts.add(Artifact([{"text": "v1"}], "report"))
    >>> artifacts.add(Artifact([{"text": "v2"}], "report"))
    >>> [artifact.parts for artifact in artifacts]
    [[{'text': 'v2'}]]
    """

    __slots__ = ("_kept", "_lock", "_on_add")

    def __init__(self, artifacts: Iterable[Artifact] = (), on_add: Callable[[Artifact], None] | None = None) -> None:
        self._kept = list(artifacts)
        self._on_add = on_add
        self._lock = threading.Lock()

    def add(self, artifact: Artifact) -> None:
        """Keep a copy of it, in the place of the one that has its name.

        Raises:
            InvalidInputError: If its parts are not a list of objects.
            NotJsonError: If it cannot be stored.
        """
        kept = Artifact.from_dict(artifact.to_dict())
        with self._lock:
            names = [other.name for other in self._kept]
            if kept.name is not None and kept.name in names:
                self._kept[names.index(kept.name)] = kept
            else:
                self._kept.append(kept)
            if self._on_add is not None:
                self._on_add(kept)  # under the lock: so they are told in their order

    def get(self, name: str) -> Artifact | None:
        """The artifact of this name."""
        return next((artifact for artifact in self if artifact.name == name), None)

    def to_list(self) -> list[dict[str, Any]]:
        """All of them as JSON (and bytes)."""
        return [artifact.to_dict() for artifact in self]

    def __iter__(self) -> Iterator[Artifact]:
        with self._lock:
            return iter(list(self._kept))

    def __len__(self) -> int:
        return len(self._kept)


def read_artifacts(data: object, path: str = "data.artifacts") -> list[Artifact]:
    """The artifacts of a snapshot; None is none.

    Raises:
        InvalidInputError: If `data` has another shape; the message names where.
    """
    if data is None:
        return []
    if not isinstance(data, list):
        raise InvalidInputError(f"{path} is {type(data).__name__}, not a list")
    return [Artifact.from_dict(entry, f"{path}[{at}]") for at, entry in enumerate(cast("list[object]", data))]
