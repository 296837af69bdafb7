"""How the demo looks: lines as things happen, the tree, and the figures. Plain text, with colours on a terminal."""

from __future__ import annotations

import sys
from typing import Any

from antiphon.session.tree import SessionTree, SnapshotNode

_STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_WORDS = 44


def paint(text: str, style: str, *, colour: bool) -> str:
    """The text in a colour, where there are colours.

    >>> paint("ok", "green", colour=False)
    'ok'
    """
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if colour else text


def shortened(text: str, most: int = _WORDS) -> str:
    """The end of a long text goes.

    >>> shortened("once upon a time", 9)
    'once upo…'
    """
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


class Screen:
    """Shows the talk on standard error while it goes on.

    Args:
        colour: Whether to use colours.
        quiet: Show nothing.
    """

    def __init__(self, *, colour: bool, quiet: bool = False) -> None:
        self.colour = colour
        self._quiet = quiet
        self._open = False

    def title(self, text: str) -> None:
        """A new part begins."""
        self.line()
        self.line(paint(text, "bold", colour=self.colour))

    def entry(self, sign: str, who: str, text: str, style: str = "dim", note: str = "") -> None:
        """Somebody says or does something."""
        label = paint(f"{sign} {who:<10}", style, colour=self.colour)
        self.line(f"  {label} {text}" + (paint(f"   {note}", "dim", colour=self.colour) if note else ""))

    def word(self, text: str, *, first: bool) -> None:
        """A word is being said."""
        if first or not self._open:
            self._close()
            self._write(f"  {paint('◂ agent', 'green', colour=self.colour)}     ")
            self._open = True
        self._write(f" {text}")

    def claim(self, text: str, *, holds: bool) -> None:
        """Something was checked."""
        sign = paint("✓", "green", colour=self.colour) if holds else paint("✗ NOT SO:", "red", colour=self.colour)
        self.line(f"  {sign} {text}")

    def line(self, text: str = "") -> None:
        """A whole line."""
        self._close()
        self._write(f"{text}\n")

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._write("\n")

    def _write(self, text: str) -> None:
        if not self._quiet:
            sys.stderr.write(text)
            sys.stderr.flush()


def draw_tree(tree: SessionTree, *, colour: bool) -> str:
    """The snapshots of a session, each below the one it descends from."""
    lines = [paint(f"session {tree.session_id} · agent {tree.agent_id}", "bold", colour=colour)]
    roots = tree.roots()
    for root in roots:
        _branch(tree, root, "", "", lines, colour=colour)
    if tree.latest is not None and tree.latest.parent_id is None:
        lines.append(_node(tree.latest, "◇ ", colour=colour))
    return "\n".join(lines)


def _branch(tree: SessionTree, node: SnapshotNode, before: str, below: str, lines: list[str], *, colour: bool) -> None:
    lines.append(_node(node, f"{before}● ", colour=colour))
    children: list[SnapshotNode] = tree.children(node.snapshot_id or "")
    if tree.latest is not None and tree.latest.parent_id == node.snapshot_id:
        children.append(tree.latest)
    for child in children:
        last = child is children[-1]
        if child.snapshot_id is None:
            lines.append(_node(child, f"{below}{'╰' if last else '├'}─◇ ", colour=colour))
        else:
            _branch(
                tree, child, f"{below}{'╰' if last else '├'}─", f"{below}{'  ' if last else '│ '}", lines, colour=colour
            )


def _node(node: SnapshotNode, sign: str, *, colour: bool) -> str:
    name = f"…{node.snapshot_id[-8:]}" if node.snapshot_id else "latest   "
    said = "damaged" if node.damaged else f"“{shortened(node.last_words)}”"
    style = "cyan" if node.snapshot_id else "magenta"
    return (
        f"{paint(f'{sign:<7}{name}', style, colour=colour)}  {node.created_at[11:19]}  "
        f"{node.message_count:>3} messages  {node.size:>6,} bytes  {said}"
    )


def table(figures: dict[str, Any], *, colour: bool) -> str:
    """The figures for people."""

    def times(name: str) -> str:
        values: list[float] = figures[name]
        return " · ".join(f"{value:,.0f} ms" for value in values) or "not seen"

    spoken = figures["mode"] == "voice"
    waiting = "   500 ms of it to be sure that the sentence is over" if spoken else ""
    onset = "   from the first sound of “stop”" if spoken else ""
    rows = [
        ("cold start, process to listening", times("cold_start_ms")),
        ("restore, storage to agent", times("restore_ms")),
        ("end of speech to first sound", times("end_of_speech_to_first_sound_ms") + waiting),
        ("barge-in to silence", times("barge_in_to_silence_ms") + onset),
        ("what the kill took of the heard words", f"{figures['heard_words_lost_ms']:,.0f} ms"),
        ("saved", f"{figures['bytes_saved']:,} bytes in {figures['blobs_saved']} files"),
        ("all of it", f"{figures['seconds']:.1f} s"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{paint(name.ljust(width), 'dim', colour=colour)}  {value}" for name, value in rows)
