"""What the tests of models share: what a provider of a suite can do, and how an answer is put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import pytest

from antiphon.content import Messages, ToolSpec
from antiphon.errors import AntiphonError
from antiphon.jsonable import decode_json
from antiphon.models.base import ConfiguredModel, Model
from antiphon.testing.clock import VirtualClock

T = TypeVar("T")

PATIENCE_S = 15.0
"""How long a provider on loopback may take; real seconds."""

_LOOK_S = 0.02

PIXEL_PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc"
    b"\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82"
)
"""A picture of one pixel."""


class Lacks:
    """What a model cannot do, each with its reason: the tests of it are skipped by name.

    Set the class attribute `lacks`, for instance `lacks = {"images": "the provider takes text only"}`.
    """

    lacks: ClassVar[Mapping[str, str]] = {}
    provider_name: ClassVar[str] = ""

    def needs(self, capability: str) -> None:
        """Skip what a model of this suite cannot do."""
        if capability in self.lacks:
            pytest.skip(f"{capability}: {self.lacks[capability]}")


class Hold(Protocol):
    """An answer that waits in its middle."""

    async def reached(self) -> None:
        """Wait until the first half has been sent."""
        ...

    def release(self) -> object:
        """Let it go on."""
        ...


class TurnProvider(Protocol):
    """A provider of a model that answers in turns: it follows a script, one step a request, and keeps its own rules.

    `antiphon.testing.servers` has one for every provider. For your own model write a small class with these methods.
    """

    key: str

    def say(self, text: str, *, reasoning: str | None = None) -> object:
        """Answer with a text."""
        ...

    def call_tools(self, calls: list[tuple[str, dict[str, Any]]], text: str | None = None) -> object:
        """Answer with calls of tools."""
        ...

    def stop(self, reason: str) -> object:
        """Answer, and end for a reason: `max_tokens`."""
        ...

    def throttle(self, retry_after: float | None = None) -> object:
        """Refuse because there are too many requests."""
        ...

    def overflow(self) -> object:
        """Refuse because the conversation is too long."""
        ...

    def cut(self, after_chunks: int = 1) -> object:
        """Begin an answer, and break off."""
        ...

    def hold(self) -> Hold:
        """Begin an answer, and wait in its middle."""
        ...

    def malformed(self) -> object:
        """Answer with what nobody can read."""
        ...


@dataclass(slots=True)
class Told:
    """An answer as it came, put together."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list[tuple[str, str, Any]])
    content: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None
    kinds: list[str] = field(default_factory=list[str])


async def ask(
    model: Model,
    messages: Messages,
    *,
    tools: list[ToolSpec] | None = None,
    system: str | None = None,
    state: dict[str, Any] | None = None,
) -> Told:
    """What a model answers; breaches of the order of events are errors of the test."""
    told = Told()
    block: dict[str, Any] | None = None
    async for part in model.stream(messages, tools, system, model_state=state):
        event: dict[str, Any] = {**part}
        [kind] = event
        told.kinds.append(kind)
        assert told.stop_reason is None or kind in {"metadata", "redactContent"}, f"{kind} after the end"
        if kind == "messageStart":
            assert told.kinds.count(kind) == 1, "the answer starts twice"
            assert event["messageStart"] == {"role": "assistant"}
        elif kind == "contentBlockStart":
            assert block is None, "a block starts within another"
            block = {"start": event["contentBlockStart"].get("start") or {}, "text": "", "input": "", "thought": ""}
        elif kind == "contentBlockDelta":
            assert "messageStart" in told.kinds, "a piece before the start"
            block = block or {"start": {}, "text": "", "input": "", "thought": ""}
            _piece(block, event["contentBlockDelta"]["delta"])
        elif kind == "contentBlockStop":
            assert block is not None, "a block stops that did not start"
            _close(told, block)
            block = None
        elif kind == "messageStop":
            assert block is None, "the answer stops within a block"
            told.stop_reason = event["messageStop"]["stopReason"]
        elif kind == "metadata":
            told.usage = event["metadata"]["usage"]
    assert told.stop_reason is not None, "the answer has no end"
    return told


def _piece(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    block["text"] += delta.get("text", "")
    block["input"] += delta.get("toolUse", {}).get("input", "")
    thought = delta.get("reasoningContent", {})
    block["thought"] += thought.get("text", "")
    for key in ("signature", "redactedContent"):
        if key in thought:
            block[key] = thought[key]


def _close(told: Told, block: dict[str, Any]) -> None:
    if "toolUse" in block["start"]:
        use = block["start"]["toolUse"]
        given: Any = decode_json(block["input"].encode()) if block["input"] else {}
        told.calls.append((use["toolUseId"], use["name"], given))
        told.content.append({"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"], "input": given}})
    elif block["thought"] or "signature" in block or "redactedContent" in block:
        told.reasoning += block["thought"]
        text: dict[str, Any] = {"text": block["thought"]}
        if "signature" in block:
            text["signature"] = block["signature"]
        told.content.append(
            {"reasoningContent": {"redactedContent": block["redactedContent"]}}
            if "redactedContent" in block
            else {"reasoningContent": {"reasoningText": text}}
        )
    elif block["text"]:
        told.text += block["text"]
        told.content.append({"text": block["text"]})


async def in_virtual_time(clock: VirtualClock, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of something that waits for a clock and for a provider by turns: time passes whenever it waits."""
    failed: BaseException
    try:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            task = group.create_task(work)
            while not task.done():
                await asyncio.wait([task], timeout=_LOOK_S)
                if clock.sleepers:
                    await clock.advance(30)
    except BaseExceptionGroup as errors:
        [failed] = errors.exceptions
    else:
        return task.result()
    raise failed


def user(*content: str | dict[str, Any]) -> Any:
    """A message of the user."""
    return {"role": "user", "content": [{"text": item} if isinstance(item, str) else item for item in content]}


def assistant(*content: str | dict[str, Any]) -> Any:
    """A message of the model."""
    return {**user(*content), "role": "assistant"}


def result(call_id: str, *content: str | dict[str, Any], status: str = "success") -> dict[str, Any]:
    """The result of a call, as a block."""
    told = [{"text": item} if isinstance(item, str) else item for item in content]
    return {"toolResult": {"toolUseId": call_id, "status": status, "content": told}}


async def nobody() -> str:
    """An address at which nobody listens."""
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return f"http://127.0.0.1:{port}"


def tells_nothing(secret: str, model: ConfiguredModel, error: AntiphonError | None) -> None:
    """The secret is in no word that a log could hold."""
    told = [repr(model), str(model), repr(model.get_config())]
    known: list[BaseException] = [] if error is None else [error]
    for cause in known:  # it grows: reporters of errors look at contexts too
        told += [str(cause), repr(cause)]
        known += [inner for inner in (cause.__cause__, cause.__context__) if inner is not None and inner not in known]
    assert not [text for text in told if secret in text], "a secret is told"


MakeModel = Callable[..., Model]
"""Makes a model that asks the provider of the test. `key`, `model_id`, `url` and `clock` go before what it would use."""
