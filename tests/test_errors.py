"""The tree of errors: as its module draws it, each with a status, a builtin where one is expected, and a remedy."""

import inspect
import re
from typing import get_args

import pytest

from antiphon import errors
from antiphon.errors import AntiphonError, Status

ERRORS = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, AntiphonError) and kind.__module__ == errors.__name__
}
_LINE = re.compile(r"^ {4}(?P<bars>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: \((?P<builtin>[\w, ]+)\))?(?: {2,}\S.*)?$")


def drawn():
    """The tree in the module's docstring: name, parent, builtins."""
    stack, found = [], []
    for line in (errors.__doc__ or "").splitlines():
        if (match := _LINE.match(line)) is None:
            continue
        depth = len(match["bars"]) // 4
        stack[depth:] = [match["name"]]
        builtins = tuple((match["builtin"] or "").replace(" ", "").split(",")) if match["builtin"] else ()
        found.append((match["name"], stack[depth - 1] if depth else None, builtins))
    return found


def parent(kind):
    return next((base.__name__ for base in kind.__bases__ if issubclass(base, AntiphonError)), None)


def own_builtins(kind):
    return tuple(base.__name__ for base in kind.__bases__ if not issubclass(base, AntiphonError))


def test_the_module_draws_the_whole_tree():
    assert sorted(name for name, _, _ in drawn()) == sorted(ERRORS)


def test_the_tree_is_drawn_as_it_is():
    for name, above, builtins in drawn():
        kind = ERRORS[name]
        assert (name, parent(kind)) == (name, above)
        expected = ("Exception",) if kind is AntiphonError else builtins
        assert (name, own_builtins(kind)) == (name, expected)


@pytest.mark.parametrize("name", ERRORS)
def test_each_error_has_a_status_a_docstring_and_a_word_of_help(name):
    kind = ERRORS[name]
    assert kind.status in get_args(Status)
    assert (kind.__doc__ or "").strip().endswith((".", "`", ")"))
    assert kind.remedy.strip()


SEEDS = {
    "SnapshotException": ("INVALID_ARGUMENT", ValueError),
    "CorruptSnapshotError": ("DATA_LOSS", ValueError),
    "InvalidIdError": ("INVALID_ARGUMENT", ValueError),
    "InvalidInputError": ("INVALID_ARGUMENT", ValueError),
    "InvalidTypeError": ("INVALID_ARGUMENT", TypeError),
    "HookRegistrationError": ("INVALID_ARGUMENT", ValueError),
    "ToolNotFoundError": ("NOT_FOUND", AttributeError),
    "StorageError": ("UNAVAILABLE", OSError),
    "StorageKeyError": ("INVALID_ARGUMENT", ValueError),
    "AgentStateError": ("FAILED_PRECONDITION", RuntimeError),
    "AgentStartedError": ("FAILED_PRECONDITION", RuntimeError),
    "AgentNotStartedError": ("FAILED_PRECONDITION", RuntimeError),
    "ConcurrencyException": ("ABORTED", RuntimeError),
    "InterruptError": ("NOT_FOUND", KeyError),
    "NotSupportedError": ("UNIMPLEMENTED", NotImplementedError),
    "MissingExtraError": ("FAILED_PRECONDITION", ImportError),
    "SessionConflictError": ("ABORTED", Exception),
    "SessionSaveError": ("UNAVAILABLE", Exception),
    "ModelThrottledException": ("RESOURCE_EXHAUSTED", Exception),
    "ConnectionTimeoutError": ("DEADLINE_EXCEEDED", TimeoutError),
    "StopError": ("INTERNAL", RuntimeError),
}


@pytest.mark.parametrize("name", SEEDS)
def test_what_callers_catch_it_by(name):
    status, builtin = SEEDS[name]
    assert ERRORS[name].status == status
    assert issubclass(ERRORS[name], builtin)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_its_message_and_carries_its_arguments(name):
    kind = ERRORS[name]
    init = next(
        (vars(base)["__init__"] for base in kind.__mro__ if inspect.isfunction(vars(base).get("__init__"))), None
    )
    parameters = [] if init is None else list(inspect.signature(init).parameters.values())[1:]
    wanted = [
        each.name for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    if not wanted or wanted == ["message"]:  # like any exception
        assert str(kind("why")) == "why"
        return
    given = {name: [ValueError("why")] if name == "errors" else f"<{name}>" for name in wanted}
    error = kind(**given)
    assert str(error).strip()
    carried = {
        name for name, value in vars(error).items() if value in (*given.values(), tuple(given.get("errors", ())))
    }
    assert carried <= set(given)  # an attribute has its argument's name


def test_an_answer_to_no_question_reads_like_a_sentence_although_it_is_a_key_error():
    assert str(errors.InterruptError("no open question has the id 'x'")) == "no open question has the id 'x'"


def test_a_failed_stop_carries_all_that_failed():
    first, second = ValueError("one"), OSError("two")
    error = errors.StopError([first, second])
    assert list(error.errors) == [first, second]
    assert "one" in str(error)
    assert "two" in str(error)


def test_a_connection_at_its_limit_carries_what_the_next_start_needs():
    assert errors.ConnectionTimeoutError("over", handle="h1").restart_config == {"handle": "h1"}
    assert errors.ConnectionTimeoutError("over").restart_config == {}
