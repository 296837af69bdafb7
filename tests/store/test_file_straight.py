"""The straight way through a log says what the general one says."""

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import CorruptStoreError
from antiphon.store.file.contents import Contents
from antiphon.store.file.frames import HEADER, Begin, Frame, Head, pack_frame, scan
from antiphon.store.file.log import Log
from antiphon.store.file.straight import take_ordinary
from antiphon.store.lines import Span
from antiphon.store.record import Record

BODY = st.integers(0, 10**9).map(lambda number: b'"%d"' % number)
NAME = st.sampled_from([f"r{number}" for number in range(12)])
SPANS = st.lists(st.builds(Span, st.integers(1, 3), st.just(0), st.integers(1, 9)), max_size=2).map(tuple)
RECORD = st.builds(
    Record,
    status=st.sampled_from(["pending", "completed"]),
    created_at=st.integers(0, 12),
    agent_id=st.sampled_from([None, "a", "b"]),
    idempotency_key=st.sampled_from([None, None, "k", "l"]),
    spans=st.none() | SPANS,
    parts=st.sampled_from([{}, {"data.state": b"\0" + b"1" * 32}]),
)
ROW = st.tuples(NAME, st.integers(1, 99), RECORD)


@st.composite
def commits(draw) -> list[tuple[Head, list[bytes]]]:
    """Commits, most of them as turns leave them."""
    found: list[tuple[Head, list[bytes]]] = []
    ends = dict.fromkeys(range(1, 4), 0)
    for number in range(draw(st.integers(1, 14))):
        bodies = draw(st.lists(BODY, max_size=3))
        line = draw(st.integers(1, 3))
        first = ends[line] if draw(st.integers(0, 5)) else draw(st.integers(0, 12))
        fields: dict[str, Any] = {"rows": draw(st.lists(ROW, min_size=1, max_size=1)), "is_named": draw(st.booleans())}
        if bodies:
            fields |= {"lines": [(line, first, len(bodies))], "sizes": [len(body) for body in bodies]}
            ends[line] = max(ends[line], first + len(bodies))
        odd = draw(st.integers(0, 12))
        if number == 0 or odd == 0:
            fields["begin"] = Begin("s", b"uid", 0)
        elif odd == 1:
            fields["rows"] = draw(st.lists(ROW, max_size=3))
        elif odd == 2:
            fields["dropped"] = draw(st.lists(NAME, max_size=2))
        elif odd == 3:
            blob = draw(BODY)
            bodies = [*bodies, blob]
            fields |= {"blobs": [b"1" * 32], "sizes": [len(body) for body in bodies]}
        elif odd == 4:
            fields |= {"mark": (1, b"salt"), "masks": {b"x": b"y"}}
        found.append((Head(**fields), bodies))
    return found


def log_of(commits: list[tuple[Head, list[bytes]]]) -> bytes:
    data, checksum = b"", 0
    for head, bodies in commits:
        frame, _, checksum = pack_frame(len(data), checksum, head, bodies)
        data += frame
    return data


def told(contents: Contents) -> dict[str, Any]:
    """Everything that contents say."""
    plain = {name: getattr(contents, name) for name in Contents.__slots__ if name not in {"lines", "waste", "order"}}
    waste = contents.waste
    return {
        **plain,
        "rows": list(contents.rows.items()),
        "lines": {number: (list(line.offsets), list(line.sizes)) for number, line in contents.lines.items()},
        "waste": (waste.dead, waste.dropped, waste.costs),
        "ordered": contents.ordered(),
    }


def by_steps(data: bytes) -> Contents:
    contents = Contents()
    for found in scan(data, 0):
        contents.apply(found)
    return contents


def by_log(path: Path, data: bytes, cuts: list[int], *, looked_at: bool) -> Log:
    """Read a log that grows in between."""
    log = Log()
    for stop in [*sorted(cuts), len(data)]:
        path.write_bytes(data[:stop])
        descriptor = os.open(path, os.O_RDONLY)
        try:
            log.catch_up_settled(descriptor)
        finally:
            os.close(descriptor)
        if looked_at:
            log.contents.ordered()
    return log


@given(commits(), st.lists(st.integers(0, 10**6), max_size=3), st.booleans())
def test_a_log_says_the_same_whichever_way_it_is_read(tmp_path_factory, commits, cuts, looked_at):
    data = log_of(commits)
    ends = [len(log_of(commits[:count])) for count in range(1, len(commits))] or [len(data)]
    whole = [ends[cut % len(ends)] for cut in cuts]
    log = by_log(tmp_path_factory.mktemp("log") / "x.log", data, whole, looked_at=looked_at)
    assert told(log.contents) == told(by_steps(data))
    assert log.end == len(data)
    assert log.checksum == [frame.checksum for frame in scan(data, 0)][-1]


@given(commits(), st.data())
def test_damage_is_found_whichever_way_a_log_is_read(tmp_path_factory, commits, draw):
    data = bytearray(log_of(commits))
    for at in draw.draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=3)):
        data[at] ^= draw.draw(st.integers(1, 255))
    damaged = bytes(data[: draw.draw(st.integers(len(data) // 2, len(data)))])
    try:
        expected = told(by_steps(damaged))
    except CorruptStoreError as error:
        with pytest.raises(CorruptStoreError, match=f"{error}"[:20]):
            by_log(tmp_path_factory.mktemp("log") / "x.log", damaged, [], looked_at=False)
        return
    if not any(isinstance(found, Frame) for found in scan(damaged, 0)):
        return  # not a frame: what is said of such a file is looked at elsewhere
    log = by_log(tmp_path_factory.mktemp("log") / "x.log", damaged, [], looked_at=False)
    assert told(log.contents) == expected


def test_ordinary_turns_are_all_taken_straight():
    spans = [(Span(1, 0, 2 * turn + 2),) for turn in range(50)]
    turns = [
        Head(
            rows=[(f"t{turn}", turn + 1, Record(status="completed", created_at=turn, agent_id="a", spans=spans[turn]))],
            lines=[(1, 2 * turn, 2)],
            sizes=[1, 1],
            begin=Begin("s", b"uid", 0) if turn < 2 else None,
        )
        for turn in range(50)
    ]
    data = log_of([(head, [b"1", b"2"]) for head in turns])
    contents = Contents()
    first = list(itertools.islice(scan(data, 0), 2))
    for frame in first:
        contents.apply(frame)
    taken = take_ordinary(contents, data, 0, first[-1].stop, first[-1].checksum)
    assert taken.position == len(data)
    assert HEADER.unpack_from(data, taken.last)[4] == taken.checksum
    assert told(contents) == told(by_steps(data))
