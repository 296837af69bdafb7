"""What a process does to a store until it dies, and what must be there afterwards."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from antiphon.store.line_store import LineStore
from antiphon.testing.store_suite.support import row, said, snapshot, words

SECRET = "the combination is 7-3-9"


@dataclass
class Told:
    """What was acknowledged.

    Attributes:
        turns: By session, the number of its last turn.
        redacted: By session, how many turns had been taken when it was redacted last.
        begun: What was begun and not acknowledged: a word and a session.
    """

    turns: dict[str, int] = field(default_factory=dict)
    redacted: dict[str, int] = field(default_factory=dict)
    begun: list[str] | None = None

    def hear(self, line: str) -> None:
        """Take in a line that `live` gave to `tell`."""
        word, session, number = line.split()
        if word.startswith("begin-"):
            self.begun = [word.removeprefix("begin-"), session]
            return
        self.begun = None
        if word == "turn":
            self.turns[session] = int(number)
        elif word == "redact":
            self.redacted[session] = int(number)
        elif word == "delete":
            self.turns.pop(session, None)
            self.redacted.pop(session, None)


def text_of(session: str, turn: int) -> str:
    return (
        f"{session} turn {turn}: {SECRET}" if turn % 3 == 0 else f"{session} turn {turn}: " + "word " * (turn % 7 * 40)
    )


def without_secret(message):
    text = message["content"][0]["text"]
    return {**message, "content": [{"text": text.replace(SECRET, "[gone]")}]} if SECRET in text else None


def take_turn(store: LineStore, session: str) -> int:
    """The next turn of a session: a row that names the one before as its parent, with one message more."""
    tip = store.sync.get_latest_snapshot(session)
    messages = [] if tip is None else tip.snapshot.data["messages"]
    turn = len(messages)
    wanted = row(
        turn,
        session,
        parent_id=None if tip is None else tip.snapshot_id,
        snapshot=replace(
            snapshot(),
            data={"messages": [*messages, *said(text_of(session, turn))], "state": {"turn": turn, "pad": "p" * 400}},
        ),
    )
    store.sync.save_snapshot("", lambda _: wanted, expected_tip=None if tip is None else tip.snapshot_id)
    return turn


def live(store: LineStore, round_: int, tell: Callable[[str], None], turns: int = 4) -> None:
    """Take turns in two sessions; now and then redact, prune and delete. Tells before and after each of them."""
    mine, short = f"long-{round_ % 3}", f"short-{round_ % 2}"
    for step in range(turns):
        for session in (mine, short):
            tell(f"begin-turn {session} 0")
            tell(f"turn {session} {take_turn(store, session)}")
        if (round_ + step) % 5 == 0:
            tell(f"begin-redact {mine} 0")
            store.sync.redact(mine, without_secret)
            tell(f"redact {mine} {len(store.sync.get_latest_snapshot(mine).snapshot.data['messages'])}")
        if (round_ + step) % 7 == 0:
            store.sync.prune(mine, keep=5)
        if (round_ + step) % 9 == 0:
            tell(f"begin-delete {short} 0")
            store.sync.delete_session(short)
            tell(f"delete {short} 0")


def settle(store: LineStore, told: Told) -> Told:
    """What is certain from now on: what was begun is either there or it is not."""
    tips = {
        info.session_id: words(store.sync.get_latest_snapshot(info.session_id))
        for info in store.sync.list_sessions(limit=100).sessions
    }
    redacted = {session: turns for session, turns in told.redacted.items() if session in tips}
    if told.begun and told.begun[0] == "redact" and not any(SECRET in text for text in tips[told.begun[1]]):
        redacted[told.begun[1]] = len(tips[told.begun[1]])
    return Told({session: len(texts) - 1 for session, texts in tips.items()}, redacted)


def faults(store: LineStore, told: Told) -> list[str]:
    """Everything that is not as it must be, given what was acknowledged."""
    found = []
    begun = told.begun or ["", ""]
    sessions = [info.session_id for info in store.sync.list_sessions(limit=100).sessions]
    for session in sorted({*sessions, *told.turns}):
        tip = store.sync.get_latest_snapshot(session)
        last = told.turns.get(session)
        if tip is None:
            if last is not None and begun != ["delete", session]:
                found.append(f"{session} is lost; its turn {last} was acknowledged")
            continue
        said_ = words(tip)
        turn = len(said_) - 1
        expected = {last, last + 1} if last is not None and begun == ["turn", session] else {last}
        if last is None:
            expected = {0} if begun == ["turn", session] else set()
        if turn not in expected:
            found.append(f"{session} has turn {turn}; {last} was acknowledged, then {begun} was begun")
        redacted = told.redacted.get(session, 0)
        is_redacting = begun == ["redact", session]
        for number, text in enumerate(said_):
            whole = text_of(session, number)
            gone = whole.replace(SECRET, "[gone]")
            if text not in ({gone} if number < redacted else {whole, gone} if is_redacting else {whole}):
                found.append(f"{session}: message {number} is {text!r}")
        if (
            is_redacting
            and len({SECRET in text for number, text in enumerate(said_) if number >= redacted and number % 3 == 0}) > 1
        ):
            found.append(f"{session} is half redacted")
        if tip.snapshot.data["state"]["turn"] != turn:
            found.append(f"{session}: the state of turn {turn} is {tip.snapshot.data['state']}")
        for info in store.sync.list_snapshots(session, limit=8).snapshots:
            if store.sync.get_snapshot(info.snapshot_id) is None:
                found.append(f"{session}: {info.snapshot_id} is listed and cannot be read")
    return found
