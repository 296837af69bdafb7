"""Checks of a snapshot's fields, before anything is loaded.

Each check takes a field as it was stored and returns an independent copy that can be loaded without a further look, or
raises `SnapshotException` with the path of what is wrong, such as `data.messages[3].content[0].toolUse.toolUseId`.
Blocks and keys that are not known here are kept: a newer provider may need them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from antiphon.content import Messages, SystemContentBlock
from antiphon.errors import NotJsonError, SnapshotException
from antiphon.jsonable import copy_json
from antiphon.snapshot.envelope import Snapshot
from antiphon.snapshot.fields import AgentKind, SnapshotField


def check_snapshot(snapshot: Snapshot, kind: AgentKind) -> dict[SnapshotField, Any]:
    """Everything of `snapshot` that an agent of `kind` can load: checked copies by field, in the kind's order.

    Fields that the snapshot does not hold are absent, and those that the kind does not own are left out.

    Raises:
        SnapshotException: If the envelope or one of these fields is malformed, or it is not an agent's.
    """
    if not isinstance(snapshot, Snapshot):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SnapshotException(f"expected a Snapshot, got {type(snapshot).__name__}")
    snapshot = snapshot.upgraded()
    snapshot.validate()
    if snapshot.scope != "agent":
        raise SnapshotException(f"Expected snapshot scope 'agent', got {snapshot.scope!r}")
    return {name: _CHECKS[name](snapshot.data[name]) for name in kind.fields if name in snapshot.data}


def check_messages(value: object, path: str = "data.messages") -> Messages:
    """A list of messages: each with a role and a list of blocks."""
    messages = _list(_copied(value, path), path)
    for index, message in enumerate(messages):
        check_message(message, f"{path}[{index}]")
    return cast("Messages", messages)


def check_message(message: object, path: str) -> None:
    """Refuse what is not a message.

    Raises:
        SnapshotException: With the path of the first thing that is wrong.
    """
    entry = _dict(message, path)
    role = _needed(entry, "role", path)
    if role not in ("user", "assistant"):  # a tuple: what stands there may not be hashable
        raise SnapshotException(f"{path}.role is {role!r}, not 'user' or 'assistant'")
    for index, block in enumerate(_list(_needed(entry, "content", path), f"{path}.content")):
        _check_block(block, f"{path}.content[{index}]")
    if "metadata" in entry and entry["metadata"] is not None:
        _dict(entry["metadata"], f"{path}.metadata")
    if "tracking_id" in entry and entry["tracking_id"] is not None:
        _text(entry["tracking_id"], f"{path}.tracking_id")


def _check_block(block: object, path: str) -> None:
    entry = _dict(block, path)
    if not entry:
        raise SnapshotException(f"{path} is empty: a block has a kind, such as 'text'")
    for kind, value in entry.items():
        check = _BLOCKS.get(kind)
        if check is not None:
            check(value, f"{path}.{kind}")


def _check_tool_use(value: object, path: str) -> None:
    entry = _dict(value, path)
    _id(_needed(entry, "toolUseId", path), f"{path}.toolUseId")
    _id(_needed(entry, "name", path), f"{path}.name")
    _needed(entry, "input", path)


def check_tool_result(value: object, path: str) -> None:
    """Refuse what is not the result of a call.

    Raises:
        SnapshotException: With the path of the first thing that is wrong.
    """
    entry = _dict(value, path)
    _id(_needed(entry, "toolUseId", path), f"{path}.toolUseId")
    if entry.get("status", "success") not in ("success", "error"):
        raise SnapshotException(f"{path}.status is {entry['status']!r}, not 'success' or 'error'")
    for index, part in enumerate(_list(_needed(entry, "content", path), f"{path}.content")):
        where = f"{path}.content[{index}]"
        inner = _dict(part, where)
        if "text" in inner:
            _text(inner["text"], f"{where}.text")


def _check_media(value: object, path: str) -> None:
    entry = _dict(value, path)
    _text(_needed(entry, "format", path), f"{path}.format")
    source = _dict(_needed(entry, "source", path), f"{path}.source")
    if "bytes" in source and not isinstance(source["bytes"], bytes):
        raise SnapshotException(f"{path}.source.bytes is {type(source['bytes']).__name__}, not bytes")


def check_state(value: object, path: str = "data.state") -> dict[str, Any]:
    """Application state: JSON by key, no bytes."""
    return _dict(_copied(value, path, binary=False), path)


def check_system_prompt(value: object, path: str = "data.system_prompt") -> list[SystemContentBlock] | None:
    """A system prompt: a list of blocks, or None for none. A string becomes one text block."""
    if value is None:
        return None
    copied = _copied(value, path)
    if isinstance(copied, str):
        return [{"text": copied}]
    for index, block in enumerate(_list(copied, path)):
        _check_block(block, f"{path}[{index}]")
    return cast("list[SystemContentBlock]", copied)


def check_interrupt_state(value: object, path: str = "data.interrupt_state") -> dict[str, Any]:
    """Open questions by id, the context that waits with them, and whether the agent waits. Other keys are dropped."""
    entry = _dict(_copied(value, path), path)
    activated = entry.get("activated", False)
    if not isinstance(activated, bool):
        raise SnapshotException(f"{path}.activated is {activated!r}, not true or false")
    questions: dict[str, Any] = {}
    for key, told in _dict(entry.get("interrupts", {}), f"{path}.interrupts").items():
        where = f"{path}.interrupts.{key}"
        question = _dict(told, where)
        questions[key] = {
            "id": _id(_needed(question, "id", where), f"{where}.id"),
            "name": _id(_needed(question, "name", where), f"{where}.name"),
            "reason": question.get("reason"),
            "response": question.get("response"),
        }
    context = _dict(entry.get("context") or {}, f"{path}.context")
    return {"interrupts": questions, "context": context, "activated": activated}


def check_conversation_manager_state(value: object, path: str = "data.conversation_manager_state") -> dict[str, Any]:
    """What a conversation manager told of itself; only the manager can read the rest."""
    entry = _dict(_copied(value, path), path)
    if "__name__" in entry:
        _text(entry["__name__"], f"{path}.__name__")
    removed = entry.get("removed_message_count", 0)
    if type(removed) is not int or removed < 0:
        raise SnapshotException(f"{path}.removed_message_count is {removed!r}, not a count")
    return entry


def check_model_state(value: object, path: str = "data.model_state") -> dict[str, Any]:
    """What a model that keeps history on its side needs to find it again."""
    return _dict(_copied(value, path), path)


_CHECKS: Mapping[SnapshotField, Callable[[object], Any]] = {
    "messages": check_messages,
    "state": check_state,
    "conversation_manager_state": check_conversation_manager_state,
    "interrupt_state": check_interrupt_state,
    "model_state": check_model_state,
    "system_prompt": check_system_prompt,
}


def _copied(value: object, path: str, *, binary: bool = True) -> Any:
    try:
        return copy_json(value, path, binary=binary)
    except NotJsonError as error:
        raise SnapshotException(str(error)) from error


def _dict(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SnapshotException(f"{path} is {_kind(value)}, not an object")
    return cast("dict[str, Any]", value)


def _list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise SnapshotException(f"{path} is {_kind(value)}, not a list")
    return value  # pyright: ignore[reportUnknownVariableType]


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise SnapshotException(f"{path} is {_kind(value)}, not a string")
    return value


def _id(value: object, path: str) -> str:
    if not _text(value, path):
        raise SnapshotException(f"{path} is empty")
    return cast("str", value)


def _needed(entry: dict[str, Any], key: str, path: str) -> Any:
    if key not in entry:
        raise SnapshotException(f"{path}.{key} is missing")
    return entry[key]


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


_BLOCKS: Mapping[str, Callable[[object, str], Any]] = {
    "text": _text,
    "toolUse": _check_tool_use,
    "toolResult": check_tool_result,
    "image": _check_media,
    "video": _check_media,
    "document": _dict,
    "reasoningContent": _dict,
    "guardContent": _dict,
    "citationsContent": _dict,
    "cachePoint": _dict,
}
