"""Where messages go: any history of lists reads back from its spans, and little is written twice."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import NotJsonError
from antiphon.jsonable import private_copy
from antiphon.store.lines import MOST_SPANS, Layout, Piece, Span, count_messages, covered, lay_out, settle
from antiphon.store.matching import match
from antiphon.store.messages import StoredMessages


class Lines:
    """Lines as a store has them, with plain values for messages."""

    def __init__(self):
        self.lines = {}
        self.written = 0

    def read(self, spans):
        return [value for line, start, stop in spans for value in self.lines[line][start:stop]]

    def save(self, values, base):
        """Save a list on the spans of another; the new one's spans."""
        found = finish(match(values, [private_copy(value) for value in self.read(base)]))
        assert [piece.start for piece in found.pieces] == [
            sum(piece.size for piece in found.pieces[:index]) for index in range(len(found.pieces))
        ]
        assert sum(piece.size for piece in found.pieces) == len(values)
        known = any(piece.known is not None for piece in found.pieces)
        length = len(self.lines[base[-1].line]) if known else None
        layout = lay_out(found.pieces, base if known else (), length)
        return self.carry_out(layout, values)

    def carry_out(self, layout: Layout, values):
        line = len(self.lines) + 1
        spans = settle(layout.spans, line)
        if layout.fresh:
            self.lines[line] = [values[index] for index in layout.fresh]
        if layout.grown:
            self.lines[spans[-1].line] += values[len(values) - layout.grown :]
        self.written += len(layout.fresh) + layout.grown
        return spans


def finish(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


edits = st.lists(
    st.tuples(
        st.sampled_from(["append", "edit", "insert", "delete", "trim", "cut", "summary", "move", "repeat", "branch"]),
        st.integers(0, 1000),
        st.integers(1, 6),
    ),
    max_size=60,
)


@given(edits)
def test_any_history_of_lists_reads_back_from_its_spans(history):
    lines, rows, values, number = Lines(), [((), [])], [], 0
    for kind, where, count in history:
        number += count
        new = list(range(number - count, number))
        at = where % (len(values) + 1)
        base, values = rows[-1][0], list(values)
        if kind == "branch":
            base, values = rows[where % len(rows)]
            values = [*values, *new]
        elif kind == "append":
            values += new
        elif kind == "edit":
            values[at : at + count] = new[: len(values[at : at + count])]
        elif kind == "insert":
            values[at:at] = new
        elif kind == "delete":
            del values[at : at + count]
        elif kind == "trim":
            del values[:at]
        elif kind == "cut":
            del values[at:]
        elif kind == "summary":
            values[:at] = new[:1]
        elif kind == "move":
            values = values[at:] + values[:at]
        else:
            values += values[at : at + count]
        rows.append((lines.save(values, base), values))
    for spans, wanted in rows:
        assert lines.read(spans) == wanted
        assert len(spans) <= MOST_SPANS
        assert count_messages(spans) == len(wanted)
    held = covered(spans for spans, _ in rows)
    for spans, _ in rows:
        for line, start, stop in spans:
            assert start == stop or any(a <= start and stop <= b for a, b in held[line])


def test_a_turn_writes_its_own_messages_only_on_whichever_branch():
    lines = Lines()
    values = list(range(100))
    trunk = lines.save(values, ())
    lines.written = 0
    for branch in range(10):
        spans, mine = trunk, list(values)
        for turn in range(20):
            mine += [1000 * branch + 2 * turn + 500, 1000 * branch + 2 * turn + 501]
            spans = lines.save(mine, spans)
        assert len(spans) == (1 if branch == 0 else 2)
        assert lines.read(spans) == mine
    assert lines.written == 10 * 20 * 2


def test_a_window_that_slides_is_one_span_and_writes_its_own_messages_only():
    lines, spans, values = Lines(), (), []
    for turn in range(300):
        values = [*values, 2 * turn, 2 * turn + 1][-40:]
        spans = lines.save(values, spans)
        assert len(spans) == 1
    assert lines.written == 600


def test_an_edit_at_every_turn_copies_each_message_a_logarithm_of_times():
    lines, spans, values, chance = Lines(), (), [], random.Random(7)
    turns = 2000
    for turn in range(turns):
        values += [2 * turn, 2 * turn + 1]
        values[max(0, len(values) - 1 - chance.randrange(30))] = 10**6 + turn
        spans = lines.save(values, spans)
        assert len(spans) <= MOST_SPANS
    assert lines.read(spans) == values
    assert lines.written / turns <= 2 * math.log2(2 * turns)


def test_only_a_list_that_reaches_the_end_of_a_line_may_append_there():
    pieces = [Piece(0, 5, 0), Piece(5, 1, None)]
    assert lay_out(pieces, [Span(3, 0, 5)], 5) == Layout((Span(3, 0, 6),), (), 1)
    for length in (6, None):
        assert lay_out(pieces, [Span(3, 0, 5)], length) == Layout((Span(3, 0, 5), Span(0, 0, 1)), (5,), 0)
    shorter = [Piece(0, 4, 0), Piece(4, 1, None)]
    assert lay_out(shorter, [Span(3, 0, 5)], 5).grown == 0


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 3), max_size=30))
def test_what_is_said_to_be_known_is_known(new, old):
    known = [private_copy(value) for value in old]
    found = finish(match(new, known))
    assert [copy.value for copy in found.copies] == new
    for piece in found.pieces:
        if piece.known is not None:
            assert new[piece.start : piece.start + piece.size] == old[piece.known : piece.known + piece.size]
            assert found.copies[piece.start] is known[piece.known]


