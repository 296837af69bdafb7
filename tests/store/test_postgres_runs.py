"""Messages that share rows: every primitive is right within them, and what is damaged is named."""

import random
import tracemalloc

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")
zstandard = pytest.importorskip("zstandard", reason="the extra postgres is not installed")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from psycopg import sql  # noqa: E402

from antiphon.errors import CorruptStoreError, StoreSchemaError  # noqa: E402
from antiphon.store.backend import Job, SessionMark  # noqa: E402
from antiphon.store.postgres import PostgresSessionStore  # noqa: E402
from antiphon.store.postgres.backend import PostgresBackend  # noqa: E402
from antiphon.store.postgres.driver import translated  # noqa: E402
from antiphon.store.postgres.migrations import STEPS, migrate  # noqa: E402
from antiphon.store.postgres.packing import MOST_MESSAGES, pack, unpack  # noqa: E402
from antiphon.store.postgres.sending import Bounds  # noqa: E402

SETTINGS = {"listen_dsn": None, "poll_interval": 3600.0, "erasure": "vacuum"}

WORDS = b" the quick brown fox jumps over a lazy dog".split()


def make_body(dice: random.Random) -> bytes:
    kind = dice.randrange(12)
    if kind < 3:
        return (b"", b"\xff", b"\0" + dice.randbytes(32))[kind]
    if kind == 3 and dice.random() < 0.1:
        return b'{"a":"%b"}' % dice.randbytes(40_000).hex().encode()
    return b'{"a":"%b"}' % b" ".join(dice.choices(WORDS, k=dice.choice((1, 5, 30, 200))))


def make_bodies(dice: random.Random) -> list[bytes]:
    size = dice.choice((1, 1, 2, 2, 3, 5, MOST_MESSAGES - 1, MOST_MESSAGES, MOST_MESSAGES + 1, 2 * MOST_MESSAGES + 3))
    return [make_body(dice) for _ in range(size)]


SEED = st.integers(0, 2**32)
BODIES = SEED.map(random.Random).map(make_bodies)


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


BOOKED = [
    b'{"role":"user","content":[{"text":"Please book a table for two, please, near the window."}]}',
    b'{"role":"assistant","content":[{"text":"A table for two near the window is booked."}]}',
]


@pytest.mark.parametrize(
    ("value", "bodies"),
    [
        (b'{"a":1}', [b'{"a":1}']),
        (b"\0" + b"a" * 32, [b"\0" + b"a" * 32]),
        (b"\1\x92\xc4\2{}\xc4\2[]", [b"{}", b"[]"]),
        (
            bytes.fromhex(
                "0228b52ffd20b7dd0200440492c45c506c6561736520626f6f6b2061207461626c6520666f722074776f2c20702c206e656172207468652077696e646f772e227d5d7dc4564120697365642e227d5d7d07000213260a04b4906f662d10861a02756589546e"
            ),
            BOOKED,
        ),
        (b"\3\x92\xc4\2{}\xc4\x21\0" + b"a" * 32, [b"{}", b"\0" + b"a" * 32]),
        (
            bytes.fromhex(
                "0428b52ffd20daf50200240493c45c506c6561736520626f6f6b2061207461626c6520666f722074776f2c20702c206e656172207468652077696e646f772e227d5d7dc4564120697365642100610900781b5b0c16d8355120a0857c336b8130d410a82b4ba47203"
            ),
            [*BOOKED, b"\0" + b"a" * 32],
        ),
    ],
)
def test_values_of_every_form_are_read_for_ever(value, bodies):
    assert unpack(value, len(bodies)) == bodies


def test_a_few_bytes_do_not_ask_for_much_memory():
    bomb = b"\2" + zstandard.ZstdCompressor().compress(b"\x91\xc6" + (2**28).to_bytes(4, "big") + bytes(2**28))
    assert len(bomb) < 20_000
    tracemalloc.start()
    assert unpack(bomb, 1) is None
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_what_is_not_compressed_for_its_size_reads_back():
    bodies = [b'"%b"' % (b"a" * 2**20), b"{}"]
    assert unpack(pack(bodies), 2) == bodies


