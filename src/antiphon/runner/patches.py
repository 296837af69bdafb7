"""JSON Patch (RFC 6902): what has changed between two values, and how to apply it. Pure."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, cast

from antiphon.errors import InvalidInputError
from antiphon.jsonable import same_json

Patch = list[dict[str, Any]]


def whole(value: Any) -> Patch:
    """A patch that puts `value` in place of whatever there is."""
    return [{"op": "replace", "path": "", "value": value}]


def diff(before: Any, after: Any) -> Patch:
    """What makes `after` of `before`; empty where they are the same.

    Members are in the order of their names; a list's tail is removed from its end, what is new in it is appended.

    >>> diff({"count": 1, "done": False}, {"count": 2, "done": False})
    [{'op': 'replace', 'path': '/count', 'value': 2}]
    """
    patch: Patch = []
    _diff(before, after, "", patch)
    return patch


def _diff(before: Any, after: Any, path: str, patch: Patch) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
        for key in sorted(old.keys() | new.keys()):
            at = f"{path}/{_escaped(key)}"
            if key not in new:
                patch.append({"op": "remove", "path": at})
            elif key not in old:
                patch.append({"op": "add", "path": at, "value": new[key]})
            else:
                _diff(old[key], new[key], at, patch)
    elif isinstance(before, list) and isinstance(after, list):
        olds: list[Any] = before  # pyright: ignore[reportUnknownVariableType]
        news: list[Any] = after  # pyright: ignore[reportUnknownVariableType]
        for index, (one, other) in enumerate(zip(olds, news, strict=False)):
            _diff(one, other, f"{path}/{index}", patch)
        patch += [{"op": "remove", "path": f"{path}/{index}"} for index in reversed(range(len(news), len(olds)))]
        patch += [{"op": "add", "path": f"{path}/-", "value": value} for value in news[len(olds) :]]
    elif not same_json(before, after):
        patch.append({"op": "replace", "path": path, "value": after})


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def apply_patch(value: Any, patch: Patch) -> Any:
    """`value` as it is after a patch of `add`, `remove` and `replace`; a copy.

    Missing parents of what is added are made, and what is not there need not be removed: so a client that missed
    something is not stuck.

    Raises:
        InvalidInputError: If an operation is malformed or of another kind.
    """
    result = deepcopy(value)
    for operation in patch:
        op, path = operation.get("op"), operation.get("path")
        if op not in {"add", "remove", "replace"} or not isinstance(path, str) or (path and path[0] != "/"):
            raise InvalidInputError(f"{operation!r} is no operation that a state's patch has")
        keys = [key.replace("~1", "/").replace("~0", "~") for key in path.split("/")[1:]]
        result = _applied(result, keys, op, deepcopy(operation.get("value")))
    return result


def _applied(target: Any, keys: list[str], op: str, value: Any) -> Any:
    if not keys:
        return None if op == "remove" else value
    key, rest = keys[0], keys[1:]
    if isinstance(target, list):
        entries: list[Any] = target  # pyright: ignore[reportUnknownVariableType]
        index = len(entries) if key == "-" else _index(key)
        if rest:
            if index < len(entries):
                entries[index] = _applied(entries[index], rest, op, value)
        elif op == "add":
            entries.insert(index, value)
        elif index < len(entries):
            entries[index : index + 1] = [] if op == "remove" else [value]
        return entries
    members: dict[str, Any] = cast("dict[str, Any]", target) if isinstance(target, dict) else {}
    if rest:
        if op != "remove" or key in members:
            members[key] = _applied(members.get(key), rest, op, value)
    elif op == "remove":
        members.pop(key, None)
    else:
        members[key] = value
    return members


def _index(key: str) -> int:
    if not key.isdecimal():
        raise InvalidInputError(f"{key!r} is no place in a list")
    return int(key)