def test_numbers_are_known_by_type_and_bits():
    values = [1, 1.0, True, 0, 0.0, -0.0, False]
    for value in values:
        for other in values:
            found = finish(match([{"v": value}], [private_copy({"v": other})]))
            same = type(value) is type(other) and str(value) == str(other)
            assert (found.pieces[0].known is not None) is same


def test_a_tuple_that_is_stored_as_a_list_is_known_the_next_time():
    message = {"role": "user", "content": ({"text": "a"},)}
    first = finish(match([message], []))
    assert finish(match([message, message], first.copies)).pieces[0] == Piece(0, 1, 0)


def test_what_cannot_be_stored_is_named_by_its_path():
    class Odd:
        def __eq__(self, other):
            raise ValueError("no truth")

        __hash__ = None

    with pytest.raises(NotJsonError, match=r"data\.messages\[1\]\.x"):
        finish(match([{"x": 1}, {"x": Odd()}], [private_copy({"x": 1}), private_copy({"x": 2})], path="data.messages"))


def test_long_lists_are_compared_and_copied_in_slices():
    messages = [{"role": "user", "content": [{"text": f"m{n}"}]} for n in range(5000)]
    assert sum(1 for _ in match(messages, [])) >= 50
    known = [private_copy(message) for message in messages]
    assert sum(1 for _ in match(messages, known)) >= 2
    assert sum(1 for _ in match([{"x": 1}, *messages[::-1]], known)) >= 8
    assert sum(1 for _ in StoredMessages([b'{"a":1}'] * 5000, None).private()) >= 50


def test_stored_messages_are_a_sequence_that_nobody_can_change():
    plain = [{"role": "user", "content": [{"text": f"m{n}", "b": b"\x00"}], "metadata": {"n": n}} for n in range(6)]
    for messages in (
        StoredMessages.of(plain),
        StoredMessages([StoredMessages.of(plain).raw(n) for n in range(6)], None),
    ):
        assert list(messages) == plain == messages
        assert len(messages) == 6
        assert messages[-1] == plain[-1]
        assert list(messages[1:4]) == plain[1:4]
        assert list(messages[::-2]) == plain[::-2]
        assert list(messages + plain[:1]) == [*plain, plain[0]]
        assert list(messages[:2] + messages[4:]) == plain[:2] + plain[4:]
        messages[0]["content"][0]["text"] = "spoiled"
        assert messages[0] == plain[0]
        assert "m0" not in repr(messages), "no words in logs"
        with pytest.raises(IndexError):
            messages[6]
        with pytest.raises(NotJsonError):
            _ = messages + [{"x": float("nan")}]  # noqa: RUF005 - it is this `+` that is tested
