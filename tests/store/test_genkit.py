"""Folders that Genkit's file stores wrote, in the documented layout, brought into our stores."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import SessionRowError, SessionStoreError
from antiphon.store import InMemorySessionStore
from antiphon.store.file import FileSessionStore
from antiphon.store.genkit import import_genkit_folder
from antiphon.testing.store_suite.support import found, latest_id

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


def write(folder: Path, snapshot_id: str, row: dict[str, Any], prefix: str = "global") -> Path:
    path = folder / prefix / f"{snapshot_id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"snapshotId": snapshot_id, **row}, indent=2))
    return path


def said(role: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": role, "content": list(parts), **more}


@pytest.fixture
def genkit(tmp_path: Path) -> Path:
    """Three turns of a conversation, of which the last two branch, and one detached run."""
    folder = tmp_path / "snapshots"
    first = [said("user", {"text": "Weather in Łódź?"}), said("model", {"text": "Sunny."})]
    tools = [
        said("user", {"text": "And tomorrow?"}),
        said("model", {"reasoning": "Look it up.", "metadata": {"signature": "c2ln"}}, {"text": "One moment."}),
        said("model", {"toolRequest": {"name": "forecast", "ref": "c1", "input": {"day": 1}}}),
        said("tool", {"toolResponse": {"name": "forecast", "ref": "c1", "output": {"sky": "grey"}}}),
        said("model", {"text": "Grey."}, metadata={"mood": "sorry"}),
    ]
    write(
        folder,
        "s1",
        {
            "sessionId": "chat",
            "createdAt": "2024-03-01T10:00:00.123456789Z",
            "updatedAt": "0001-01-01T00:00:00Z",
            "finishReason": "stop",
            "state": {
                "sessionId": "chat",
                "messages": first,
                "custom": {"tier": "pro"},
                "artifacts": [{"name": "report.md", "parts": [{"text": "# Hi"}]}],
                "usage": {"inputTokens": 12, "custom": {"gpu": 0.5}},
            },
        },
    )
    write(
        folder,
        "s2",
        {
            "sessionId": "chat",
            "parentId": "s1",
            "createdAt": "2024-03-01T11:00:01.5+01:00",
            "status": "completed",
            "state": {"messages": [*first, *tools], "custom": ["a", "list"]},
        },
    )
    write(
        folder,
        "s3",
        {
            "sessionId": "chat",
            "parentId": "s1",
            "createdAt": "2024-03-01T10:00:02Z",
            "status": "failed",
            "finishReason": "failed",
            "error": {"status": "INTERNAL", "message": "no model"},
            "state": {"messages": [*first, said("user", {"text": "Hello?"})]},
        },
    )
    write(
        folder,
        "run",
        {
            "sessionId": "other",
            "createdAt": "2024-03-01T10:00:03Z",
            "updatedAt": "2024-03-01T10:00:04Z",
            "heartbeatAt": "2024-03-01T10:00:05Z",
            "status": "pending",
            "state": None,
        },
    )
    pointer = folder / "global" / ".pointers" / "chat.json"
    pointer.parent.mkdir()
    pointer.write_text('{"currentSnapshotId": "s3"}')
    return folder


async def test_rows_come_with_lineage_status_times_and_state(genkit, tmp_path):
    store = FileSessionStore(tmp_path / "ours")
    done = await import_genkit_folder(store, genkit)
    assert done.snapshot_ids == ("s1", "s2", "s3", "run")
    assert done.skipped == ()
    first = await found(store, "s1")
    assert first.created_at == datetime(2024, 3, 1, 10, 0, 0, 123456, UTC)
    assert (first.updated_at, first.parent_id, first.finish_reason) == (None, None, "stop")
    assert first.usage == {"inputTokens": 12, "custom": {"gpu": 0.5}}
    assert first.loaded().data == {
        "messages": [
            {"role": "user", "content": [{"text": "Weather in Łódź?"}]},
            {"role": "assistant", "content": [{"text": "Sunny."}]},
        ],
        "state": {"tier": "pro"},
        "artifacts": [{"name": "report.md", "parts": [{"text": "# Hi"}]}],
    }
    second = await found(store, "s2")
    assert second.created_at == datetime(2024, 3, 1, 10, 0, 1, 500000, UTC)
    data = second.loaded().data
    assert data["state"] == {"custom": ["a", "list"]}
    assert [message["role"] for message in data["messages"][2:]] == [
        "user",
        "assistant",
        "assistant",
        "user",
        "assistant",
    ]
    assert data["messages"][3]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "Look it up.", "signature": "c2ln"}}},
        {"text": "One moment."},
    ]
    assert data["messages"][4]["content"] == [{"toolUse": {"toolUseId": "c1", "name": "forecast", "input": {"day": 1}}}]
    assert data["messages"][5]["content"] == [
        {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"json": {"sky": "grey"}}]}}
    ]
    assert data["messages"][6]["metadata"] == {"mood": "sorry"}
    third = await found(store, "s3")
    assert (third.status, third.parent_id, third.error) == (
        "failed",
        "s1",
        {"status": "INTERNAL", "message": "no model"},
    )
    assert await latest_id(store, "chat") == "s3"
    run = await found(store, "run")
    assert (run.status, run.snapshot) == ("expired", None)
    assert run.heartbeat_at == datetime(2024, 3, 1, 10, 0, 5, tzinfo=UTC)
    store.close()


async def test_an_import_may_be_repeated_and_goes_where_it_is_told(genkit):
    store = InMemorySessionStore()
    view = store.for_tenant("org/user")
    await import_genkit_folder(view, genkit)
    assert await store.get_snapshot("s1") is None
    write(genkit, "s4", {"sessionId": "chat", "parentId": "s3", "createdAt": "2024-03-01T10:09:00Z", "state": {}})
    again = await import_genkit_folder(view, genkit)
    assert again.snapshot_ids == ("s4",)
    assert [reason for _, reason in again.skipped] == ["a snapshot of this id is there already"] * 4
    assert (await found(view, "s4")).loaded().data == {"messages": []}


async def test_what_is_no_snapshot_is_named_and_the_others_come(genkit):
    wrong = {
        "text": "not json",
        "list": "[]",
        "homeless": json.dumps({"createdAt": "2024-03-01T10:00:00Z"}),
        "timeless": json.dumps({"sessionId": "chat"}),
        "odd-time": json.dumps({"sessionId": "chat", "createdAt": "yesterday"}),
        "odd-status": json.dumps({"sessionId": "chat", "createdAt": "2024-03-01T10:00:00Z", "status": "done"}),
        "odd-session": json.dumps({"sessionId": "a/b", "createdAt": "2024-03-01T10:00:00Z"}),
    }
    for name, text in wrong.items():
        (genkit / "global" / f"{name}.json").write_text(text)
    (genkit / "global" / "link.json").symlink_to(genkit / "global" / "s1.json")
    (genkit / "global" / "README.txt").write_text("")
    done = await import_genkit_folder(InMemorySessionStore(), genkit)
    assert done.snapshot_ids == ("s1", "s2", "s3", "run")
    assert sorted(Path(path).stem for path, _ in done.skipped) == sorted([*wrong, "link"])
    reasons = {Path(path).stem: reason for path, reason in done.skipped}
    assert "no session" in reasons["homeless"]
    assert "'done'" in reasons["odd-status"]
    assert "'yesterday'" in reasons["odd-time"]


async def test_rows_of_one_microsecond_stay_in_their_order(tmp_path):
    for name, fraction in (("b", "000000100"), ("c", "000000900"), ("a", "000000500")):
        write(tmp_path, name, {"sessionId": "s", "createdAt": f"2024-03-01T10:00:00.{fraction}Z", "state": {}})
    store = InMemorySessionStore()
    assert (await import_genkit_folder(store, tmp_path)).snapshot_ids == ("b", "a", "c")
    start = datetime(2024, 3, 1, 10, tzinfo=UTC)
    assert [(await found(store, name)).created_at - start for name in "bac"] == [
        timedelta(microseconds=number) for number in range(3)
    ]


async def test_parts_without_a_block_of_ours_are_kept_as_they_were(tmp_path):
    pixel = {"media": {"contentType": "image/png", "url": f"data:image/png;base64,{PIXEL}"}}
    film = {"media": {"contentType": "video/mp4", "url": "https://example.org/film.mp4"}}
    odd = {"custom": {"x": 1}}
    asked = {"toolRequest": {"name": "ask", "input": {}}, "metadata": {"interrupt": True}}
    messages = [
        said("system", {"text": "Be brief."}),
        said("user", pixel, film, odd),
        said("model", asked, {"toolRequest": {"name": "ask", "input": {"n": 2}}}),
        said(
            "tool",
            {"toolResponse": {"name": "ask", "output": "one"}},
            {"toolResponse": {"name": "ask", "output": 2}},
        ),
    ]
    write(
        tmp_path, "r", {"sessionId": "s", "createdAt": "2024-03-01T10:00:00Z", "state": {"messages": messages}}, "a/b"
    )
    store = InMemorySessionStore()
    await import_genkit_folder(store, tmp_path, prefix="a/b")
    there = (await found(store, "r")).loaded().data["messages"]
    assert there[0] == {
        "role": "user",
        "content": [{"text": "Be brief."}],
        "metadata": {"genkit": {"role": "system"}},
    }
    assert there[1]["content"][0]["image"]["format"] == "png"
    assert there[1]["content"][0]["image"]["source"]["bytes"].startswith(b"\x89PNG")
    assert there[1]["content"][1:] == [{"text": "[media]"}, {"text": "[custom]"}]
    assert there[1]["metadata"]["genkit"]["parts"] == {"1": film, "2": odd}
    calls = [block["toolUse"]["toolUseId"] for block in there[2]["content"]]
    assert calls == ["ask-1", "ask-2"]
    assert there[2]["metadata"]["genkit"]["parts"] == {"0": asked}
    assert [block["toolResult"]["toolUseId"] for block in there[3]["content"]] == calls


async def test_a_folder_that_is_not_there_and_a_prefix_that_is_none_are_errors(tmp_path):
    with pytest.raises(SessionStoreError, match="No such file"):
        await import_genkit_folder(InMemorySessionStore(), tmp_path / "nowhere")
    with pytest.raises(SessionRowError):
        await import_genkit_folder(InMemorySessionStore(), tmp_path, prefix="../elsewhere")
