"""Which fields a snapshot of each kind of agent holds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import SnapshotException
from antiphon.snapshot import LIVE, TURNS, AgentKind, resolve_fields
from antiphon.snapshot.fields import ALL_FIELDS, SnapshotField


def test_the_session_preset_leaves_out_the_system_prompt() -> None:
    assert set(resolve_fields(TURNS, preset="session")) == set(ALL_FIELDS) - {"system_prompt"}
    assert resolve_fields(LIVE, preset="session") == ("messages", "state")


@pytest.mark.parametrize("kind", [TURNS, LIVE], ids=lambda kind: kind.name)
@given(st.data())
def test_fields_are_preset_and_included_ones_without_excluded_ones(kind: AgentKind, data: st.DataObject) -> None:
    some = st.none() | st.lists(st.sampled_from(kind.fields))
    preset = data.draw(st.sampled_from([None, "session"]))
    include, exclude = data.draw(some), data.draw(some)
    wanted = set(include or ()) | set(kind.presets["session"] if preset else ()) - set(exclude or ())
    wanted -= set(exclude or ())
    if wanted:
        chosen = resolve_fields(kind, preset=preset, include=include, exclude=exclude)
        assert set(chosen) == wanted
        assert list(chosen) == [name for name in ALL_FIELDS if name in wanted]
    else:
        with pytest.raises(SnapshotException, match="No snapshot fields resolved"):
            resolve_fields(kind, preset=preset, include=include, exclude=exclude)


@pytest.mark.parametrize("argument", ["include", "exclude"])
@pytest.mark.parametrize("field", ["model_state", "conversation_manager_state", "interrupt_state", "journal", ""])
def test_a_field_that_the_kind_does_not_own_is_refused_by_name(argument: str, field: SnapshotField) -> None:
    with pytest.raises(SnapshotException, match=f"Invalid snapshot field: '{field}'. Valid fields:"):
        resolve_fields(LIVE, preset="session", **{argument: [field]})  # type: ignore[arg-type]


def test_an_unknown_preset_and_a_string_for_a_list_are_refused() -> None:
    with pytest.raises(SnapshotException, match="Invalid snapshot preset: 'all'"):
        resolve_fields(TURNS, preset="all")  # type: ignore[arg-type]
    with pytest.raises(SnapshotException, match="give a list"):
        resolve_fields(TURNS, include="messages")  # type: ignore[arg-type]


def test_kinds_are_values() -> None:
    assert (TURNS.name, TURNS.live) == ("Agent", False)
    assert (LIVE.name, LIVE.live) == ("BidiAgent", True)
    assert len({TURNS, LIVE}) == 2


@pytest.mark.parametrize("kind", [TURNS, LIVE], ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    "arguments",
    [
        {"preset": ["session"]},
        {"preset": 5},
        {"preset": {}},
        {"include": 5},
        {"exclude": 0},
        {"include": "messages"},
        {"include": [[]]},
        {"include": [None]},
    ],
    ids=repr,
)
def test_what_names_no_preset_or_fields_is_a_snapshot_exception(kind: AgentKind, arguments: dict[str, Any]) -> None:
    with pytest.raises(SnapshotException):
        resolve_fields(kind, **arguments)
