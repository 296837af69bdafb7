"""Messages that share rows: every primitive is right within them, and what is damaged is named."""

import random
import tracemalloc

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from psycopg import sql  # noqa: E402

from antiphon.errors import CorruptStoreError, SessionRowError  # noqa: E402
from antiphon.store.backend import Job, SessionMark  # noqa: E402
from antiphon.store.postgres import PostgresSessionStore  # noqa: E402
from antiphon.store.postgres.backend import PostgresBackend  # noqa: E402
from antiphon.store.postgres.packing import MOST_BYTES, MOST_MESSAGES, pack, pack_runs, unpack  # noqa: E402
from antiphon.store.postgres.sending import Bounds  # noqa: E402
from antiphon.testing.store_suite.support import found, put, row, said, snapshot, words  # noqa: E402

SETTINGS = {"listen_dsn": None, "poll_interval": 3600.0, "erasure": "vacuum"}

WORDS = b" the quick brown fox jumps over a lazy dog".split()

ADDRESS = st.binary(min_size=32, max_size=32).map(lambda digest: b"\0" + digest)
BODY = st.one_of(
    st.just(b""),
    st.just(b"\xff"),
    ADDRESS,
    st.integers(0, 2000).map(lambda size: b'{"a":"' + bytes(97 + at * at % 26 for at in range(size)) + b'"}'),
    st.tuples(st.integers(1, 400), st.integers(0, 9)).map(
        lambda drawn: b'{"a":"%b"}' % b" ".join(random.Random(drawn[1]).choices(WORDS, k=drawn[0]))
    ),
    st.integers(0, 9).map(lambda seed: b'{"a":"' + random.Random(seed).randbytes(40_000).hex().encode() + b'"}'),
)
BODIES = st.one_of(st.lists(BODY, min_size=1, max_size=6), st.lists(BODY, min_size=60, max_size=70))


