"""OpenAI's turn-based models, as users write them. Each `type: ignore` is an error that both checkers must report."""

from typing import Any, assert_type

from antiphon import Agent
from antiphon.models import OpenAIModel, OpenAIResponsesModel
from antiphon.testing.servers import OpenAIChatServer


async def key() -> str:
    return "short-lived"


model = OpenAIModel(
    {"timeout": 5}, model_id="gpt", params={"temperature": 0}, api_key=key, base_url="http://localhost/v1"
)
assert_type(model.get_config(), dict[str, Any])
OpenAIResponsesModel(model_id="gpt", api_key="key", stateful=True, keep_history=True)
Agent(model)

OpenAIModel(api_key="key")  # type: ignore[call-arg]
OpenAIModel(model_id="gpt", api_key=7)  # type: ignore[arg-type]


async def serve() -> None:
    async with OpenAIChatServer() as server:
        assert_type(server.url, str)
        server.say("hello", usage=(3, 4))
        server.call_tools([("look", {"at": "sea"}), ("look", "{}", "id")])
        server.hold().release()
