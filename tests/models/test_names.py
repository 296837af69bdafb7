"""Models by name."""

import subprocess
import sys
from importlib import import_module

import pytest

from antiphon import Agent, BidiAgent
from antiphon.errors import InvalidInputError
from antiphon.models import BedrockModel, BedrockNovaSonicModel, EmbeddedBidiModel, EmbeddedModel, LlamaCppModel, names
from antiphon.models.base import Model
from antiphon.models.bidi import BidiModel
from antiphon.models.names import LIVE_PROVIDERS, TURN_PROVIDERS, live_model, turn_model

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    """Constructors that want a key at once find one."""
    for name in KEYS:
        monkeypatch.setenv(name, "a-key-for-nobody")


@pytest.mark.parametrize(
    ("name", "provider", "kind"),
    [
        ("openai:gpt-5", "OpenAIModel", Model),
        ("openai-responses:gpt-5", "OpenAIResponsesModel", Model),
        ("anthropic:claude-x", "AnthropicModel", Model),
        ("bedrock:amazon.nova-pro-v1:0", "BedrockModel", Model),
        ("google:gemini-x", "GeminiModel", Model),
        ("gemini:gemini-x", "GeminiModel", Model),
        ("openai:gpt-realtime-2", "OpenAIRealtimeModel", BidiModel),
        ("google:gemini-live", "GoogleGeminiLiveModel", BidiModel),
        ("gemini:gemini-live", "GoogleGeminiLiveModel", BidiModel),
        ("bedrock:amazon.nova-2-sonic-v1:0", "BedrockNovaSonicModel", BidiModel),
    ],
)
def test_a_name_is_a_provider_and_what_it_calls_the_model(name, provider, kind):
    model = turn_model(name) if kind is Model else live_model(name)
    assert type(model).__name__ == provider
    assert model.get_config()["model_id"] == name.partition(":")[2]


def test_every_class_that_a_name_stands_for_is_there():
    for places, kind in ((names._TURNS, Model), (names._LIVE, BidiModel)):
        for place in places.values():
            assert issubclass(getattr(import_module(place.module), place.name), kind)


@pytest.mark.parametrize(
    "name",
    [
        "amazon.nova-pro-v1:0",
        "us.anthropic.claude-sonnet-4-v1:0",
        "us-gov.anthropic.claude-sonnet-4-v1:0",
        "global.anthropic.claude-opus-4-6-v1",
        "ai21.jamba-1-5-mini-v1:0",
        "openai.gpt-oss-120b-1:0",
        "zai.glm-4.7",
        "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-pro-v1:0",
    ],
)
def test_an_id_of_bedrock_may_stand_alone(name):
    model = Agent(name).model
    assert isinstance(model, BedrockModel)
    assert model.get_config()["model_id"] == name


def test_no_name_is_the_default_of_bedrock():
    assert isinstance(Agent().model, BedrockModel)
    talker = BidiAgent().model
    assert isinstance(talker, BedrockNovaSonicModel)
    assert talker.get_config()["model_id"] == "amazon.nova-2-sonic-v1:0"
    other = BidiAgent("amazon.nova-sonic-v1:0").model
    assert isinstance(other, BedrockNovaSonicModel)
    assert other.get_config()["model_id"] == "amazon.nova-sonic-v1:0"


def test_the_models_of_this_machine_need_no_id(tmp_path):
    assert isinstance(turn_model("embedded"), EmbeddedModel)
    assert isinstance(live_model("embedded"), EmbeddedBidiModel)
    pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
    model = turn_model(f"llamacpp:{tmp_path / 'some:odd.gguf'}")
    assert isinstance(model, LlamaCppModel)
    assert model.get_config()["path"].endswith("some:odd.gguf")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "opnai:gpt-5",
            "'opnai', which no Agent has: write one of anthropic:<model id>, bedrock:<model id>, embedded, ",
        ),
        ("bogus", r"names no provider: write one of .*llamacpp\[:<file.gguf>\], openai:<model id>"),
        ("gpt-5.1", "names no provider"),
        ("claude-sonnet-4.5", "names no provider"),
        ("gemini-3.8-flash", "names no provider"),
        ("qwen2.5-coder", "names no provider"),
        ("openai", "names no provider"),
        ("some.gguf", "names no provider"),
        ("/models/some.gguf", "names no provider"),
        (" amazon.nova-pro-v1:0", "names no provider"),
        ("", "names no provider"),
        ("openai:", "names no model"),
        ("embedded:big", "one 'embedded' model only"),
        ("bedrock: ", "names no model"),
    ],
)
def test_a_name_that_names_nothing_is_refused_with_what_is_known(name, words):
    with pytest.raises(InvalidInputError, match=words):
        Agent(name)


def test_a_model_of_bedrocks_with_another_form_is_named_with_its_provider():
    model = Agent("bedrock:a-throughput-of-mine").model
    assert isinstance(model, BedrockModel)
    assert model.get_config()["model_id"] == "a-throughput-of-mine"


@pytest.mark.parametrize("name", ["bogus", "gpt-realtime-2", "embeded"])
def test_a_talk_asks_nobody_for_keys_of_a_name_that_it_does_not_know(name):
    with pytest.raises(InvalidInputError, match=r"names no provider: write one of bedrock:<model id>, embedded, "):
        BidiAgent(name)


def test_a_provider_that_cannot_talk_is_refused_for_a_talk():
    with pytest.raises(InvalidInputError, match="which no BidiAgent has"):
        BidiAgent("anthropic:claude-x")


def test_the_providers_are_listed_in_the_order_of_the_alphabet():
    assert list(TURN_PROVIDERS) == sorted(TURN_PROVIDERS)
    assert list(LIVE_PROVIDERS) == sorted(LIVE_PROVIDERS)


def test_an_agent_without_a_model_says_where_it_would_have_come_from():
    code = (
        "import sys; sys.modules['boto3'] = None\nfrom antiphon import Agent\nfrom antiphon.errors import MissingExtraError\n"
        "try:\n    Agent()('hi')\nexcept MissingExtraError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "'boto3' is not installed: without model=, Amazon Bedrock is asked: pip install 'antiphon[bedrock]', or give "
        "model='embedded'"
    )


def test_nothing_of_a_provider_is_imported_before_it_is_named():
    code = (
        "import sys; from antiphon import Agent; Agent('embedded'); Agent('bedrock:x.y'); "
        "print([name for name in ('boto3', 'botocore', 'openai', 'anthropic', 'google.genai', 'xllamacpp') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
