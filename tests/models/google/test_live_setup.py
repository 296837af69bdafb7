"""What opens a session, where it is opened, and by which right."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import AudioFormatError, InvalidInputError, ModelCredentialsError
from antiphon.models.google.live import GoogleGeminiLiveModel
from antiphon.models.google.live_access import LiveAccess
from antiphon.models.google.live_setup import LiveSettings, history_turns, setup_message, wire_params
from antiphon.testing.servers.gemini_live_rules import check_content, check_setup

MODEL = "models/gemini-3.8-live"


def setup(params=None, tools=(), **given) -> dict:
    settings = LiveSettings(model=MODEL, params=wire_params(params or {}))
    return setup_message(settings, None, list(tools), handle=given.get("handle"), seeds=given.get("seeds", False))[
        "setup"
    ]


def test_parameters_go_where_they_belong_by_either_way_of_writing():
    made = setup({"temperature": 0.5, "top_p": 0.9, "proactivity": {"proactive_audio": True}, "maxOutputTokens": 5})
    assert made["generationConfig"] == {
        "responseModalities": ["AUDIO"],
        "temperature": 0.5,
        "topP": 0.9,
        "maxOutputTokens": 5,
    }
    assert made["proactivity"] == {"proactiveAudio": True}


def test_a_default_is_taken_out_by_none_and_changed_by_a_part_of_it():
    made = setup(
        {
            "input_audio_transcription": None,
            "context_window_compression": {"trigger_tokens": 1000},
            "output_audio_transcription": {"language_codes": ["de-DE"]},
        }
    )
    assert "inputAudioTranscription" not in made
    assert made["contextWindowCompression"] == {"slidingWindow": {}, "triggerTokens": 1000}
    assert made["outputAudioTranscription"] == {"languageCodes": ["de-DE"]}


def test_more_tools_stand_beside_the_agents():
    spec = {"name": "now", "description": "The time.", "inputSchema": {"json": {"type": "object", "properties": {}}}}
    made = setup({"tools": [{"google_search": {}}]}, [spec])
    assert made["tools"] == [
        {"functionDeclarations": [{"name": "now", "description": "The time."}]},
        {"googleSearch": {}},
    ]


def test_labels_and_schemas_of_the_user_keep_their_names():
    schema = {"type": "object", "properties": {"first_name": {"type": "string"}}}
    made = setup({"labels": {"cost_center": "a"}}, [{"name": "n", "description": "d", "inputSchema": {"json": schema}}])
    assert made["labels"] == {"cost_center": "a"}
    assert made["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == schema


def test_a_parameter_that_the_service_does_not_know_is_refused_by_name():
    with pytest.raises(InvalidInputError, match="temprature"):
        GoogleGeminiLiveModel("gemini-3.8-live", params={"temprature": 1})


def test_what_is_set_up_is_what_the_service_takes():
    made = setup(
        {
            "realtime_input_config": {
                "activity_handling": "NO_INTERRUPTION",
                "automatic_activity_detection": {"silence_duration_ms": 5},
            }
        },
        handle="h",
        seeds=True,
    )
    check_setup(made, model=MODEL, vertex=False)


# History


def test_a_history_is_told_in_turns_that_alternate():
    turns = history_turns(
        [
            {"role": "user", "content": [{"text": "weather?"}]},
            {"role": "assistant", "content": [{"text": "let me look"}]},
            {
                "role": "assistant",
                "content": [{"toolUse": {"toolUseId": "a", "name": "weather", "input": {"city": "Paris"}}}],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "a", "status": "success", "content": [{"json": {"sky": "clear"}}]}}
                ],
            },
            {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"x"}}}, {"text": " "}]},
            {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "hm"}}}]},
            {"role": "assistant", "content": [{"text": "clear"}]},
        ]
    )
    assert [(turn["role"], [part["text"] for part in turn["parts"]]) for turn in turns] == [
        ("user", ["weather?"]),
        ("model", ["let me look", '[I called the tool weather with {"city":"Paris"}]']),
        ("user", ['[weather returned: {"sky":"clear"}]', "[an image]"]),
        ("model", ["clear"]),
    ]


BLOCKS = st.sampled_from(
    [
        {"text": "words"},
        {"text": ""},
        {"text": "   "},
        {"image": {"format": "png", "source": {"bytes": b"x"}}},
        {"toolUse": {"toolUseId": "a", "name": "t", "input": {}}},
        {"toolResult": {"toolUseId": "a", "status": "error", "content": [{"image": {}}]}},
        {"toolResult": {"toolUseId": "b", "status": "success", "content": []}},
        {"reasoningContent": {}},
    ]
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant"]), "content": st.lists(BLOCKS, max_size=3)}
        ),
        max_size=12,
    ),
    st.integers(0, 60),
)
def test_every_history_becomes_one_that_the_service_takes_and_the_newest_is_kept(messages, limit):
    turns = history_turns(messages, limit)
    check_content({"turns": turns, "turnComplete": True})
    assert all(one["role"] != other["role"] for one, other in pairwise(turns))
    whole = history_turns(messages)
    assert whole[len(whole) - len(turns) :] == turns
    assert bool(turns) == bool(whole)


# Access


async def test_a_key_goes_into_a_header_and_not_into_the_address():
    url, headers = await LiveAccess(api_key="sesame").address()
    assert url == (
        "wss://generativelanguage.googleapis.com/ws/"
        "google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
    )
    assert headers == {"x-goog-api-key": "sesame"}


async def test_an_ephemeral_token_has_a_method_of_its_own():
    url, headers = await LiveAccess(api_key="auth_tokens/abc").address()
    assert url.endswith("google.ai.generativelanguage.v1alpha.GenerativeService.BidiGenerateContentConstrained")
    assert headers == {"authorization": "Token auth_tokens/abc"}


@pytest.mark.parametrize(
    ("location", "host"),
    [("europe-west4", "europe-west4-aiplatform.googleapis.com"), ("global", "aiplatform.googleapis.com")],
)
async def test_vertex_is_reached_by_region_with_a_fresh_token(location, host):
    tokens = iter(["one", "two"])

    async def fresh() -> str:
        return next(tokens)

    access = LiveAccess(access_token=fresh, project="p-1", location=location)
    url, headers = await access.address()
    assert url == f"wss://{host}/ws/google.cloud.aiplatform.v1beta1.LlmBidiService/BidiGenerateContent"
    assert headers == {"authorization": "Bearer one"}
    assert (await access.address())[1] == {"authorization": "Bearer two"}
    assert access.model_name("gemini-3.8-live") == (
        f"projects/p-1/locations/{location}/publishers/google/models/gemini-3.8-live"
    )


async def test_the_environment_is_asked_when_no_key_is_given():
    async def key(**environ) -> str:
        return (await LiveAccess(environ=environ).address())[1]["x-goog-api-key"]

    assert await key(GOOGLE_API_KEY="a", GEMINI_API_KEY="b") == "a"
    assert await key(GOOGLE_API_KEY="", GEMINI_API_KEY="b") == "b"
    with pytest.raises(ModelCredentialsError, match="GOOGLE_API_KEY or GEMINI_API_KEY"):
        await key(OTHER="a")


@pytest.mark.parametrize("key", ["a\r\nx-evil: 1", "a b", "schlüssel"])
async def test_a_key_that_would_break_the_handshake_is_refused_and_not_told(key):
    with pytest.raises(ModelCredentialsError) as refused:
        await LiveAccess(api_key=key).address()
    assert key not in str(refused.value)


async def test_a_function_that_gives_no_key_is_an_error_that_says_so():
    with pytest.raises(ModelCredentialsError, match="api_key"):
        await LiveAccess(api_key=lambda: "").address()


def test_a_secret_is_in_no_repr_and_no_configuration():
    model = GoogleGeminiLiveModel("gemini-3.8-live", api_key="sesame", environ={"GOOGLE_API_KEY": "sesame"})
    assert "sesame" not in repr(model) + repr(model._access) + json.dumps(model.get_config(), default=repr)


def test_the_vendors_arguments_are_understood():
    model = GoogleGeminiLiveModel(
        "gemini-3.8-live", client_args={"api_key": "sesame", "http_options": {"base_url": "https://a.example"}}
    )
    assert "https://a.example" in repr(model._access)
    with pytest.raises(InvalidInputError, match="credentials"):
        GoogleGeminiLiveModel("gemini-3.8-live", client_args={"credentials": 1})
    with pytest.raises(InvalidInputError, match="timeout"):
        GoogleGeminiLiveModel("gemini-3.8-live", client_args={"http_options": {"timeout": 1}})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model_id": ""}, "model_id must be a non-empty string"),
        ({"project": "p"}, "both"),
        ({"project": "p", "location": "l"}, "access_token"),
        ({"access_token": "t"}, "project and location"),
        ({"project": "P/../x", "location": "l", "access_token": "t"}, "project="),
        ({"base_url": "ftp://a"}, "base_url"),
        ({"resume": "never"}, "resume"),
        ({"client_args": {"vertexai": True}}, "vertexai"),
        ({"params": ["temperature"]}, "params="),
        ({"scheduling": "SOON"}, "scheduling"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(given, told):
    with pytest.raises(InvalidInputError, match=told):
        GoogleGeminiLiveModel(**{"model_id": "gemini-3.8-live", **given})


@pytest.mark.parametrize(
    "audio",
    [
        {"input": {"channels": 2}},
        {"input": {"format": "opus"}},
        {"output": {"sample_rate": 100}},
        {"output": {"sample_rate": "16k"}},
    ],
)
def test_sound_that_the_service_does_not_speak_is_refused(audio):
    with pytest.raises(AudioFormatError):
        GoogleGeminiLiveModel("gemini-3.8-live", audio=audio)


def test_the_configuration_is_changed_whole_or_not_at_all():
    model = GoogleGeminiLiveModel("gemini-3.8-live", voice="Puck")
    with pytest.raises(InvalidInputError):
        model.update_config(voice="Kore", params={"what": 1})
    with pytest.raises(InvalidInputError, match="speed"):
        model.update_config(speed=1)
    assert model.get_config()["voice"] == "Puck"
    model.update_config(voice="Kore", params=None, audio=None, connection={"auto_restart": True})
    assert model.get_config()["voice"] == "Kore"
    assert model.get_connection_config() == {"restart_after_s": 540.0, "auto_restart": True}