@given(BODIES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_run_is_unpacked_as_it_was_packed(bodies):
    assert unpack(pack(bodies), len(bodies)) == bodies


@given(BODIES, st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_run_that_is_damaged_has_as_many_messages_as_it_should_or_none(bodies, data):
    value = bytearray(pack(bodies))
    for _ in range(data.draw(st.integers(0, 3))):
        if value:
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(value[: data.draw(st.integers(0, len(value)))])
    for size in (len(bodies), len(bodies) + 1, 1):
        read = unpack(cut, size)
        assert read is None or (len(read) == size and all(isinstance(body, bytes) for body in read))


@given(BODIES, st.integers(0, 100))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_runs_follow_one_another_and_are_small(bodies, at):
    runs = list(pack_runs(7, at, bodies))
    assert [body for run in runs for body in unpack(run.value, run.size)] == bodies
    assert [run.first for run in runs] == [at, *(run.stop for run in runs[:-1])]
    for run in runs:
        held = unpack(run.value, run.size)
        assert run.size <= MOST_MESSAGES
        assert run.size == 1 or sum(map(len, held)) <= MOST_BYTES


@pytest.mark.parametrize(
    ("value", "bodies"),
    [
        (b'{"role":"user","content":[{"text":"Hi"}]}', [b'{"role":"user","content":[{"text":"Hi"}]}']),
        (b"\0" + b"a" * 32, [b"\0" + b"a" * 32]),
        (b"\x01\x92\xc4\x02{}\xc4\x02[]", [b"{}", b"[]"]),
    ],
)
def test_values_that_were_written_before_are_read(value, bodies):
    assert unpack(value, len(bodies)) == bodies
    assert pack(bodies) == value


APPEND = st.tuples(st.just("append"), st.integers(0, 2), BODIES)
REPLACE = st.tuples(st.just("replace"), st.integers(0, 10**6), BODY)
OPERATION = st.one_of(
    APPEND,
    REPLACE,
    st.one_of(APPEND, REPLACE),
    st.tuples(st.just("keep"), st.integers(0, 10**6)),
    st.tuples(st.just("read"), st.integers(0, 10**6)),
    st.tuples(st.just("commit")),
)


class Model:
    """What a session should hold, and the checks of it against a view."""

    def __init__(self):
        self.lines: dict[int, int] = {}
        self.held: dict[tuple[int, int], bytes] = {}

    def check(self, tx):
        assert {(line, at): body for line, at, body in tx.bodies("s")} == self.held
        assert len(tx.bodies("s")) == len(self.held)
        assert tx.addressed("s") == {body[1:] for body in self.held.values() if body[:1] == b"\0"}
        for line in self.lines:
            ats = [at for on, at in self.held if on == line]
            assert tx.length("s", line) == max(ats, default=-1) + 1

    def read(self, tx, seed):
        dice = random.Random(seed)
        for line, length in self.lines.items():
            start, stop = sorted(dice.choices(range(length + 3), k=2))
            wanted = [self.held.get((line, at)) for at in range(start, stop)]
            if None in wanted:
                with pytest.raises(CorruptStoreError, match=rf"line {line} in session 's' (is|are) lost") as caught:
                    tx.messages("s", line, start, stop)
                assert str(start + wanted.index(None)) in str(caught.value)
            else:
                assert list(tx.messages("s", line, start, stop)) == wanted

    def keep(self, tx, seed):
        dice = random.Random(seed)
        kept: dict[int, list[tuple[int, int]]] = {}
        for line, length in self.lines.items():
            cuts = sorted(dice.sample(range(length + 2), k=min(length + 2, 2 * dice.randint(0, 3))))
            if cuts:
                kept[line] = [
                    (start, stop) for start, stop in zip(cuts[::2], cuts[1::2], strict=False) if start < stop
                ]
        left = {
            (line, at): body
            for (line, at), body in self.held.items()
            if any(start <= at < stop for start, stop in kept.get(line, ()))
        }
        assert tx.keep_messages("s", kept) == len(self.held) - len(left)
        self.held = left
        for line in self.lines:
            self.lines[line] = max((at + 1 for on, at in left if on == line), default=0)

    def step(self, tx, numbers, operation):
        name, *arguments = operation
        if name == "append":
            which, bodies = arguments
            if which >= len(numbers):
                which = len(numbers)
                numbers.append(tx.new_line("s"))
            line = numbers[which]
            at = self.lines.get(line, 0)
            tx.append("s", line, at, bodies)
            self.held.update(((line, at + index), body) for index, body in enumerate(bodies))
            self.lines[line] = at + len(bodies)
        elif name == "replace" and self.held:
            tx.bodies("s")
            line, at = random.Random(arguments[0]).choice(sorted(self.held))
            tx.replace("s", line, at, arguments[1])
            self.held[line, at] = arguments[1]
        elif name == "keep":
            self.keep(tx, *arguments)
        elif name == "read":
            self.read(tx, *arguments)


@pytest.fixture
def backend(postgres_dsn, schema):
    backend = PostgresBackend(postgres_dsn, schema=schema, bounds=Bounds(together=100_000), **SETTINGS)
    yield backend
    backend.close()


def change(backend, work):
    (outcome,) = backend.write([Job("t", "s", work)])
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


@pytest.mark.timeout(120)
def test_any_changes_of_a_session_are_as_if_each_message_stood_alone(backend):
    @given(st.lists(OPERATION, min_size=4, max_size=16))
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    def run(operations):
        model, numbers = Model(), []
        steps = [list(part) for part in _split(operations)]

        def begin(tx):
            if tx.mark("s") is not None:
                tx.drop_session("s")

        change(backend, begin)
        change(backend, lambda tx: tx.put_mark("s", SessionMark(0, b"salt")))
        for part in steps:

            def work(tx, part=part):
                for operation in part:
                    model.step(tx, numbers, operation)
                # Not asked within the change: questions send what waits.

            change(backend, work)
            change(backend, model.check)
            backend.read("t", lambda view: model.read(view, len(part)))

    run()


def _split(operations):
    part = []
    for operation in operations:
        if operation[0] == "commit":
            yield part
            part = []
        else:
            part.append(operation)
    yield part


def test_a_message_that_was_replaced_stays_so_when_more_are_appended_in_the_same_change(backend):
    def make(tx):
        tx.put_mark("s", SessionMark(0, b"salt"))
        line = tx.new_line("s")
        tx.append("s", line, 0, [b"1", b"2"])
        return line

    line = change(backend, make)

    def grow(tx):
        tx.replace("s", line, 0, b"9")
        tx.append("s", line, 2, [b"3"])

    change(backend, grow)
    assert backend.read("t", lambda view: list(view.messages("s", line, 0, 3))) == [b"9", b"2", b"3"]
