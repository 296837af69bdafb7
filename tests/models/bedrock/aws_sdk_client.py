"""A talk through the AWS SDK for Python with bidirectional streaming: run by a Python that has it, not by pytest.

`python aws_sdk_client.py URL CA_FILE ACCESS_KEY SECRET_KEY` types "hello", answers a call of a tool, says goodbye, and writes
each event that came to its output, a line of JSON each.
"""

from __future__ import annotations

import asyncio
import json
import sys

from aws_sdk_bedrock_runtime.client import AsyncBedrockRuntimeClient
from aws_sdk_bedrock_runtime.config import AsyncBedrockRuntimeConfig
from aws_sdk_bedrock_runtime.models import (
    BidirectionalInputPayloadPart,
    InvokeModelWithBidirectionalStreamInputChunk,
    InvokeModelWithBidirectionalStreamOperationInput,
)
from awscrt import io as crt_io
from smithy_aws_core.identity import AWSCredentialsIdentity, StaticCredentialsResolver
from smithy_http.aio.crt import AWSCRTHTTPClient

PLAIN = {"mediaType": "text/plain"}
SOUND = {
    "mediaType": "audio/lpcm",
    "sampleRateHertz": 16000,
    "sampleSizeBits": 16,
    "channelCount": 1,
    "encoding": "base64",
    "audioType": "SPEECH",
}


def block(name, kind, role, content, *, interactive, event="textInput", **config):
    names = {"promptName": "p", "contentName": name}
    start = {**names, "type": kind, "role": role, "interactive": interactive, **config}
    return [{"contentStart": start}, {event: {**names, "content": content}}, {"contentEnd": names}]


async def main(url: str, ca_file: str, access_key: str, secret_key: str) -> None:
    transport = AWSCRTHTTPClient()
    options = crt_io.TlsContextOptions()
    options.override_default_trust_store_from_path(None, ca_file)
    transport._tls_ctx = crt_io.ClientTlsContext(options)
    config = await AsyncBedrockRuntimeConfig.resolve(
        endpoint_uri=url,
        region="us-east-1",
        aws_credentials_identity_resolver=StaticCredentialsResolver(
            AWSCredentialsIdentity(access_key_id=access_key, secret_access_key=secret_key)
        ),
    )

    def trusting(config: AsyncBedrockRuntimeConfig) -> None:
        config.transport = transport  # a copy of it would forget whom it trusts

    client = AsyncBedrockRuntimeClient(config=config, plugins=[trusting])
    stream = await client.invoke_model_with_bidirectional_stream(
        InvokeModelWithBidirectionalStreamOperationInput(model_id="amazon.nova-2-sonic-v1:0")
    )

    async def send(*events):
        for event in events:
            part = BidirectionalInputPayloadPart(bytes_=json.dumps({"event": event}).encode())
            await stream.input_stream.send(InvokeModelWithBidirectionalStreamInputChunk(value=part))

    tool = {"name": "sky", "description": "Tells it.", "inputSchema": {"json": json.dumps({"type": "object"})}}
    await send(
        {"sessionStart": {"inferenceConfiguration": {"maxTokens": 100, "topP": 0.9, "temperature": 0.7}}},
        {
            "promptStart": {
                "promptName": "p",
                "textOutputConfiguration": PLAIN,
                "audioOutputConfiguration": {**SOUND, "sampleRateHertz": 24000, "voiceId": "matthew"},
                "toolUseOutputConfiguration": {"mediaType": "application/json"},
                "toolConfiguration": {"tools": [{"toolSpec": tool}]},
            }
        },
        *block("system", "TEXT", "SYSTEM", "Be kind.", interactive=False, textInputConfiguration=PLAIN),
        {
            "contentStart": {
                "promptName": "p",
                "contentName": "audio",
                "type": "AUDIO",
                "role": "USER",
                "interactive": True,
                "audioInputConfiguration": SOUND,
            }
        },
        *block("typed", "TEXT", "USER", "hello", interactive=True, textInputConfiguration=PLAIN),
    )
    _, output = await stream.await_output()
    while True:
        result = await output.receive()
        if result is None:
            break
        event = json.loads(result.value.bytes_)["event"]
        sys.stdout.write(json.dumps(event) + "\n")
        if "toolUse" in event:
            config = {
                "toolUseId": event["toolUse"]["toolUseId"],
                "type": "TEXT",
                "textInputConfiguration": PLAIN,
            }
            result_block = block(
                *["r", "TOOL", "TOOL", json.dumps({"sky": "blue"})],
                interactive=False,
                event="toolResult",
                toolResultInputConfiguration=config,
            )
            await send(*result_block)
        if event.get("contentEnd", {}).get("stopReason") == "END_TURN" and event["contentEnd"]["type"] == "TEXT":
            await send(
                {"contentEnd": {"promptName": "p", "contentName": "audio"}},
                {"promptEnd": {"promptName": "p"}},
                {"sessionEnd": {}},
            )
            await stream.input_stream.close()
        if "completionEnd" in event:
            break


asyncio.run(main(*sys.argv[1:]))
