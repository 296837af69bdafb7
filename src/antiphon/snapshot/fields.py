"""What a snapshot may hold, and what each kind of agent owns of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, cast, get_args

from antiphon.errors import SnapshotException

SnapshotField = Literal[
    "messages", "state", "conversation_manager_state", "interrupt_state", "model_state", "system_prompt"
]
SnapshotPreset = Literal["session"]

ALL_FIELDS: tuple[SnapshotField, ...] = get_args(SnapshotField)
"""Every field of every kind, in the order in which they are written and loaded."""


@dataclass(frozen=True, slots=True)
class AgentKind:
    """What session code must know of a kind of agent.

    Attributes:
        name: The class, for messages to people.
        live: Whether it holds a connection open (`BidiAgent`) or works in turns (`Agent`).
        fields: What its snapshots may hold, in the order in which it is written and loaded.
        presets: Named selections of its fields.
    """

    name: str
    live: bool
    fields: tuple[SnapshotField, ...]
    presets: Mapping[str, tuple[SnapshotField, ...]] = field(hash=False)


TURNS = AgentKind(
    "Agent",
    live=False,
    fields=ALL_FIELDS,
    presets=MappingProxyType(
        {"session": ("messages", "state", "conversation_manager_state", "interrupt_state", "model_state")}
    ),
)
"""`Agent`: one invocation after the other."""

LIVE = AgentKind(
    "BidiAgent",
    live=True,
    fields=("messages", "state", "system_prompt"),
    presets=MappingProxyType({"session": ("messages", "state")}),
)
"""`BidiAgent`: a conversation over a live connection."""


def resolve_fields(
    kind: AgentKind,
    *,
    preset: SnapshotPreset | None = None,
    include: Collection[SnapshotField] | None = None,
    exclude: Collection[SnapshotField] | None = None,
) -> tuple[SnapshotField, ...]:
    """The fields to capture: the preset's and `include`, without `exclude`, in the kind's order.

    Raises:
        SnapshotException: If a name is no field of this kind (in `exclude` too), the preset is unknown, or nothing is
            left.

    >>> resolve_fields(LIVE, preset="session", include=["system_prompt"], exclude=["state"])
    ('messages', 'system_prompt')
    """
    wanted: set[SnapshotField] = _names(kind, "include", include)
    unwanted: set[SnapshotField] = _names(kind, "exclude", exclude)
    if preset is not None:
        if not isinstance(cast("object", preset), str) or preset not in kind.presets:
            raise SnapshotException(f"Invalid snapshot preset: {preset!r}. Valid presets: {sorted(kind.presets)}")
        wanted |= set(kind.presets[preset])
    chosen: tuple[SnapshotField, ...] = tuple(name for name in kind.fields if name in wanted and name not in unwanted)
    if not chosen:
        raise SnapshotException(
            f"No snapshot fields resolved. Give preset='session', or fields of {kind.name}: {list(kind.fields)}"
        )
    return chosen


def _names(kind: AgentKind, argument: str, names: Collection[SnapshotField] | None) -> set[SnapshotField]:
    chosen: Collection[SnapshotField] = () if names is None else names
    if isinstance(chosen, str) or not isinstance(cast("object", chosen), Collection):
        raise SnapshotException(f"{argument}={names!r} is {type(names).__name__}: give a list of fields")
    for name in chosen:
        if cast("object", name) not in kind.fields:
            raise SnapshotException(f"Invalid snapshot field: {name!r}. Valid fields: {sorted(kind.fields)}")
    return set(chosen)
