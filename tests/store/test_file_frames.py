"""Logs: whatever happens to their bytes, frames that are whole are found, and nothing else is taken for one."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import SessionRowError
from antiphon.store.file.contents import Contents, Line
from antiphon.store.file.frames import HEADER, Frame, Gap, Head, foreign, pack_frame, scan
from antiphon.store.lines import Span
from antiphon.store.record import Record, Row

BODIES = st.lists(st.binary(max_size=40).map(lambda raw: b'"' + raw.hex().encode() + b'"'), max_size=4)
LOGS = st.lists(BODIES, min_size=1, max_size=6)


def log_of(commits: list[list[bytes]], base: int = 0) -> tuple[bytes, list[int]]:
    """A log, and where its frames begin and the last one ends."""
    data, places, checksum, at = b"", [], 0, 0
    for bodies in commits:
        places.append(base + len(data))
        head = Head(lines=[(1, at, len(bodies))], sizes=[len(body) for body in bodies])
        frame, _, checksum = pack_frame(base + len(data), checksum, head, bodies)
        at += len(bodies)
        data += frame
    return data, [*places, base + len(data)]


def bodies_of(data: bytes, frame: Frame, base: int = 0) -> list[bytes]:
    at, found = frame.body - base, []
    for size in frame.head.sizes:
        found.append(data[at : at + size])
        at += size
    return found


@given(LOGS, st.integers(0, 2**40))
def test_a_log_reads_back_from_wherever_it_stands(commits, base):
    data, places = log_of(commits, base)
    found = list(scan(data, base))
    assert [frame.at for frame in found] == places[:-1]
    assert [bodies_of(data, frame, base) for frame in found] == commits
    assert [frame.previous for frame in found[1:]] == [frame.checksum for frame in found[:-1]]


@given(LOGS, st.data())
def test_of_a_log_that_was_cut_every_whole_frame_is_read_and_nothing_more(commits, draw):
    data, places = log_of(commits)
    cut = draw.draw(st.integers(0, len(data)))
    found = list(scan(data[:cut], 0))
    assert [frame.stop for frame in found] == [place for place in places[1:] if place <= cut]


@given(LOGS, st.data())
def test_damage_takes_the_frames_it_touches_and_no_other(commits, draw):
    data, places = log_of(commits)
    start = draw.draw(st.integers(0, len(data) - 1))
    size = draw.draw(st.integers(1, 60))
    damaged = bytearray(data)
    for at in range(start, min(start + size, len(data))):
        damaged[at] ^= draw.draw(st.integers(1, 255))
    stop = min(start + size, len(data))
    whole = [at for at, end in itertools.pairwise(places) if end <= start or at >= stop]
    found = list(scan(bytes(damaged), 0))
    assert [each.at for each in found if isinstance(each, Frame)] == whole
    for each in found:
        if isinstance(each, Gap):
            assert each.start in places
            assert each.stop in places


@given(LOGS, LOGS)
def test_a_frame_in_another_place_is_none(commits, others):
    data, _ = log_of(commits)
    elsewhere, _ = log_of(others, base=7)
    assert all(frame.stop <= len(data) for frame in scan(data + elsewhere, 0))
    assert list(scan(b"x" + data, 0)) == []


@pytest.mark.parametrize(
    ("beginning", "told"),
    [
        (b"", None),
        (b"\xff\x00", None),
        (b"\xff\x00A\x01\x00\x00", None),
        (b"\0\0\0\0\0\0\0\0", None),
        (b"\xff\x00A\x02\x00\x00\x00\x00", "version 2"),
        (b'{"messag', "something else"),
        (b"\xff\xfeA\x01", "something else"),
    ],
)
def test_a_first_frame_that_was_cut_short_is_told_from_what_is_no_log(beginning, told):
    wrong = foreign(beginning)
    assert wrong is None if told is None else told in str(wrong)


def test_a_header_says_how_long_its_frame_is():
    frame, first, _ = pack_frame(0, 0, Head(sizes=[2]), [b"{}"])
    assert first == len(frame) - 2
    assert HEADER.unpack_from(frame)[1] == len(frame) - HEADER.size


def test_a_commit_that_is_larger_than_a_frame_can_be_is_refused():
    with pytest.raises(SessionRowError, match="a commit of 1010 bytes is larger than a log can take"):
        pack_frame(0, 0, Head(), [bytes(1000)], most=1000)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), min_size=1, max_size=4))
def test_a_line_keeps_what_is_named_in_its_place(parts):
    intervals, at = [], 0
    for gap, size in parts:
        start = at + gap + (1 if intervals else 0)
        intervals.append((start, start + size))
        at = start + size
    line = Line()
    for position in range(at + 5):
        line.put(position, 100 + position, 1)
    forgotten = line.keep(intervals)
    kept = {position for start, stop in intervals for position in range(start, stop)}
    assert len(line) == at
    assert {position for position, offset in enumerate(line.offsets) if offset} == kept
    assert all(line.offsets[position] == 100 + position for position in kept)
    assert forgotten == at + 5 - len(kept)


def test_where_a_row_names_messages_that_are_lost_nothing_else_can_ever_stand():
    contents = Contents()
    contents.apply(Gap(0, 100))
    record = Record(status="completed", created_at=1, spans=(Span(7, 2, 9),))
    contents.put_row(Row("r", "s", 1, record))
    assert len(contents.lines[7]) == 9
    assert contents.last_line > 7
