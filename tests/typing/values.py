"""Values as users write them. Each `type: ignore` is an error that both checkers must report."""

from typing import Any, assert_type

from antiphon.errors import AntiphonError, ConnectionTimeoutError, InvalidIdError, SessionSaveError, Status
from antiphon.state import AgentState


def status_of(error: AntiphonError) -> Status:
    return error.status


def an_error_is_caught_by_its_builtin(refused: InvalidIdError, late: ConnectionTimeoutError) -> None:
    as_value: ValueError = refused
    as_timeout: TimeoutError = late
    as_type: TypeError = refused  # type: ignore[assignment]


def an_error_carries_data(error: SessionSaveError) -> None:
    if error.status == "UNAVAILABLE":
        error.no_such_attribute  # type: ignore[attr-defined]


def state_is_json_by_key(state: AgentState) -> None:
    assert_type(state.get(), dict[str, Any])
    assert_type(state.version, int)
    state.set("seats", 2)
    state.set(2, "seats")  # type: ignore[arg-type]
    state.version = 3  # type: ignore[misc]
