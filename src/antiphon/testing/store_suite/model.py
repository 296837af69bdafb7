"""Random histories against a naive model that keeps whole rows: every row reads back to the bit, whatever happens around it.

For stores over lines (`LineStore`). Subclass `StoreMachine`, give `open`, and run it with Hypothesis::

    class Machine(StoreMachine):
        def open(self, place):
            return SQLiteSessionStore(place / "sessions.db")

    def test_any_history_reads_back():
        run_state_machine_as_test(Machine, settings=settings(max_examples=20, stateful_step_count=30))
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from antiphon.errors import SessionConflictError
from antiphon.jsonable import encode_json, same_json
from antiphon.snapshot.envelope import Snapshot
from antiphon.store.base import ANY_TIP, IN_FLIGHT, SessionSnapshot, Tip
from antiphon.store.line_store import LineStore
from antiphon.testing.store_suite.support import at, exact, snapshot

Message = dict[str, Any]

_TEXTS = ["a", "b", "c", "secret-1", "secret-2", "\0x\ufeff\u202e𝄞", "L" * 5000, "M" * 4050]
_LEAVES: list[Any] = [0, 1, True, False, None, 1.0, -0.0, 0.0, 2**63, 1e-300, "x", b"\x00\xff"]
_SESSIONS = ["s", "t"]


def _message(role: str, text: str, leaf: Any) -> Message:
    plain: Message = {"role": role, "content": [{"text": text}]}
    return plain if leaf == "x" else {**plain, "metadata": {"custom": {"v": leaf}}}


_messages = st.lists(
    st.builds(_message, st.sampled_from(["user", "assistant"]), st.sampled_from(_TEXTS), st.sampled_from(_LEAVES)),
    max_size=4,
)
_which = st.integers(0, 1)
_pick = st.integers(0, 10**6)
_session = st.sampled_from(_SESSIONS)


def _redaction(word: str) -> Callable[[Message], Message | None]:
    def redact(message: Message) -> Message | None:
        told = message["content"][0]["text"]
        if told != word:
            return None
        return {**message, "content": [{"text": "[twice]" if told.startswith("[") else f"[gone]{told[-1]}"}]}

    return redact


def _once(pairs: list[tuple[Message, Message]]) -> list[tuple[Message, Message]]:
    """The pairs without those that are there already, in their order."""
    return list({(encode_json(old), encode_json(new)): (old, new) for old, new in reversed(pairs)}.values())[::-1]


class StoreMachine(RuleBasedStateMachine):
    """Two objects over one place, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self._place = Path(tempfile.mkdtemp(prefix="antiphon-model-"))
        self._stores = [self.open(self._place), self.open(self._place)]
        self._rows: dict[str, SessionSnapshot] = {}
        self._masked: dict[str, list[tuple[Message, Message]]] = {name: [] for name in _SESSIONS}
        # What no row held any more when it was redacted: a store that still has the words masks them, another need not.
        self._perhaps: dict[str, list[tuple[Message, Message]]] = {name: [] for name in _SESSIONS}
        self._seen: dict[str, dict[bytes, Message]] = {name: {} for name in _SESSIONS}
        self._live: dict[str, list[Message]] = {}
        self._count = 0

    def open(self, place: Path) -> LineStore:
        """Open a store over a folder; the second time over what the first one made."""
        raise NotImplementedError

    def teardown(self) -> None:
        for store in self._stores:
            store.close()
        shutil.rmtree(self._place)

    # The model

    def _next(self) -> str:
        self._count += 1
        return f"r{self._count:04}"

    def _choose(
        self, number: int, session: str | None = None, want: Callable[[SessionSnapshot], bool] = lambda _: True
    ) -> str | None:
        ids = sorted(
            snapshot_id
            for snapshot_id, there in self._rows.items()
            if session in (None, there.session_id) and want(there)
        )
        return ids[number % len(ids)] if ids else None

    def _listed(self, snapshot_id: str | None) -> list[Message]:
        there = None if snapshot_id is None else self._rows.get(snapshot_id)
        found: Any = None if there is None or there.snapshot is None else there.snapshot.data.get("messages")
        if not isinstance(found, list):
            return []
        return cast("list[Message]", copy.deepcopy(found))  # pyright: ignore[reportUnknownArgumentType]

    def _mask(self, session: str, message: Message) -> Message:
        for old, new in self._masked[session]:
            if same_json(old, message):
                return copy.deepcopy(new)
        return message

    def _settle(self, session: str, stored: SessionSnapshot, saved: SessionSnapshot | None) -> SessionSnapshot:
        """The model's row, with words masked that no row held when they were redacted, where the store masked them."""
        loaded = None if saved is None else saved.loaded()
        state = stored.snapshot
        if loaded is None or state is None or not isinstance(state.data.get("messages"), list):
            return stored
        messages: list[Message] = state.data["messages"]
        made: list[Message] = loaded.data["messages"]
        for index, (message, found) in enumerate(zip(messages, made, strict=True)):
            for old, new in self._perhaps[session]:
                if same_json(old, message) and same_json(new, found):
                    messages[index] = copy.deepcopy(new)
        self._seen[session].update((encode_json(message), copy.deepcopy(message)) for message in messages)
        return stored

    def _stored(self, snapshot_id: str, wanted: SessionSnapshot) -> SessionSnapshot:
        """What the store is to make of a row."""
        before = self._rows.get(snapshot_id)
        session = wanted.session_id if before is None else before.session_id
        state = copy.deepcopy(wanted.snapshot)
        if state is not None and isinstance(state.data.get("messages"), list):
            state.data["messages"] = [self._mask(session, message) for message in state.data["messages"]]
        status = wanted.status or "completed"
        return replace(wanted, snapshot_id=snapshot_id, session_id=session, status=status, snapshot=state)

    def _put(
        self,
        which: int,
        snapshot_id: str,
        wanted: SessionSnapshot,
        *,
        handed: Snapshot | None = None,
        expected_tip: str | Tip | None = ANY_TIP,
    ) -> None:
        """Save a row in the store and in the model. `handed`: the same snapshot with messages that were read."""
        stored = self._stored(snapshot_id, wanted)
        before = self._rows.get(snapshot_id)

        def change(there: SessionSnapshot | None) -> SessionSnapshot:
            assert exact(there) == exact(before)
            return wanted if handed is None else replace(wanted, snapshot=handed)

        saved = self._stores[which].sync.save_snapshot(snapshot_id, change, expected_tip=expected_tip)
        stored = self._settle(stored.session_id, stored, saved)
        assert exact(saved) == exact(stored)
        self._rows[snapshot_id] = stored

    def _row(self, session: str, parent: str | None, messages: list[Message], **fields: Any) -> SessionSnapshot:
        state = snapshot(messages, state={"n": self._count, "pad": "p" * (self._count % 5 * 100)})
        given: dict[str, Any] = {"created_at": at(self._count), "snapshot": state, **fields}
        return SessionSnapshot(session_id=session, parent_id=parent, **given)

    # What happens

    @rule(which=_which, session=_session, number=_pick, more=_messages, back=st.booleans())
    def append(self, *, which: int, session: str, number: int, more: list[Message], back: bool) -> None:
        """A turn, on any earlier row: often a branch."""
        parent = self._choose(number, session)
        created_at = at(self._count - (20 if back else 0))
        history = self._listed(parent) + more
        self._put(which, self._next(), self._row(session, parent, history, created_at=created_at))

    @rule(
        which=_which, number=_pick, start=st.integers(0, 3), cut=st.integers(0, 2), more=_messages, again=st.booleans()
    )
    def carry(self, *, which: int, number: int, start: int, cut: int, more: list[Message], again: bool) -> None:
        """Messages that were read from a row are handed over with some at the end."""
        base = self._choose(number, want=lambda there: bool(self._listed(there.snapshot_id)))
        if base is None:
            return
        there = self._rows[base]
        history = self._listed(base)
        stop = max(start, len(history) - cut)
        read = self._stores[which].sync.get_snapshot(base)
        assert read is not None
        assert read.snapshot is not None
        target = base if again else self._next()
        wanted = self._row(there.session_id, there.parent_id if again else base, history[start:stop] + more)
        wanted = replace(wanted, status=there.status if again else "")
        assert wanted.snapshot is not None
        messages: Any = read.snapshot.data["messages"][start:stop] + more
        handed = replace(wanted.snapshot, data={**wanted.snapshot.data, "messages": messages})
        self._put(which, target, wanted, handed=handed)

    @rule(which=_which, session=_session, number=_pick, data=st.data(), again=st.booleans(), stale=st.booleans())
    def edit(self, *, which: int, session: str, number: int, data: st.DataObject, again: bool, stale: bool) -> None:
        """The app's own list, edited in place and handed over as the same objects."""
        parent = self._choose(number, session)
        if parent is None:
            return
        if not stale or session not in self._live:
            self._live[session] = self._listed(parent)
        history = self._live[session]
        for _ in range(data.draw(st.integers(1, 3))):
            self._edit(history, data)
        before = self._rows[parent]
        if again:
            self._put(
                which,
                parent,
                self._row(session, before.parent_id, history, created_at=before.created_at, status=before.status),
            )
        else:
            status = data.draw(st.sampled_from(["", "failed", "pending"]))
            self._put(which, self._next(), self._row(session, parent, history, status=status))

    def _edit(self, history: list[Message], data: st.DataObject) -> None:
        place = data.draw(st.integers(0, max(0, len(history) - 1)))
        kinds = ["text", "number", "insert", "delete", "trim", "summary", "swap", "twice", "append"]
        kind = data.draw(st.sampled_from(kinds))
        if kind == "append":
            history += data.draw(_messages)
        elif kind == "insert":
            history[place:place] = data.draw(_messages)
        elif not history:
            return
        elif kind == "text":
            history[place]["content"][0]["text"] = data.draw(st.sampled_from(_TEXTS))
        elif kind == "number":
            history[place]["metadata"] = {"custom": {"v": data.draw(st.sampled_from(_LEAVES))}}
        elif kind == "delete":
            del history[place]
        elif kind == "trim":
            del history[:place]
        elif kind == "summary":
            history[:place] = data.draw(_messages)[:1]
        elif kind == "swap":
            history[0], history[place] = history[place], history[0]
        else:
            history.append(copy.deepcopy(history[place]))

    @rule(
        which=_which,
        session=_session,
        number=_pick,
        shape=st.sampled_from([None, {}, {"messages": None}, {"messages": []}, {"messages": "odd", "state": None}]),
    )
    def begin(self, *, which: int, session: str, number: int, shape: dict[str, Any] | None) -> None:
        """A run begins, with whatever state."""
        state = None if shape is None else replace(snapshot(None), data=copy.deepcopy(shape))
        parent = self._choose(number, session) or "nowhere"
        journal = {"mark": 0, "lines": [{"role": "user", "content": [{"text": "heard"}]}]}
        self._put(
            which,
            self._next(),
            self._row(session, parent, [], snapshot=state, status="pending", error={"n": 1.0}, journal=journal),
        )

    @rule(which=_which, number=_pick, more=_messages)
    def finish(self, *, which: int, number: int, more: list[Message]) -> None:
        """A run ends."""
        run = self._choose(number, want=lambda there: there.status in IN_FLIGHT)
        if run is None:
            return
        there = self._rows[run]
        wanted = self._row("elsewhere", there.parent_id, self._listed(there.parent_id) + more)
        self._put(which, run, replace(wanted, created_at=there.created_at))

    @rule(which=_which, number=_pick)
    def touch(self, *, which: int, number: int) -> None:
        """A row is written again with one field changed and its messages as they were read."""
        chosen = self._choose(number)
        if chosen is None:
            return

        def change(there: SessionSnapshot | None) -> SessionSnapshot:
            assert there is not None
            return replace(there, owner=f"w{self._count}")

        saved = self._stores[which].sync.save_snapshot(chosen, change)
        self._rows[chosen] = replace(self._rows[chosen], owner=f"w{self._count}")
        assert exact(saved) == exact(self._rows[chosen])

    @rule(which=_which, session=_session, word=st.sampled_from(["secret-1", "secret-2", "[gone]1"]))
    def redact(self, *, which: int, session: str, word: str) -> None:
        """A word is taken back."""
        function = _redaction(word)
        self._stores[which].sync.redact(session, function)
        replaced: list[tuple[Message, Message]] = []
        for there in self._rows.values():
            found: Any = None if there.snapshot is None else there.snapshot.data.get("messages")
            if there.session_id == session and isinstance(found, list):
                listed: list[Any] = found  # pyright: ignore[reportUnknownVariableType]
                for index, message in enumerate(list(listed)):
                    new = function(message)
                    if new is not None:
                        replaced.append((message, new))
                        listed[index] = copy.deepcopy(new)
        gone = [
            (message, new)
            for message in self._seen[session].values()
            if (new := function(message)) is not None and not any(same_json(message, old) for old, _ in replaced)
        ]
        masked, older = self._masked[session], self._perhaps[session]
        self._masked[session] = _once(replaced + [(old, function(new) or new) for old, new in masked])
        self._perhaps[session] = _once(gone + older + [(old, function(new) or new) for old, new in older])

    @rule(which=_which, number=_pick, word=st.sampled_from(["secret-1", "secret-2"]), carried=st.booleans())
    def come_back(self, *, which: int, number: int, word: str, carried: bool) -> None:
        """One saves a word, another takes it back, and the first saves what it still holds."""
        base = self._choose(number, want=lambda there: bool(self._listed(there.snapshot_id)))
        if base is None:
            return
        session = self._rows[base].session_id
        history = [*self._listed(base), {"role": "user", "content": [{"text": word}]}]
        first, second = self._next(), self._next()
        self._put(which, first, self._row(session, base, copy.deepcopy(history)))
        read = self._stores[which].sync.get_snapshot(first)
        assert read is not None
        assert read.snapshot is not None
        self.redact(which=1 - which, session=session, word=word)
        wanted = self._row(session, first, history)
        assert wanted.snapshot is not None
        messages: Any = read.snapshot.data["messages"]
        handed = replace(wanted.snapshot, data={**wanted.snapshot.data, "messages": messages}) if carried else None
        if carried:  # what was read is the word as it was then, masked since the redactions before
            held = [message for message in messages]  # noqa: C416 - as plain dicts
            wanted = replace(wanted, snapshot=replace(wanted.snapshot, data={**wanted.snapshot.data, "messages": held}))
        self._put(which, second, wanted, handed=handed)

    @rule(which=_which, session=_session, keep=st.integers(1, 4))
    def prune(self, *, which: int, session: str, keep: int) -> None:
        """Old rows go."""
        report = self._stores[which].sync.prune(session, keep=keep)
        mine = sorted(
            (snapshot_id for snapshot_id, there in self._rows.items() if there.session_id == session),
            key=lambda snapshot_id: (self._rows[snapshot_id].created_at, snapshot_id),
        )
        assert set(report.snapshot_ids) <= set(mine[:-keep])
        for snapshot_id in mine:
            there = self._rows[snapshot_id]
            if there.status in IN_FLIGHT:
                assert snapshot_id not in report.snapshot_ids
                assert there.parent_id not in report.snapshot_ids
        for snapshot_id in report.snapshot_ids:
            del self._rows[snapshot_id]

    @rule(which=_which, session=_session)
    def sweep(self, *, which: int, session: str) -> None:
        """What no row holds is forgotten, and then there is no more of it."""
        self._stores[which].sync.sweep(session)
        assert self._stores[which].sync.sweep(session) == 0

    @rule(which=_which, session=_session, really=st.integers(0, 9))
    def delete(self, *, which: int, session: str, really: int) -> None:
        """A whole session goes, now and then."""
        if really:
            return
        self._stores[which].sync.delete_session(session)
        self._rows = {name: there for name, there in self._rows.items() if there.session_id != session}
        self._masked[session] = []
        self._perhaps[session] = []
        self._seen[session] = {}

    @rule(which=_which)
    def reopen(self, *, which: int) -> None:
        """One of the objects is made anew."""
        self._stores[which].close()
        self._stores[which] = self.open(self._place)

    @rule(which=_which, session=_session, more=_messages, right=st.booleans())
    def guard(self, *, which: int, session: str, more: list[Message], right: bool) -> None:
        """A writer says which tip it built on."""
        mine = [snapshot_id for snapshot_id, there in self._rows.items() if there.session_id == session]
        tip = max(mine, key=lambda name: (self._rows[name].created_at, name), default=None)
        latest = self._stores[which].sync.get_latest_snapshot_metadata(session)
        assert (None if latest is None else latest.snapshot_id) == tip
        wanted = self._row(session, tip, more)
        if right:
            self._put(which, self._next(), wanted, expected_tip=tip)
            return
        with pytest.raises(SessionConflictError) as refused:
            self._stores[which].sync.save_snapshot("never", lambda _: wanted, expected_tip="another")
        assert refused.value.found == tip

    @invariant()
    def every_row_reads_back(self) -> None:
        for index, (snapshot_id, wanted) in enumerate(sorted(self._rows.items())[-6:] + sorted(self._rows.items())[:3]):
            assert exact(self._stores[index % 2].sync.get_snapshot(snapshot_id)) == exact(wanted), snapshot_id
