"""The agents that the specification names, as ours."""

import asyncio
import json

from antiphon import Agent, Runner, tool
from antiphon.hooks.events import BeforeModelCallEvent
from antiphon.models.base import Model
from antiphon.store import InMemorySessionStore
from antiphon.tools.context import ToolContext
from tests.conformance.mapping import artifact_of, message_of

STOPS = {"stop": "end_turn", "length": "max_tokens", "blocked": "content_filtered"}


class Script(Model):
    """Answers as a step of the specification says; loaded anew for each. Where it says nothing, no answer ever comes."""

    def __init__(self):
        self.load([], [])

    def load(self, responses, streams):
        self._responses, self._chunks, self._asked = list(responses), list(streams), 0

    def streams(self, number):
        """Whether the answer of this number is streamed."""
        return number < len(self._chunks) and bool(self._chunks[number])

    def get_config(self):
        return {"model_id": "script"}

    def update_config(self, **config):
        pass

    async def stream(self, messages, tool_specs=None, system_prompt=None, *, model_state=None, **kwargs):
        number = self._asked
        self._asked += 1
        if number >= len(self._responses):
            await asyncio.Event().wait()
        response = self._responses[number]
        said = message_of(response["message"])["content"]
        pieces = [block["text"] for block in said if "text" in block]
        if self.streams(number):
            chunks = [part["text"] for chunk in self._chunks[number] for part in chunk["content"]]
            assert "".join(chunks) == "".join(pieces)
            pieces = chunks
        calls = [block["toolUse"] for block in said if "toolUse" in block]
        yield {"messageStart": {"role": "assistant"}}
        for piece in pieces:
            yield {"contentBlockDelta": {"delta": {"text": piece}}}
        if pieces:
            yield {"contentBlockStop": {}}
        for call in calls:
            start = {"toolUseId": call["toolUseId"], "name": call["name"]}
            yield {"contentBlockStart": {"start": {"toolUse": start}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(call["input"])}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else STOPS[response.get("finishReason", "stop")]}}


@tool(name="testTool")
def plain_tool() -> str:
    """Say that it was called."""
    return "tool called"


@tool(name="interruptTool")
def asking_tool(query: str, ctx: ToolContext) -> str:
    """Ask a person, always."""
    return str(ctx.interrupt(query, {"query": query}))


@tool(name="restartTool")
def careful_tool(action: str, ctx: ToolContext) -> str:
    """Do it when a person agrees."""
    ctx.interrupt("approve", {"action": action})
    return f"{action} done"


def fails(event):
    raise RuntimeError("intentional failure")


def writes_two(event):
    for name, text in (("doc1", "v1"), ("doc1", "v2"), ("doc2", "other")):
        event.agent.turn.artifacts.add(artifact_of(name, text))
    event.cancel = "done"


def writes_one_more(event):
    number = len(event.agent.turn.artifacts) + 1
    event.agent.turn.artifacts.add(artifact_of(f"doc{number}", f"content{number}"))
    event.cancel = "done"


def counts(event):
    event.agent.turn.state.update(lambda state: {**state, "counter": state.get("counter", 0) + 1})
    event.cancel = "done"


def counts_and_reports(event):
    state = event.agent.turn.state
    state.update(lambda old: {"counter": 1, "status": "working"})
    state.update(lambda old: {**old, "counter": 2})
    state.update(lambda old: {**old, "status": "done"})
    event.cancel = "done"


# Each: its tools, what it does instead of asking a model, and whether a store keeps its sessions.
AGENTS = {
    "promptAgent": ([], None, False),
    "promptAgentWithStore": ([], None, True),
    "promptAgentWithTools": ([plain_tool], None, False),
    "promptAgentWithInterrupt": ([asking_tool], None, True),
    "promptAgentWithRestartTool": ([careful_tool], None, True),
    "customAgentBlocking": ([], None, True),
    "customAgentFailing": ([], fails, True),
    "customAgentWithArtifacts": ([], writes_two, False),
    "customAgentWithCustomState": ([], counts, False),
    "customAgentWithMultiCustomState": ([], counts_and_reports, False),
    "customAgentWithArtifactsStore": ([], writes_one_more, True),
    "customAgentWithCustomStateStore": ([], counts, True),
}


def open_runner(name, script):
    """A runner for the agent of this name, with a store of its own where it has one."""
    tools, act, has_store = AGENTS[name]

    def make():
        agent = Agent(script, tools=tools)
        if act is not None:
            agent.add_hook(act, BeforeModelCallEvent)
        return agent

    return Runner(make, store=InMemorySessionStore() if has_store else None)
