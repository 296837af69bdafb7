"""Snapshots of older schemas, brought up to date by registered pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from typing import Any

from antiphon.errors import InvalidInputError, SnapshotException

SCHEMA_VERSION = "1.0"
"""The schema that this version writes."""

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the envelope as a dict and returns it in the next schema; pure. It may change what it is given."""

_VERSION = re.compile(r"\A(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})\Z")


def _parse(version: str) -> tuple[int, int] | None:
    found = _VERSION.match(version)
    return (int(found[1]), int(found[2])) if found else None


class Upgrades:
    """Ways from older schemas to the current one.

    Args:
        current: The schema to arrive at, `major.minor`.
    """

    __slots__ = ("_current", "_steps")

    def __init__(self, current: str = SCHEMA_VERSION) -> None:
        self._current = current
        self._steps: dict[str, tuple[str, Upgrade]] = {}

    def __contains__(self, version: object) -> bool:
        """Whether a step leads up from `version`."""
        return version in self._steps

    def register(self, from_version: str, to_version: str, upgrade: Upgrade) -> None:
        """Register a step. A second one from the same version replaces the first.

        Raises:
            InvalidInputError: If a version is not `major.minor`, or the step does not lead upwards to at most the
                current schema.
        """
        start, end, current = _parse(from_version), _parse(to_version), _parse(self._current)
        if start is None or end is None or current is None:
            raise InvalidInputError(f"schema versions {from_version!r} and {to_version!r} are not both like '1.0'")
        if not start < end <= current:
            raise InvalidInputError(
                f"an upgrade leads to a newer schema, {self._current!r} at most: not from {from_version!r} to {to_version!r}"
            )
        self._steps[from_version] = (to_version, upgrade)

    def apply(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """`envelope` in the current schema.

        Raises:
            SnapshotException: If its version is missing, malformed, newer, or older without a way up.
        """
        version: Any = envelope.get("schema_version")
        while version != self._current:
            check_version(version, self._current, known=self._steps)
            to_version, upgrade = self._steps[version]
            envelope = upgrade(envelope)
            if not isinstance(envelope, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise SnapshotException(
                    f"the upgrade from schema {version!r} returned {type(envelope).__name__}, not a dict"
                )
            envelope["schema_version"] = version = to_version
        return envelope


def check_version(version: object, current: str = SCHEMA_VERSION, *, known: Container[object] = ()) -> None:
    """Refuse a version that is neither current nor among `known`.

    Raises:
        SnapshotException: With the version, and what to do.
    """
    if version == current:
        return
    told = f"Unsupported snapshot schema version: {version!r}. Current version: {current}"
    parsed, now = _parse(version) if isinstance(version, str) else None, _parse(current)
    if parsed is None or now is None:
        raise SnapshotException(told)
    if parsed > now:
        raise SnapshotException(f"{told}: a newer version of this library wrote it, upgrade to read it")
    if version not in known:
        raise SnapshotException(f"{told}: no upgrade is registered for it (antiphon.snapshot.register_upgrade)")


UPGRADES = Upgrades()
"""What every reader of snapshots applies."""


def register_upgrade(from_version: str, to_version: str, upgrade: Upgrade) -> None:
    """Teach every reader of snapshots a step from an older schema to a newer one.

    Args:
        from_version: The schema that `upgrade` takes, such as `"0.9"`.
        to_version: The one that it returns, `SCHEMA_VERSION` at most.
        upgrade: A pure function from envelope to envelope.

    Raises:
        InvalidInputError: If a version is malformed, or the step does not lead upwards.
    """
    UPGRADES.register(from_version, to_version, upgrade)
