"""What is different in two snapshots: messages added, removed and changed, and everything else as JSON Patch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any, cast

import msgspec

from antiphon.jsonable import copy_json, encode_json
from antiphon.snapshot.envelope import Snapshot
from antiphon.snapshot.patch import JsonPatch, apply_patch, make_patch

_MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """A message that only one of two snapshots has.

    Attributes:
        index: Where it stands in that one.
        message: The message.
    """

    index: int
    message: Any


@dataclass(frozen=True, slots=True)
class ChangedMessage:
    """A message that stands in both, in two versions.

    Attributes:
        before_index: Where it stands in the first snapshot.
        after_index: Where it stands in the second.
        before: As it was.
        after: As it is.
    """

    before_index: int
    after_index: int
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class SnapshotDiff:
    """What makes a second snapshot of a first one. False when there is nothing.

    Attributes:
        added: Messages that only the second one has, in its order.
        removed: Messages that only the first one has, in its order.
        changed: Messages that are another version of one of the first: between the same neighbours, of the same role.
        data: Everything else in `data`, as JSON Patch: paths begin with the field, `/state/cart/0` for instance. Of the
            messages only whether there is a list of them: an empty one stands for it.
        app_data: The application's data, as JSON Patch.
    """

    added: tuple[PlacedMessage, ...] = ()
    removed: tuple[PlacedMessage, ...] = ()
    changed: tuple[ChangedMessage, ...] = ()
    data: tuple[dict[str, Any], ...] = ()
    app_data: tuple[dict[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.data or self.app_data)

    @property
    def state(self) -> JsonPatch:
        """The part of `data` that is about the state, with paths within it (`/cart/0`, or `""` for all of it)."""
        return [
            {**operation, "path": operation["path"].removeprefix("/state")}
            for operation in self.data
            if operation["path"] == "/state" or operation["path"].startswith("/state/")
        ]

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """The second snapshot's data, in the envelope of the first. Nothing is changed in place.

        Raises:
            InvalidInputError: If `snapshot` is not the first one.
        """
        messages, data = _split(snapshot)
        data = apply_patch(data, self.data)
        if isinstance(data.get(_MESSAGES), list):
            gone = {placed.index for placed in self.removed}
            new = {changed.before_index: changed.after for changed in self.changed}
            left = [new.get(at, message) for at, message in enumerate(messages) if at not in gone]
            for placed in self.added:
                left.insert(placed.index, placed.message)
            data[_MESSAGES] = copy_json(left)
        return replace(snapshot, data=data, app_data=apply_patch(snapshot.app_data, self.app_data))


def diff_snapshots(one: Snapshot | None, other: Snapshot | None) -> SnapshotDiff:
    """What makes `other` of `one`; None has no messages and no data.

    Raises:
        NotJsonError: If one of them holds what cannot be stored.

    >>> one = Snapshot("agent", "1.0", {"messages": [], "state": {"n": 1}}, {})
    >>> diff_snapshots(one, Snapshot("agent", "1.0", {"messages": [], "state": {"n": 2}}, {})).state
    [{'op': 'replace', 'path': '/n', 'value': 2}]
    """
    before, before_data = _split(one)
    after, after_data = _split(other)
    added: list[PlacedMessage] = []
    removed: list[PlacedMessage] = []
    changed: list[ChangedMessage] = []
    for first, last, start, stop in _differences(before, after):
        pairs = min(last - first, stop - start)
        for old, new in zip(range(first, first + pairs), range(start, start + pairs), strict=True):
            if _role(before[old]) == _role(after[new]):
                changed.append(ChangedMessage(old, new, before[old], after[new]))
            else:
                removed.append(PlacedMessage(old, before[old]))
                added.append(PlacedMessage(new, after[new]))
        removed += [PlacedMessage(at, before[at]) for at in range(first + pairs, last)]
        added += [PlacedMessage(at, after[at]) for at in range(start + pairs, stop)]
    return SnapshotDiff(
        tuple(added),
        tuple(removed),
        tuple(changed),
        tuple(make_patch(before_data, after_data)),
        tuple(make_patch({} if one is None else one.app_data, {} if other is None else other.app_data)),
    )


def _split(snapshot: Snapshot | None) -> tuple[list[Any], dict[str, Any]]:
    """The messages, and the data with an empty list in their place."""
    data: dict[str, Any] = {} if snapshot is None else dict(snapshot.data)
    if _is_sequence(data.get(_MESSAGES)):
        messages = list(data[_MESSAGES])
        data[_MESSAGES] = []
        return messages, data
    return [], data


def _differences(before: list[Any], after: list[Any]) -> list[tuple[int, int, int, int]]:
    """Runs that differ: from where to where, in the first list and in the second."""
    one, other = ([_text(message) for message in messages] for messages in (before, after))
    shorter = min(len(one), len(other))
    start = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    same = next((at for at in range(shorter - start) if one[-1 - at] != other[-1 - at]), shorter - start)
    # What stands between is seldom long. A message that occurs in it over and over is no landmark (`autojunk`), so that
    # the time stays within bounds.
    middle = SequenceMatcher(None, one[start : len(one) - same], other[start : len(other) - same])
    return [
        (start + first, start + last, start + begin, start + end)
        for kind, first, last, begin, end in middle.get_opcodes()
        if kind != "equal"
    ]


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _text(message: Any) -> bytes:
    """The same for the same message, whatever the order of its keys."""
    return msgspec.json.encode(msgspec.json.decode(encode_json(copy_json(message))), order="deterministic")


def _role(message: Any) -> Any:
    return cast("dict[str, Any]", message).get("role") if isinstance(message, dict) else None