NAMES = ["append", "append", "replace", "replace", "keep", "read", "commit"]
OPERATIONS = st.lists(st.tuples(st.sampled_from(NAMES), SEED), min_size=5, max_size=20)


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
                kept[line] = [(start, stop) for start, stop in zip(cuts[::2], cuts[1::2], strict=False) if start < stop]
        left = {
            (line, at): body
            for (line, at), body in self.held.items()
            if any(start <= at < stop for start, stop in kept.get(line, ()))
        }
        assert tx.keep_messages("s", kept) == len(self.held) - len(left)
        self.held = left
        for line in self.lines:
            self.lines[line] = max((at + 1 for on, at in left if on == line), default=0)

    def step(self, tx, name, seed):
        dice = random.Random(seed)
        if name == "append":
            if len(self.lines) < 3 and dice.random() < 0.4:
                self.lines[tx.new_line("s")] = 0
            if self.lines:
                line, bodies = dice.choice(sorted(self.lines)), make_bodies(dice)
                at = self.lines[line]
                tx.append("s", line, at, bodies)
                self.held.update(((line, at + index), body) for index, body in enumerate(bodies))
                self.lines[line] = at + len(bodies)
        elif name == "replace" and self.held:
            line, at = dice.choice(sorted(self.held))
            self.held[line, at] = make_body(dice)
            tx.replace("s", line, at, self.held[line, at])
        elif name == "keep":
            self.keep(tx, seed)
        elif name == "read":
            self.read(tx, seed)


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
    @given(OPERATIONS)
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    def run(operations):
        model = Model()

        def begin(tx):
            if tx.mark("s") is not None:
                tx.drop_session("s")
            tx.put_mark("s", SessionMark(0, b"salt"))
            line = tx.new_line("s")
            model.lines[line] = 0

        change(backend, begin)
        for part in parted(operations):
            change(backend, lambda tx, part=part: [model.step(tx, *operation) for operation in part])
            change(backend, model.check)
            backend.read("t", lambda view, part=part: model.read(view, len(part)))

    run()


def parted(operations):
    """What happens in one change each."""
    parts = [[]]
    for operation in operations:
        if operation[0] == "commit":
            parts.append([])
        else:
            parts[-1].append(operation)
    return parts


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


def test_a_message_that_is_not_there_is_not_replaced(backend):
    def make(tx):
        tx.put_mark("s", SessionMark(0, b"salt"))
        line = tx.new_line("s")
        tx.append("s", line, 0, [b"1", b"2"])
        return line

    line = change(backend, make)
    for on, at in ((line, 2), (line - 1, 0), (line + 1, 0)):
        with pytest.raises(CorruptStoreError, match=rf"message {at} of line {on} in session 's' is lost"):
            change(backend, lambda tx, on=on, at=at: tx.replace("s", on, at, b"9"))
    assert backend.read("t", lambda view: list(view.messages("s", line, 0, 2))) == [b"1", b"2"]


def test_a_part_of_a_run_that_is_damaged_is_named_and_what_is_beside_it_is_read_and_kept(backend, postgres_dsn, schema):
    def make(tx):
        tx.put_mark("s", SessionMark(0, b"salt"))
        line = tx.new_line("s")
        for at in (0, 5, 10):
            tx.append("s", line, at, [*BOOKED, b"1", b"2", b"3"])
        return line

    line = change(backend, make)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        runs = sql.Identifier(schema, "runs")
        damage = sql.SQL("UPDATE {} SET value = set_byte(value, 12, get_byte(value, 12) # 255) WHERE first = 5")
        assert connection.execute(damage.format(runs)).rowcount == 1
    for start, stop, lost in ((0, 15, "5 to 9"), (6, 12, "6 to 9"), (3, 7, "5 to 6"), (8, 9, "8")):
        with pytest.raises(CorruptStoreError, match=rf"messages? {lost} of line {line} in session 's' (is|are) lost"):
            backend.read("t", lambda view, start=start, stop=stop: view.messages("s", line, start, stop))
    assert backend.read("t", lambda view: list(view.messages("s", line, 2, 5))) == [b"1", b"2", b"3"]
    assert change(backend, lambda tx: tx.keep_messages("s", {line: [(2, 7), (12, 14)]})) == 8
    assert backend.read("t", lambda view: list(view.messages("s", line, 12, 14))) == [b"1", b"2"]
    assert backend.read("t", lambda view: view.length("s", line)) == 14


def test_an_older_process_is_refused_and_writes_nothing(postgres_dsn, schema):
    with psycopg.connect(postgres_dsn, autocommit=True, prepare_threshold=0) as older:
        migrate(older, schema, STEPS[:4])
        append = sql.SQL("INSERT INTO {} VALUES (1, 1, 0, '')").format(sql.Identifier(schema, "messages"))
        older.execute(append)
        older.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(schema, "messages")))
        PostgresSessionStore(postgres_dsn, schema=schema).close()
        with pytest.raises(StoreSchemaError, match="messages"), translated():
            older.execute(append)
        with pytest.raises(StoreSchemaError, match="upgrade"):
            migrate(older, schema, STEPS[:4])
