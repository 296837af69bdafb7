"""What was said and done, one line for each: by voice or typed, and what of it was heard."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from rich.text import Text

from antiphon.cli.screen import plain

_STYLES = {"user": "cyan", "assistant": "green", "call": "magenta", "result": "blue"}
_SHORT = 100


@dataclass(frozen=True, slots=True)
class Line:
    """A line.

    Attributes:
        who: `user`, `assistant`, `call`, `result`, or the kind of a block that has no words.
        text: What was said; of an answer that was cut off, what was heard.
        spoken: Whether by voice.
        unheard: What else was made of it, and never heard.
        heard_ms: How much of its sound was played, where it was cut off.
        cut: Whether it was cut off.
    """

    who: str
    text: str
    spoken: bool = False
    unheard: str = ""
    heard_ms: float | None = None
    cut: bool = False

    def facts(self) -> dict[str, Any]:
        """The line by name, for JSON."""
        facts: dict[str, Any] = {"who": self.who, "text": self.text, "spoken": self.spoken}
        if self.cut:
            facts |= {"interrupted": True, "unheard": self.unheard}
            if self.heard_ms is not None:
                facts["heard_ms"] = self.heard_ms
        return facts

    def drawn(self, *, short: bool = True) -> Text:
        """The line for people; what was not heard is struck out."""
        most = _SHORT if short else None
        sign = "voice" if self.spoken else "text " if self.who in {"user", "assistant"} else "     "
        drawn = Text.assemble((f"{sign} ", "dim"), (f"{plain(self.who):<9} ", _STYLES.get(self.who, "dim")))
        drawn.append(_shortened(plain(self.text), most))
        if self.cut:
            if self.unheard:
                drawn.append(" ")
                drawn.append(_shortened(plain(self.unheard), most and most // 2), style="dim strike")
            heard = "" if self.heard_ms is None else f", {self.heard_ms / 1000:.1f} s were heard"
            drawn.append(f"  [cut off{heard}]", style="yellow")
        return drawn


def lines_of(messages: Sequence[Any]) -> list[Line]:
    """The lines of a part of a history. Nothing is taken for granted of what is stored."""
    lines: list[Line] = []
    for message in messages:
        found = _dict(message)
        metadata = _dict(found.get("metadata"))
        content: Any = found.get("content")
        blocks = cast("Sequence[Any]", content) if isinstance(content, list) else ()
        lines += [_line(str(found.get("role", "?")), _dict(block), metadata) for block in blocks]
    return lines


def mode_of(lines: Sequence[Line]) -> str:
    """`voice`, `text`, or both; empty where nobody said anything.

    >>> mode_of([Line("user", "hello"), Line("assistant", "good day", spoken=True)])
    'text+voice'
    """
    said = [line for line in lines if line.who in {"user", "assistant"}]
    modes = {"voice" if line.spoken else "text" for line in said}
    return "+".join(sorted(modes))


def _line(role: str, block: dict[str, Any], metadata: dict[str, Any]) -> Line:
    if "text" in block:
        text = str(block["text"])
        spoken = metadata.get("kind") == "speech"
        if role != "assistant" or not metadata.get("interrupted"):
            return Line(role, text, spoken)
        made, heard_ms = str(metadata.get("generated_text", "")), metadata.get("heard_ms")
        unheard = made.removeprefix(text).strip() if made.startswith(text) else ""
        return Line(
            role, text, spoken, unheard, float(heard_ms) if isinstance(heard_ms, int | float) else None, cut=True
        )
    if "toolUse" in block:
        call = _dict(block["toolUse"])
        return Line("call", f"{call.get('name')} {json.dumps(call.get('input'), ensure_ascii=False, default=str)}")
    if "toolResult" in block:
        result = _dict(block["toolResult"])
        parts: Any = result.get("content")
        texts = [_text(_dict(part)) for part in cast("Sequence[Any]", parts)] if isinstance(parts, list) else []
        failed = "" if result.get("status") != "error" else "failed: "
        return Line("result", failed + " ".join(texts))
    if "reasoningContent" in block:
        return Line("reasoning", str(_dict(_dict(block["reasoningContent"]).get("reasoningText")).get("text", "")))
    return Line(next(iter(block), "?"), "")


def _text(part: dict[str, Any]) -> str:
    if "text" in part:
        return str(part["text"])
    return json.dumps(part["json"], ensure_ascii=False, default=str) if "json" in part else f"[{next(iter(part), '')}]"


def _dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _shortened(text: str, most: int | None) -> str:
    return text if most is None or len(text) <= most else text[: most - 1] + "…"
