"""JSON Patch (RFC 6902): what makes one value of another.

Values are what snapshots hold: JSON and bytes, which are compared as leaves. `1`, `1.0`, `True` and `-0.0` are four values
here, as they are on disk; the RFC would let the first two be one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypeGuard

from antiphon.errors import InvalidInputError
from antiphon.jsonable import copy_json, same_json

JsonPatch: TypeAlias = list[dict[str, Any]]
"""Operations in their order: `{"op": "replace", "path": "/cart/0/count", "value": 2}` and so on."""


def make_patch(one: Any, other: Any) -> JsonPatch:
    """Operations (`add`, `remove`, `replace`) that make `other` of `one`; empty when they are the same.

    Lists are compared from both ends, and what is left between by position.

    Raises:
        NotJsonError: If a value cannot be stored.

    >>> make_patch({"cart": ["tea"], "paid": False}, {"cart": ["tea", "milk"], "paid": True})
    [{'op': 'add', 'path': '/cart/1', 'value': 'milk'}, {'op': 'replace', 'path': '/paid', 'value': True}]
    """
    patch: JsonPatch = []
    _compare(copy_json(one), copy_json(other), "", patch)
    return patch


def _compare(one: Any, other: Any, path: str, patch: JsonPatch) -> None:
    if _is_dict(one) and _is_dict(other):
        _compare_dicts(one, other, path, patch)
    elif _is_list(one) and _is_list(other):
        _compare_lists(one, other, path, patch)
    elif not same_json(one, other):
        patch.append({"op": "replace", "path": path, "value": other})


def _compare_dicts(one: dict[str, Any], other: dict[str, Any], path: str, patch: JsonPatch) -> None:
    for key in one:
        if key not in other:
            patch.append({"op": "remove", "path": f"{path}/{_token(key)}"})
    for key, value in other.items():
        if key in one:
            _compare(one[key], value, f"{path}/{_token(key)}", patch)
        else:
            patch.append({"op": "add", "path": f"{path}/{_token(key)}", "value": value})


def _compare_lists(one: list[Any], other: list[Any], path: str, patch: JsonPatch) -> None:
    shorter = min(len(one), len(other))
    start = 0
    while start < shorter and same_json(one[start], other[start]):
        start += 1
    same = 0
    while same < shorter - start and same_json(one[-1 - same], other[-1 - same]):
        same += 1
    common = shorter - same
    for index in range(start, common):
        _compare(one[index], other[index], f"{path}/{index}", patch)
    for index in reversed(range(common, len(one) - same)):  # from behind, so that no index moves
        patch.append({"op": "remove", "path": f"{path}/{index}"})
    for index in range(common, len(other) - same):
        patch.append({"op": "add", "path": f"{path}/{index}", "value": other[index]})


def _token(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def apply_patch(value: Any, patch: Iterable[Mapping[str, Any]]) -> Any:
    """What the operations make of a value; all six of the RFC are understood. Nothing is changed in place.

    Raises:
        InvalidInputError: If an operation makes no sense for the value, or a `test` fails.

    >>> apply_patch(["tea", "milk"], [{"op": "move", "from": "/0", "path": "/1"}])
    ['milk', 'tea']
    """
    root = copy_json(value)
    for operation in patch:
        root = _apply(root, operation)
    return root


def _apply(root: Any, operation: Mapping[str, Any]) -> Any:
    name, path = operation.get("op"), operation.get("path")
    tokens = _tokens(operation, path)
    if name in ("add", "replace", "test"):
        if "value" not in operation:
            raise InvalidInputError(f"{operation!r} has no value")
        new = copy_json(operation["value"])
    elif name in ("move", "copy"):
        source = _tokens(operation, operation.get("from"))
        if name == "move" and tokens[: len(source)] == source and len(tokens) > len(source):
            raise InvalidInputError(f"{operation!r} moves a value into itself")
        new = copy_json(_find(root, source, operation))
        root = _removed(root, source, operation) if name == "move" else root
    elif name == "remove":
        return _removed(root, tokens, operation)
    else:
        raise InvalidInputError(f"op={name!r} is none of add, remove, replace, move, copy and test")
    if name == "test":
        if not same_json(_find(root, tokens, operation), new):
            raise InvalidInputError(f"{operation!r} does not hold")
        return root
    return _put(root, tokens, new, operation, insert=name != "replace")


def _tokens(operation: Mapping[str, Any], pointer: Any) -> list[str]:
    """A JSON Pointer (RFC 6901), taken apart."""
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise InvalidInputError(f"{operation!r} has no pointer such as '/cart/0'")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _find(value: Any, tokens: Iterable[str], operation: Mapping[str, Any]) -> Any:
    for token in tokens:
        if _is_dict(value) and token in value:
            value = value[token]
        elif _is_list(value):
            value = value[_index(token, len(value) - 1, operation)]
        else:
            raise InvalidInputError(f"{operation!r} leads nowhere at {token!r}")
    return value


def _index(token: str, most: int, operation: Mapping[str, Any]) -> int:
    # Only the digits of the RFC, without leading zeros; int() would take more.
    if not (token.isascii() and token.isdigit()) or (token[0] == "0" and len(token) > 1) or int(token) > most:
        raise InvalidInputError(f"{operation!r} names no place in the list by {token!r}")
    return int(token)


def _put(root: Any, tokens: list[str], new: Any, operation: Mapping[str, Any], *, insert: bool) -> Any:
    if not tokens:
        return new
    parent, last = _find(root, tokens[:-1], operation), tokens[-1]
    if _is_list(parent):
        if not insert:
            parent[_index(last, len(parent) - 1, operation)] = new
        else:
            parent.insert(len(parent) if last == "-" else _index(last, len(parent), operation), new)
    elif _is_dict(parent) and (insert or last in parent):
        parent[last] = new
    else:
        raise InvalidInputError(f"{operation!r} leads nowhere at {last!r}")
    return root


def _removed(root: Any, tokens: list[str], operation: Mapping[str, Any]) -> Any:
    if not tokens:
        raise InvalidInputError(f"{operation!r} would leave nothing: replace the whole value instead")
    parent, last = _find(root, tokens[:-1], operation), tokens[-1]
    if _is_list(parent):
        del parent[_index(last, len(parent) - 1, operation)]
    elif _is_dict(parent) and last in parent:
        del parent[last]
    else:
        raise InvalidInputError(f"{operation!r} leads nowhere at {last!r}")
    return root


def _is_dict(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
