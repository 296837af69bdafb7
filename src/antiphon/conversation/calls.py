"""A model's tool calls, made fit for the history. Pure.

Whatever a model sends as a call, the history keeps one that every provider and every store accepts: an id of its own, a
legal name, an input that is a JSON object. A call that had to be changed to be kept does not run: its result says why.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short_repr
from typing import Any, cast

from antiphon.content import ToolUse, ToolUseBlock
from antiphon.errors import NotJsonError
from antiphon.jsonable import clean_text, copy_json

UNNAMED = "unnamed"
"""The name under which a call without a name is kept."""
LONGEST_ID = 64
"""Characters of an id that is made here: Bedrock and OpenAI take no more."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ROOM = 20
"""How much deeper than its call an input may come to stand: a snapshot's open turn has it nine levels down."""


@dataclass(frozen=True, slots=True)
class NormalisedCall:
    """A call as the history keeps it.

    Attributes:
        tool_use: An independent copy: an id that is not taken, a legal name, a JSON object as input.
        refusal: Why it does not run, as the model is told; None: it runs.
        original_id: The id that the model gave, by which its provider wants the result; None where it gave none.
    """

    tool_use: ToolUse
    refusal: str | None
    original_id: str | None


def normalised(tool_uses: Sequence[object], taken: Collection[str]) -> list[NormalisedCall]:
    """The calls of one answer, in its order, each fit for the history.

    An id that is taken, or that an earlier call of the answer has, gets a suffix: `id-2`; a missing one becomes `call-1`.
    The same arguments give the same ids.

    Args:
        tool_uses: Dicts of `toolUseId`, `name` and `input`, or whatever came instead of them.
        taken: The ids that the history knows.

    >>> [call.tool_use["toolUseId"] for call in normalised([{"toolUseId": "a", "name": "now", "input": {}}] * 2, {"b"})]
    ['a', 'a-2']
    >>> [call] = normalised([{"toolUseId": "b", "name": "", "input": {}}], {"b"})
    >>> call.tool_use["toolUseId"], call.tool_use["name"], call.refusal, call.original_id
    ('b-2', 'unnamed', 'Error: the call names no tool', 'b')
    """
    known = set(taken)
    calls: list[NormalisedCall] = []
    for value in tool_uses:
        entry = _entry(value)
        given = entry.get("toolUseId")
        original = given if isinstance(given, str) and given.strip() else None
        name, misnamed = _name(entry.get("name"))
        content, unreadable = _input(entry.get("input"))
        kept: dict[str, Any] = {"toolUseId": _free_id(original, known), "name": name, "input": content}
        for key, more in entry.items():  # such as a signature, without which a provider does not take the call back
            if key not in kept and isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                try:
                    kept |= copy_json({key: more})
                except NotJsonError:
                    continue
        calls.append(NormalisedCall(cast("ToolUse", kept), misnamed or unreadable, original))
        known.add(kept["toolUseId"])
    return calls


def _entry(value: object) -> Mapping[str, Any]:
    if isinstance(value, ToolUseBlock):
        return {"toolUseId": value.tool_use_id, "name": value.name, "input": value.input}
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _name(value: object) -> tuple[str, str | None]:
    """A legal name, and what is wrong with `value`. No tool is registered under a name that is not legal."""
    if isinstance(value, str):
        if _NAME.fullmatch(value):
            return value, None
        if value.strip():
            return re.sub(r"[^a-zA-Z0-9_-]", "_", value)[:64], f"Unknown tool: {short_repr(value)}"
    return UNNAMED, "Error: the call names no tool"


def _input(value: object) -> tuple[dict[str, Any], str | None]:
    """A copy of an input, and what is wrong with `value`. Null stands for no parameters."""
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return {}, f"Error: the input is not a JSON object: {short_repr(value)}"
    try:
        return copy_json(value, "input", binary=False, room=_ROOM), None
    except NotJsonError as error:
        return {}, f"Error: the input is not JSON: {clean_text(str(error))}"


def _free_id(given: str | None, known: Collection[str]) -> str:
    base, number = ("call", 0) if given is None else (clean_text(given), 1)
    key = "" if given is None else base
    while not key or key in known:
        number += 1
        end = f"-{number}"
        key = base[: LONGEST_ID - len(end)] + end
    return key
