"""One dialogue through every live provider: two barge-ins, three tools, a restart and a crash; then on through another."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from antiphon import BidiAgent, SnapshotSessionManager, tool
from antiphon.events import BidiBargeInEvent, BidiConnectionRestartEvent
from antiphon.storage import LocalFileStorage
from antiphon.testing import VirtualClock
from antiphon.testing.model_suite.talk import Talk, seconds_of
from tests.models.contract.providers import PROVIDERS

STORY = "once upon time they went away from home"  # eight words of one length, half a second each
SONG = "lala lulu lili lolo lele lula lila lola"

DIALOGUE = [
    ["user", False, ["What of Paris, and the attic?"]],
    ["assistant", False, [["call", "call-1", "weather", {"city": "Paris"}]]],
    ["user", False, [["result", "call-1", "success", [{"text": "sunny in Paris"}]]]],
    ["assistant", False, [["call", "call-2", "lights", {"room": "attic"}]]],
    ["user", False, [["result", "call-2", "error", [{"text": "Error: there is no attic"}]]]],
    ["assistant", False, ["Sunny and dark."]],
    ["user", False, ["a story, please"]],
    ["assistant", True, ["once upon time they"]],
    ["user", False, ["stop"]],
    ["assistant", False, ["All right."]],
    ["user", False, ["a song, please"]],
    ["assistant", True, ["lala lulu lili lolo"]],
    ["user", False, ["enough"]],
    ["assistant", False, ["All right."]],
    ["user", False, ["light the hall, and go on"]],
    ["assistant", False, [["call", "call-3", "lights", {"room": "hall"}]]],
    ["user", False, [["result", "call-3", "success", [{"text": "hall is lit"}]]]],
    ["assistant", True, ["once upon time they"]],
]
ANOTHER = [["user", False, ["I am back"]], ["assistant", False, ["Where were we?"]]]


@tool
def weather(city: str) -> str:
    """Tells the weather of a city.

    Args:
        city: Its name.
    """
    return f"sunny in {city}"


@tool
def lights(room: str) -> str:
    """Turns on the lights of a room.

    Args:
        room: Its name.
    """
    if room == "attic":
        raise ValueError("there is no attic")
    return f"{room} is lit"


def agent_of(model: Any, clock: VirtualClock, folder: Path) -> BidiAgent:
    manager = SnapshotSessionManager[BidiAgent]("dialogue", storage=LocalFileStorage(folder))
    return BidiAgent(model, clock=clock, tools=[weather, lights], session_manager=manager, system_prompt="Be kind.")


def plain(messages: list[Any]) -> list[Any]:
    """What was said, without the ids and times that each provider makes."""
    ids: dict[str, str] = {}

    def block(part: Any) -> Any:
        if "toolUse" in part:
            use = part["toolUse"]
            return ["call", ids.setdefault(use["toolUseId"], f"call-{len(ids) + 1}"), use["name"], use["input"]]
        if "toolResult" in part:
            result = part["toolResult"]
            return ["result", ids[result["toolUseId"]], result["status"], result["content"]]
        return part["text"]

    return [
        [message["role"], bool(message.get("metadata", {}).get("interrupted")), [block(b) for b in message["content"]]]
        for message in messages
    ]


async def cut_short(talk: Talk, provider: Any, question: str, text: str, word: str) -> None:
    """Ask for something of four seconds, and speak over it after two."""
    before, barge_ins = seconds_of(talk.events), len(talk.of(BidiBargeInEvent))
    provider.say(text, seconds=4)
    provider.barge_in(word)
    provider.say("All right.", seconds=0.5)
    await talk.agent.send(question)
    await talk.until(lambda: seconds_of(talk.events) > before + 3.9, "the long answer")
    await talk.listen(2.02)
    await talk.speak()
    await talk.until(lambda: len(talk.of(BidiBargeInEvent)) > barge_ins, "the barge-in")
    await talk.until(lambda: seconds_of(talk.events) > before + 4.4, "the short answer")
    await talk.listen(2)


async def dialogue(provider: Any, clock: VirtualClock, folder: Path) -> tuple[list[Any], Path]:
    """The whole of it, but for its end; what is left behind is what a process leaves that was killed in an answer."""
    async with Talk(agent_of(provider.make(clock=clock), clock, folder), clock) as talk:
        provider.call_tools([("weather", {"city": "Paris"})])
        provider.call_tools([("lights", {"room": "attic"})])
        provider.say("Sunny and dark.", seconds=0.5)
        await talk.agent.send("What of Paris, and the attic?")
        await talk.until(lambda: seconds_of(talk.events) > 0.4, "an answer")
        await talk.listen(2)
        await cut_short(talk, provider, "a story, please", STORY, "stop")
        connections = provider.connections()
        provider.expire()
        await talk.until(lambda: provider.connections() == connections + 1, "another connection")
        await talk.until(lambda: bool(talk.of(BidiConnectionRestartEvent)), "the restart")
        await cut_short(talk, provider, "a song, please", SONG, "enough")
        before = seconds_of(talk.events)
        provider.call_tools([("lights", {"room": "hall"})])
        provider.say(STORY, seconds=4)
        await talk.agent.send("light the hall, and go on")
        await talk.until(lambda: seconds_of(talk.events) > before + 3.9, "the last answer")
        await talk.listen(2.02)
        left = folder.with_name("after the crash")
        shutil.copytree(folder, left)
    return plain(talk.agent.messages), left


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_dialogue_is_the_same_through_every_provider_and_goes_on_through_another(name, tmp_path):
    clock = VirtualClock(autojump=False)
    async with PROVIDERS[name](clock) as provider:
        history, left = await dialogue(provider, clock, tmp_path / "session")
        assert provider.complaints() == []
    assert history == DIALOGUE
    names = list(PROVIDERS)
    async with PROVIDERS[names[(names.index(name) + 1) % len(names)]](clock) as another:
        agent = agent_of(another.make(clock=clock), clock, left)
        assert plain(agent.messages) == DIALOGUE
        another.say("Where were we?", seconds=0.5)
        async with Talk(agent, clock) as talk:
            told = " ".join(text for _, text in another.seeded())
            await agent.send("I am back")
            await talk.until(lambda: seconds_of(talk.events) > 0.4, "an answer")
            await talk.listen(2)
        assert another.complaints() == []
    assert plain(agent.messages) == [*DIALOGUE, *ANOTHER]
    for words in ("Sunny and dark.", "once upon time they", "lala lulu lili lolo", "enough"):
        assert words in told
    assert "away" not in told
    assert "lele" not in told
