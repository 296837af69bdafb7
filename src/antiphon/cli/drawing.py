"""Sessions and differences as they are drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from antiphon.cli.screen import plain, row_facts, status_text
from antiphon.cli.turns import Line, lines_of, mode_of
from antiphon.errors import AntiphonError
from antiphon.snapshot.diff import SnapshotDiff, diff_snapshots
from antiphon.store.base import SessionSnapshot
from antiphon.store.lineage import SnapshotTree
from antiphon.store.sync import SyncSessionStore


@dataclass(frozen=True, slots=True)
class RowTold:
    """What a row has that its parent has not.

    Attributes:
        messages: How many it has in all.
        lines: What was said and done since its parent.
        damage: Why it cannot be read; empty where it can.
        last: Its last message.
    """

    messages: int = 0
    lines: tuple[Line, ...] = ()
    damage: str = ""
    last: Any = None


def tell_row(store: SyncSessionStore, row: SessionSnapshot, parent: RowTold | None, parent_id: str | None) -> RowTold:
    """Read a row, and tell what is new in it."""
    try:
        messages = _messages(found := store.get_snapshot(row.snapshot_id))
        count = 0 if parent is None else parent.messages
        if count == 0 or parent is None:
            new = messages
        elif len(messages) >= count and messages[count - 1] == parent.last:
            new = messages[count:]
        else:  # trimmed, or told otherwise: compare the two
            before = None if parent_id is None else store.get_snapshot(parent_id)
            changes = diff_snapshots(
                None if before is None else before.snapshot, None if found is None else found.snapshot
            )
            new = [placed.message for placed in changes.added]
        return RowTold(len(messages), tuple(lines_of(new)), last=messages[-1] if messages else None)
    except AntiphonError as error:
        return RowTold(damage=str(error))


def _messages(row: SessionSnapshot | None) -> list[Any]:
    snapshot = None if row is None else row.loaded()
    return [] if snapshot is None else list(snapshot.data.get("messages") or [])


def tree_facts(tree: SnapshotTree, told: Mapping[str, RowTold]) -> dict[str, Any]:
    """A tree as JSON: its rows, oldest first."""
    rows: list[dict[str, Any]] = []
    for row in tree.rows:
        facts, known = row_facts(row), told[row.snapshot_id]
        facts |= {
            "children": [child.snapshot_id for child in tree.children(row.snapshot_id)],
            "messages": known.messages,
            "mode": mode_of(known.lines),
            "turn": [line.facts() for line in known.lines],
        }
        rows.append(facts | ({"damage": known.damage} if known.damage else {}))
    return {"session_id": tree.session_id, "rows": rows}


def draw_tree(tree: SnapshotTree, told: Mapping[str, RowTold], most: int) -> Iterator[Text]:
    """A tree, line by line. A row's only child stands right below it; where there are several, branches begin.

    Args:
        tree: The tree.
        told: What is new in each row.
        most: Lines of each row; of more, the last ones are drawn.
    """
    yield Text.assemble((plain(tree.session_id), "bold"), (f"  {len(tree.rows)} snapshots", "dim"))
    waiting = [(row, "", "") for row in reversed(tree.roots())]
    while waiting:
        row, first, rest = waiting.pop()
        known, children = told[row.snapshot_id], tree.children(row.snapshot_id)
        yield _head(row, known, first)
        below = rest + ("│  " if children else "   ")
        if known.damage:
            yield Text.assemble((below, "dim"), (f"cannot be read: {plain(known.damage)}", "red"))
        if row.error is not None:
            yield Text.assemble((below, "dim"), (plain(str(row.error.get("message", ""))), "red"))
        shown = known.lines[-most:] if most else ()
        if most and len(shown) < len(known.lines):
            yield Text(f"{below}… {len(known.lines) - len(shown)} more", style="dim")
        for line in shown:
            yield Text.assemble((below, "dim"), line.drawn())
        if len(children) == 1:
            waiting.append((children[0], rest, rest))
            continue
        for number, child in reversed(list(enumerate(children, 1))):
            last = number == len(children)
            waiting.append((child, rest + ("╰─" if last else "├─"), rest + ("  " if last else "│ ")))


def _head(row: SessionSnapshot, known: RowTold, first: str) -> Text:
    # A row in flight has a hollow sign.
    head = Text.assemble((first, "dim"), "● " if row.terminal else "○ ", (row.snapshot_id, "bold"), "  ")
    head.append_text(status_text(row.status))
    if row.finish_reason and row.finish_reason not in {"stop", row.status}:
        head.append(f" ({plain(row.finish_reason)})", style="yellow")
    mode = mode_of(known.lines)
    facts = [f"{row.created_at:%Y-%m-%d %H:%M:%S}", mode, f"{known.messages} messages"]
    head.append("  " + "  ".join(fact for fact in facts if fact), style="dim")
    return head


def diff_facts(one: str, other: str, found: SnapshotDiff) -> dict[str, Any]:
    """A difference as JSON."""
    return {
        "one": one,
        "other": other,
        "same": not found,
        "added": [{"index": placed.index, "message": placed.message} for placed in found.added],
        "removed": [{"index": placed.index, "message": placed.message} for placed in found.removed],
        "changed": [
            {
                "before_index": changed.before_index,
                "after_index": changed.after_index,
                "before": changed.before,
                "after": changed.after,
            }
            for changed in found.changed
        ],
        "data": list(found.data),
        "app_data": list(found.app_data),
    }


def draw_diff(one: str, other: str, found: SnapshotDiff) -> Iterator[Text]:
    """A difference, line by line: what is gone in red, what is new in green."""
    yield Text(f"--- {one}", style="bold red")
    yield Text(f"+++ {other}", style="bold green")
    moves: list[tuple[int, int, Text]] = []
    for placed in found.removed:
        moves += [(placed.index, 0, text) for text in _signed("-", "red", placed.index, placed.message)]
    for changed in found.changed:
        moves += [(changed.before_index, 0, text) for text in _signed("-", "red", changed.before_index, changed.before)]
        moves += [(changed.before_index, 1, text) for text in _signed("+", "green", changed.after_index, changed.after)]
    for placed in found.added:
        moves += [(placed.index, 1, text) for text in _signed("+", "green", placed.index, placed.message)]
    moves.sort(key=lambda move: move[:2])
    yield from (text for _, _, text in moves)
    for name, patch in (("data", found.data), ("app_data", found.app_data)):
        for operation in patch:
            yield _operation(name, operation)


def _signed(sign: str, style: str, index: int, message: Any) -> Iterator[Text]:
    for line in lines_of([message]):
        drawn = Text(f"{sign} {index:>4}  ", style=style)
        drawn.append_text(Text(line.drawn(short=False).plain, style=style))
        yield drawn


def _operation(name: str, operation: dict[str, Any]) -> Text:
    kind = str(operation.get("op"))
    sign, style = {"add": ("+", "green"), "remove": ("-", "red")}.get(kind, ("~", "yellow"))
    value = (
        f" = {plain(json.dumps(operation['value'], ensure_ascii=False, default=str))}" if "value" in operation else ""
    )
    return Text(f"{sign} {name}{plain(str(operation.get('path')))}{value}", style=style)
