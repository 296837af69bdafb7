"""What is open beside a snapshot, and what it comes to after a crash."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.conversation.journal import (
    RESTART_TEXT,
    Journal,
    OpenCall,
    call_ids,
    pair,
    recover,
    result_message,
)
from antiphon.conversation.repair import problems
from antiphon.errors import SnapshotException
from antiphon.interrupts import Interrupt
from antiphon.jsonable import copy_json, decode_json, encode_json


def said(text, role="user"):
    return {"role": role, "content": [{"text": text}]}


def use(key):
    return {"toolUseId": key, "name": "book", "input": {"seats": 2}}


def calling(*keys):
    return {"role": "assistant", "content": [{"toolUse": use(key)} for key in keys]}


def done(key, text="booked"):
    return {"toolUseId": key, "status": "success", "content": [{"text": text}]}


QUESTION = Interrupt("v1:tool_call:t1:x", "sure", {"why": "money"})


def texts(messages):
    return [
        (block["toolResult"]["toolUseId"], block["toolResult"]["content"][0]["text"])
        for message in messages
        for block in message["content"]
        if "toolResult" in block
    ]


# --- what it is ---


def test_a_journal_is_empty_until_something_is_open():
    assert Journal().empty
    assert Journal(mark=7).empty
    assert not Journal(lines=(said("hel"),)).empty
    assert not Journal(calls=(OpenCall(use("t1")),)).empty


def test_lines_that_a_snapshot_has_already_are_settled():
    journal = Journal(3, (said("a"), said("b"), said("c")))
    assert journal.settled(2) == journal
    assert journal.settled(3) == journal
    assert journal.settled(4) == Journal(4, (said("b"), said("c")))
    assert journal.settled(9) == Journal(9)


def test_a_journal_comes_back_from_disk():
    journal = Journal(
        5,
        (said("hello"), {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"\x00"}}}]}),
        (
            OpenCall(use("t1"), question=QUESTION),
            OpenCall(use("t2"), started=False, repeatable=True, result=done("t2")),
        ),
    )
    assert Journal.from_dict(decode_json(encode_json(copy_json(journal.to_dict())))) == journal


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"mark": "x", "lines": [], "calls": []},
        {"mark": -1, "lines": [], "calls": []},
        {"mark": 0, "lines": 7, "calls": []},
        {"mark": 0, "lines": [7], "calls": []},
        {"mark": 0, "lines": [{"role": "user"}], "calls": []},
        {"mark": 0, "lines": [{"role": "user", "content": "text"}], "calls": []},
        {"mark": 0, "lines": [{"role": "user", "content": [{"toolUse": 7}]}], "calls": []},
        {"mark": 0, "lines": [], "calls": [{}]},
        {"mark": 0, "lines": [], "calls": [{"tool_use": {"name": "a"}, "started": True, "repeatable": False}]},
        {"mark": 0, "lines": [], "calls": ["t"]},
        {
            "mark": 0,
            "lines": [],
            "calls": [{"tool_use": use("t"), "started": 1, "repeatable": 0, "question": {"a": 1}}],
        },
    ],
    ids=repr,
)
def test_what_is_no_journal_is_refused(data):
    with pytest.raises(SnapshotException, match="journal is malformed"):
        Journal.from_dict(data)


# --- what it comes to ---


def test_what_was_heard_and_said_is_appended_in_order():
    journal = Journal(2, (said("hello"), said("good mor", "assistant")))
    recovery = recover(journal, [said("before")])
    assert recovery.messages == journal.lines
    assert recovery.mark == 4
    recovery.messages[0]["content"][0]["text"] = "changed"
    assert journal.lines[0] == said("hello")


def test_a_line_of_which_nothing_is_known_counts_and_is_not_appended():
    recovery = recover(Journal(0, ({"role": "user", "content": []}, said("yes"))), [])
    assert recovery.messages == (said("yes"),)
    assert recovery.mark == 2


def test_a_call_that_had_started_becomes_a_pair_with_an_error():
    recovery = recover(Journal(calls=(OpenCall(use("t1")),)), [])
    assert list(recovery.messages) == pair(
        use("t1"), {"toolUseId": "t1", "status": "error", "content": [{"text": RESTART_TEXT}]}
    )
    assert (recovery.again, recovery.waiting, recovery.done) == ((), (), ())


@pytest.mark.parametrize("call", [OpenCall(use("t1"), started=False), OpenCall(use("t1"), repeatable=True)])
def test_a_call_that_had_not_started_or_is_repeatable_runs_again(call):
    recovery = recover(Journal(calls=(call,)), [])
    assert recovery.again == (call,)
    assert recovery.messages == ()


def test_a_call_that_waits_for_a_person_waits_again():
    call = OpenCall(use("t1"), question=QUESTION)
    recovery = recover(Journal(calls=(call,)), [])
    assert recovery.waiting == (call,)
    assert recovery.messages == ()


def test_a_result_that_was_known_is_kept():
    recovery = recover(Journal(calls=(OpenCall(use("t1"), result=done("t1")),)), [])
    assert texts(recovery.messages) == [("t1", "booked")]


def test_a_call_that_the_history_has_is_settled():
    journal = Journal(lines=(calling("t1"),), calls=(OpenCall(use("t1"), repeatable=True),))
    recovery = recover(journal, [calling("t1"), result_message([done("t1")])])
    assert (recovery.messages, recovery.again) == ((), ())


def test_an_open_turn_of_which_all_is_known_enters_the_history_whole():
    journal = Journal(lines=(calling("t1", "t2"),), calls=(OpenCall(use("t1")), OpenCall(use("t2"), result=done("t2"))))
    recovery = recover(journal, [])
    assert recovery.messages[0] == calling("t1", "t2")
    assert texts(recovery.messages) == [("t1", RESTART_TEXT), ("t2", "booked")]
    assert problems(list(recovery.messages)) == []


def test_an_open_turn_with_a_call_that_runs_again_stays_open():
    again = OpenCall(use("t2"), started=False)
    journal = Journal(lines=(calling("t1", "t2"),), calls=(OpenCall(use("t1"), result=done("t1")), again))
    recovery = recover(journal, [])
    assert recovery.messages == (calling("t1", "t2"),)
    assert recovery.again == (again,)
    assert recovery.done == (done("t1"),)


def test_a_call_of_an_open_turn_that_nobody_wrote_down_is_told_to_be_interrupted():
    recovery = recover(Journal(lines=(calling("t1"),)), [])
    assert texts(recovery.messages) == [("t1", RESTART_TEXT)]


calls = st.builds(
    lambda key, started, repeatable, asked, known: OpenCall(
        use(key),
        started=started,
        repeatable=repeatable,
        question=QUESTION if asked else None,
        result=done(key) if known else None,
    ),
    st.sampled_from(["t1", "t2", "t3", "t4"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
lines = st.lists(
    st.one_of(
        st.sampled_from([said("hello"), said("good", "assistant"), {"role": "user", "content": []}]),
        st.lists(st.sampled_from(["t1", "t2"]), min_size=1, max_size=2, unique=True).map(lambda keys: calling(*keys)),
    ),
    max_size=4,
)
histories = st.sampled_from([[], [said("before")], [calling("t1"), result_message([done("t1")])]])


@given(
    lines, st.lists(calls, max_size=4, unique_by=lambda call: call.tool_use["toolUseId"]), histories, st.integers(0, 9)
)
def test_whatever_was_open_comes_to_a_legal_history_in_which_nothing_is_told_twice(lines, calls, history, mark):
    journal = Journal(mark, tuple(lines), tuple(calls))
    before = copy.deepcopy((journal, history))
    recovery = recover(journal, history)
    assert (journal, history) == before, "what it is given stays as it is"
    open_ids = {call.tool_use["toolUseId"] for call in recovery.again + recovery.waiting}
    closed = [message for message in recovery.messages if not call_ids([message]) & open_ids]
    assert problems([*history, *closed]) == []
    known = call_ids([*history, *closed])
    kept = {result["toolUseId"] for result in recovery.done}
    for call in calls:
        key = call.tool_use["toolUseId"]
        assert [key in known, key in open_ids, key in kept].count(True) == 1, "told, still open, or kept for later"
        if key in open_ids:
            assert call.result is None
            assert call.question is not None or call.repeatable or not call.started
    assert recovery.mark == mark + len(lines)
    words = [message for message in lines if message["content"] and not call_ids([message])]
    assert [message for message in closed if message in words] == words
    settled = recover(journal, [*history, *closed])
    assert not set(call_ids(list(settled.messages))) & known, "what is in the history is not told again"
