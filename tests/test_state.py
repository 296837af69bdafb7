"""AgentState: JSON by key, checked when it is set, copied both ways."""

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidInputError, InvalidTypeError, NotJsonError
from antiphon.state import AgentState

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("añ𝄞"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.sampled_from("abc"), values | st.just(...)), max_size=10))
def test_it_behaves_like_a_dict_of_copies_and_counts_its_changes(changes: list[tuple[str, Any]]) -> None:
    state, model, version = AgentState(), dict[str, Any](), 0
    for key, value in changes:
        if value is ...:
            version += key in model
            model.pop(key, None)
            state.delete(key)
        else:
            version += 1
            model[key] = value
            state.set(key, value)
        assert state.get() == model
        assert state.get(key) == model.get(key)
        assert state.version == version


def test_what_goes_in_and_what_comes_out_are_copies() -> None:
    cart = ["tea"]
    initial = {"cart": cart}
    state = AgentState(initial)
    cart.append("milk")
    initial["more"] = []
    state.get("cart").append("rum")
    state.get()["cart"].append("gin")
    assert state.get() == {"cart": ["tea"]}
    state.replace(initial)
    cart.append("ice")
    assert state.get() == {"cart": ["tea", "milk"], "more": []}
    assert state.get("missing", 7) == 7


@pytest.mark.parametrize("value", [float("nan"), b"x", {1}, object(), "\ud800", {2: 3}, 2**64], ids=range(7))
def test_what_is_not_json_is_refused_with_its_path_and_changes_nothing(value: Any) -> None:
    state = AgentState({"a": 1})
    with pytest.raises(NotJsonError, match=r"^state\.b\[0\]"):
        state.set("b", [value])
    with pytest.raises(NotJsonError, match=r"^state\.b"):
        state.replace({"b": value})
    with pytest.raises(NotJsonError, match=r"^state\.b"):
        AgentState({"b": value})
    assert (state.get(), state.version) == ({"a": 1}, 0)


@pytest.mark.parametrize("key", ["", "  ", None, 7, ["a"]], ids=repr)
def test_a_key_is_a_string_that_says_something(key: Any) -> None:
    with pytest.raises(InvalidInputError):
        AgentState().set(key, 1)


@pytest.mark.parametrize("initial", [[], "", 0, [("a", 1)], "text"], ids=repr)
def test_only_a_dict_can_be_a_state(initial: Any) -> None:
    with pytest.raises(InvalidInputError):
        AgentState(initial)
    with pytest.raises(InvalidInputError):
        AgentState().replace(initial)


def test_threads_do_not_lose_changes() -> None:
    state = AgentState()

    def work(name: int) -> None:
        for number in range(200):
            state.set(f"{name}-{number}", number)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(state.get()), state.version) == (800, 800)


def test_an_update_reads_changes_and_writes_as_one_step():
    state = AgentState({"count": 0})

    def count():
        for _ in range(200):
            state.update(lambda data: {"count": data["count"] + 1})

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state.get() == {"count": 800}


def test_an_update_that_fails_changes_nothing():
    async def wait(data):
        return data

    state = AgentState({"count": 0})
    version = state.version
    for wrong in (wait, lambda data: data.update(count=float("nan")), lambda _: [1]):
        with pytest.raises((InvalidInputError, InvalidTypeError)):
            state.update(wrong)
    assert (state.get(), state.version) == ({"count": 0}, version)


def test_a_watcher_is_told_every_change_in_its_order_until_it_ends():
    state, seen = AgentState(), []
    end = state.watch(seen.append)
    state.set("a", 1)
    state.update(lambda data: data.update(b=2))
    state.delete("missing")
    state.delete("a")
    seen[0]["a"] = "changed"
    end()
    state.replace({"c": 3})
    assert seen == [{"a": "changed"}, {"a": 1, "b": 2}, {"b": 2}]
