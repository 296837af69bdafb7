"""The four processes of the demo. Each checks what it claims."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from antiphon.content import text_of
from antiphon.demo.home import read_bookings, read_lights
from antiphon.demo.lines import BOOKING, GO_ON, LIGHTS, STOP, STORY, WEATHER
from antiphon.demo.news import Claims, tell
from antiphon.demo.screen import draw_tree, table
from antiphon.demo.talk import SESSION, Talk, sessions, told
from antiphon.models.embedded.talk import story
from antiphon.session.tree import read_tree

WORDS_BEFORE_THE_KILL = 14
WORDS_BEFORE_STOP = 12
BOOKED = "2 guests at 7 o'clock"
TALE = story("dragon")


async def first_call(folder: Path, clips: Path | None) -> int:
    """A call with three wishes; the process is killed in the last one."""
    talk = Talk(folder, "1-first-call.wav", clips)

    async def script() -> None:
        await talk.say(LIGHTS)
        await talk.answered("kitchen lights are on")
        await talk.checkpoint()
        await talk.say(BOOKING)
        await talk.until(lambda: bool(read_bookings(folder)))
        await talk.say(STORY)
        await talk.answered("the end of the story")  # it does not come so far

    await talk.call(script)
    return 1


async def resume(folder: Path, clips: Path | None) -> int:
    """The next process: what it knows of the last one, and how it goes on."""
    claims = Claims()
    began = time.monotonic()
    talk = Talk(folder, "2-next-call.wav", clips)
    tell("restored", messages=told(talk.agent.messages), seconds=time.monotonic() - began)
    before = list(talk.agent.messages)
    heard = next((text_of(message) for message in reversed(before) if text_of(message)), "")
    rest = TALE.removeprefix(heard).strip()
    claims.claim("what was heard is the beginning of the story", holds=bool(heard) and TALE.startswith(heard))
    claims.claim("the history ends with the call that was under way", holds=_cut_call(before))

    async def script() -> None:
        await talk.say(GO_ON)
        await talk.until(lambda: max(talk.words.values(), default=0) >= WORDS_BEFORE_STOP)
        await talk.say(STOP)
        await talk.answered("All right.")

    await talk.call(script)
    resumed = next((answer for answer in talk.answers if answer != "All right."), "")
    claims.claim(
        "the story goes on with the next word that was not heard", holds=bool(resumed) and rest.startswith(resumed)
    )
    spans = talk.heard.spans
    claims.claim(
        "nothing of the story was played after the barge-in",
        holds=talk.cut_at_ms is not None and bool(spans) and abs(spans[0].end_ms - talk.cut_at_ms) < 0.1,
    )
    claims.claim(
        "the table was booked once", holds=read_bookings(folder) == [BOOKED] and "book_table" not in talk.calls
    )
    return claims.exit_code


def _cut_call(messages: list[Any]) -> bool:
    """Whether the last two messages are a call and its end by a restart."""
    lines = told(messages[-2:])
    return (
        [line["who"] for line in lines] == ["call", "result"]
        and lines[0]["name"] == "book_table"
        and (lines[1]["status"], lines[1]["text"]) == ("error", "interrupted by a restart")
    )


async def branch(folder: Path, clips: Path | None) -> int:
    """Back to the first checkpoint, and on another way."""
    claims = Claims()
    talk = Talk(folder, "3-branch.wav", clips)
    tree = await read_tree(sessions(folder), SESSION)
    ids = await talk.manager.list_snapshot_ids(talk.agent)
    nodes = {node.snapshot_id: node for node in tree.nodes}
    tell(
        "checkpoints",
        nodes=[
            {
                "id": each,
                "at": nodes[each].created_at,
                "messages": nodes[each].message_count,
                "last": nodes[each].last_words,
            }
            for each in ids
        ],
    )
    claims.claim("there are two checkpoints, the older one first", holds=len(ids) == 2 and ids == sorted(ids))
    later = _digest(folder, ids[-1])
    await talk.manager.restore_snapshot(talk.agent, snapshot_id=ids[0])
    tell("rewound", snapshot_id=ids[0], messages=told(talk.agent.messages))
    claims.claim(
        "the rewound talk knows the lights and nothing later",
        holds=[line["who"] for line in told(talk.agent.messages)] == ["user", "call", "result", "assistant"]
        and read_lights(folder) == {"kitchen": True},
    )

    async def script() -> None:
        await talk.say(WEATHER)
        await talk.answered("In Paris tomorrow: sunshine, 14 degrees.")

    await talk.call(script)
    claims.claim("on the other branch the weather was told", holds=talk.calls == ["weather"])
    claims.claim("the other branch's checkpoint is as it was", holds=_digest(folder, ids[-1]) == later)
    claims.claim("the table is still booked once", holds=read_bookings(folder) == [BOOKED])
    return claims.exit_code


def _digest(folder: Path, snapshot_id: str) -> str:
    (blob,) = (folder / "sessions").rglob(f"snapshot_{snapshot_id}.json")
    return hashlib.sha256(blob.read_bytes()).hexdigest()


async def draw(folder: Path, figures: dict[str, Any], *, as_json: bool, colour: bool) -> int:
    """Read the tree from storage alone, and draw it with the figures; the figures gain what only storage knows."""
    tree = await read_tree(sessions(folder), SESSION)
    blobs = [path for path in (folder / "sessions").rglob("*.json") if path.is_file()]
    figures["bytes_saved"] = sum(path.stat().st_size for path in blobs)
    figures["blobs_saved"] = len(blobs)
    roots = tree.roots()
    children = [node.snapshot_id for node in tree.children(roots[0].snapshot_id or "")] if roots else []
    holds = (
        len(tree.nodes) == 3
        and len(roots) == 1
        and children == [node.snapshot_id for node in tree.nodes[1:]]
        and tree.latest is not None
        and tree.latest.parent_id == children[-1]
    )
    figures["claims"].append({"text": "the tree in storage is one checkpoint with two branches", "holds": holds})
    if as_json:
        nodes = [
            {
                "snapshot_id": node.snapshot_id,
                "parent_id": node.parent_id,
                "created_at": node.created_at,
                "message_count": node.message_count,
                "last_words": node.last_words,
                "size": node.size,
            }
            for node in [*tree.nodes, *([tree.latest] if tree.latest else [])]
        ]
        print(json.dumps({"tree": nodes, "figures": figures}, indent=2, ensure_ascii=False))
    else:
        print(draw_tree(tree, colour=colour))
        print()
        print(table(figures, colour=colour))
    return 0 if holds else 1
