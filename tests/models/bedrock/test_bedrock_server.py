"""The loopback server refuses what Bedrock refuses, in its words: held against boto3 itself."""

import asyncio
import threading
from contextlib import closing

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from antiphon.testing.servers import BedrockServer
from antiphon.testing.servers.sigv4 import check_signature, signing_key

START = [{"role": "user", "content": [{"text": "hello"}]}]
USE = {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Paris"}}}
DONE = {"toolResult": {"toolUseId": "t1", "content": [{"text": "sunny"}]}}
SPEC = {"toolSpec": {"name": "weather", "description": "w", "inputSchema": {"json": {"type": "object"}}}}
TOOLS = {"tools": [SPEC]}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


@pytest.fixture(scope="module")
def place():
    """A server on a thread of its own, and a client of boto3: neither needs the test's loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = BedrockServer(longest=5000)
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
    session = boto3.Session(aws_access_key_id=server.key_id, aws_secret_access_key=server.key, region_name="us-east-1")
    client = session.client(
        "bedrock-runtime",
        endpoint_url=server.url,
        config=Config(retries={"total_max_attempts": 1}, parameter_validation=False),
    )
    yield server, client
    client.close()
    asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


RULES = {
    "nothing": ({"messages": []}, "must start with a user message"),
    "answer first": ({"messages": [assistant({"text": "a"}), *START]}, "must start with a user message"),
    "two in a row": ({"messages": [*START, *START]}, "must alternate between user and assistant roles"),
    "answer last": ({"messages": [*START, assistant({"text": "a"})]}, "does not support assistant message prefill"),
    "blank": ({"messages": [user({"text": " "})]}, r"ContentBlock object at messages\.0\.content\.0 is blank"),
    "empty": ({"messages": [user()]}, r"Message object at messages\.0 is empty"),
    "no tools": ({"messages": [*START, assistant(USE), user(DONE)]}, "toolConfig field must be defined"),
    "no result": (
        {"messages": [*START, assistant(USE), user({"text": "b"})], "toolConfig": TOOLS},
        r"Expected toolResult blocks at messages\.2\.content for the following Ids: t1",
    ),
    "result of nothing": ({"messages": [user(DONE)], "toolConfig": TOOLS}, "exceeds the number of toolUse blocks"),
    "result twice": (
        {"messages": [*START, assistant(USE), user(DONE, DONE)], "toolConfig": TOOLS},
        "exceeds the number of toolUse blocks",
    ),
    "call twice": (
        {"messages": [*START, assistant(USE, USE), user(DONE)], "toolConfig": TOOLS},
        "contain duplicate Ids",
    ),
    "id": (
        {
            "messages": [*START, assistant({"toolUse": {**USE["toolUse"], "toolUseId": "a b"}}), user(DONE)],
            "toolConfig": TOOLS,
        },
        "regular expression pattern",
    ),
    "input": (
        {"messages": [*START, assistant({"toolUse": {**USE["toolUse"], "input": 7}}), user(DONE)], "toolConfig": TOOLS},
        r"toolUse\.input is invalid\. Provide a json object",
    ),
    "json result": (
        {
            "messages": [
                *START,
                assistant(USE),
                user({"toolResult": {**DONE["toolResult"], "content": [{"json": [1]}]}}),
            ],
            "toolConfig": TOOLS,
        },
        "Provide a json object",
    ),
    "blank result": (
        {
            "messages": [
                *START,
                assistant(USE),
                user({"toolResult": {**DONE["toolResult"], "content": [{"text": ""}]}}),
            ],
            "toolConfig": TOOLS,
        },
        "is blank",
    ),
    "failed without words": (
        {
            "messages": [
                *START,
                assistant(USE),
                user({"toolResult": {"toolUseId": "t1", "content": [], "status": "error"}}),
            ],
            "toolConfig": TOOLS,
        },
        "cannot be empty when status value is error",
    ),
    "no tools in tools": ({"messages": START, "toolConfig": {"tools": []}}, "length greater than or equal to 1"),
    "tool name": (
        {"messages": START, "toolConfig": {"tools": [{"toolSpec": {**SPEC["toolSpec"], "name": "a b"}}]}},
        "regular expression pattern",
    ),
    "alternatives at the top of a schema": (
        {
            "messages": START,
            "toolConfig": {
                "tools": [
                    {"toolSpec": {**SPEC["toolSpec"], "inputSchema": {"json": {"type": "object", "anyOf": [{}]}}}}
                ]
            },
        },
        "does not support oneOf, allOf, or anyOf at the top level",
    ),
    "tool twice": ({"messages": START, "toolConfig": {"tools": [SPEC, SPEC]}}, "duplicate tool names"),
    "schema": (
        {"messages": START, "toolConfig": {"tools": [{"toolSpec": {**SPEC["toolSpec"], "inputSchema": {"json": {}}}}]}},
        "must be one of the following: object",
    ),
    "unsigned thought": (
        {"messages": [*START, assistant({"reasoningContent": {"reasoningText": {"text": "hm"}}}), *START]},
        r"thinking\.signature: Field required",
    ),
    "another's thought": (
        {
            "messages": [
                *START,
                assistant({"reasoningContent": {"reasoningText": {"text": "hm", "signature": "forged"}}}),
                *START,
            ]
        },
        "Invalid `signature`",
    ),
    "document": (
        {
            "messages": [
                user({"text": "a"}, {"document": {"name": "a.pdf", "format": "pdf", "source": {"bytes": b"a"}}})
            ]
        },
        "document file name can only contain",
    ),
    "one name for two documents": (
        {
            "messages": [
                user(
                    {"text": "a"},
                    {"document": {"name": "one", "format": "txt", "source": {"bytes": b"a"}}},
                    {"document": {"name": "One", "format": "txt", "source": {"bytes": b"b"}}},
                )
            ]
        },
        "duplicate document names",
    ),
    "calls without the thought": (
        {
            "messages": [
                user({"text": "a"}),
                {
                    "role": "assistant",
                    "content": [{"text": "b"}, {"toolUse": {"toolUseId": "c", "name": "d", "input": {}}}],
                },
                user({"toolResult": {"toolUseId": "c", "content": [{"text": "e"}]}}),
            ],
            "toolConfig": {"tools": [{"toolSpec": {"name": "d", "inputSchema": {"json": {"type": "object"}}}}]},
            "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        },
        "must start with a thinking block",
    ),
    "temperature": ({"messages": START, "inferenceConfig": {"temperature": 2.0}}, "less than or equal to 1"),
    "max tokens": ({"messages": START, "inferenceConfig": {"maxTokens": 0}}, "greater than or equal to 1"),
    "system": ({"messages": START, "system": [{"text": " "}]}, "SystemContentBlock"),
    "guardrail": (
        {"messages": START, "guardrailConfig": {"guardrailIdentifier": "x", "guardrailVersion": "1"}},
        "does not exist",
    ),
    "too long": ({"messages": [user({"text": "word " * 2000})]}, "Input is too long for requested model"),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("operation", ["converse", "converse_stream"])
def test_each_rule_is_told_to_a_client_that_breaks_it(place, rule, operation):
    server, client = place
    body, words = RULES[rule]
    with pytest.raises(ClientError, match=words) as refused:
        getattr(client, operation)(modelId=server.model_id, **body)
    assert refused.value.response["Error"]["Code"] == "ValidationException"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_a_status_is_refused_for_models_that_read_none(place):
    server, client = place
    known, server.model_id = server.model_id, "meta.llama-loopback"
    try:
        told = {"toolResult": {**DONE["toolResult"], "status": "success"}}
        with pytest.raises(ClientError, match="doesn't support the status field"):
            client.converse(modelId=server.model_id, messages=[*START, assistant(USE), user(told)], toolConfig=TOOLS)
    finally:
        server.model_id = known


def test_boto3_reads_the_stream_and_its_exceptions(place):
    server, client = place
    server.call_tools([("weather", {"city": "Paris"}, "mine")], "Let me see.", reasoning="Hm.")
    with closing(client.converse_stream(modelId=server.model_id, messages=START, toolConfig=TOOLS)["stream"]) as stream:
        events = list(stream)
    assert [next(iter(event)) for event in events][-2:] == ["messageStop", "metadata"]
    starts = [event["contentBlockStart"]["start"] for event in events if "contentBlockStart" in event]
    assert starts == [{"toolUse": {"toolUseId": "mine", "name": "weather"}}]
    server.fail("modelStreamErrorException", "broken")
    with (
        closing(client.converse_stream(modelId=server.model_id, messages=START)["stream"]) as stream,
        pytest.raises(ClientError, match="broken"),
    ):
        list(stream)


def test_a_script_that_is_used_up_says_so(place):
    server, client = place
    with pytest.raises(ClientError, match="the script has no step"):
        client.converse(modelId=server.model_id, messages=START)


def test_other_addresses_are_unknown(place):
    server, client = place
    with pytest.raises(ClientError, match="UnknownOperation"):
        client.invoke_model(modelId=server.model_id, body=b"{}")


# --- signatures ---


def test_the_signing_key_is_that_of_the_documentation():
    """The example of "Create a signed AWS API request", AWS IAM User Guide."""
    key = signing_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20150830", "us-east-1", "iam")
    assert key.hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "MissingAuthenticationTokenException"),
        ({"authorization": "Bearer abc"}, "IncompleteSignatureException"),
        (
            {
                "authorization": "AWS4-HMAC-SHA256 Credential=K/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, "
                f"Signature={'0' * 64}",
                "x-amz-date": "20260101T000000Z",
                "host": "x",
            },
            "InvalidSignatureException",
        ),
    ],
)
def test_what_is_not_signed_is_not_believed(headers, code):
    refusal = check_signature(
        method="POST",
        target="/",
        headers=headers,
        body=b"",
        secrets={"K": "secret"},
        region="us-east-1",
        service="bedrock",
    )
    assert refusal is not None
    assert refusal.code == code
