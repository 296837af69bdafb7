"""The Nova Sonic server satisfies the AWS SDK for Python with bidirectional streaming, so that it is not only our opinion.

That SDK needs Python 3.12 and a transport of 30 MB, and takes a quarter of a minute to install. So the test runs where
`ANTIPHON_AWS_SDK_PYTHON` names a Python that has it::

    python3.12 -m venv .bench/aws-sdk
    .bench/aws-sdk/bin/pip install aws-sdk-bedrock-runtime awscrt
    ANTIPHON_AWS_SDK_PYTHON=.bench/aws-sdk/bin/python make test ARGS=tests/models/bedrock/test_nova_vendor.py
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from antiphon.testing.servers import NovaSonicServer
from antiphon.testing.servers.certificates import LoopbackAuthority

PYTHON = os.environ.get("ANTIPHON_AWS_SDK_PYTHON", "")
CLIENT = Path(__file__).with_name("aws_sdk_client.py")


@pytest.mark.skipif(
    not PYTHON, reason="ANTIPHON_AWS_SDK_PYTHON names no Python with aws-sdk-bedrock-runtime and awscrt"
)
async def test_the_sdk_of_aws_talks_with_the_server_and_is_complained_of_in_nothing(tmp_path):
    authority = LoopbackAuthority()
    ca_file = authority.write_ca(tmp_path / "ca.pem")
    async with NovaSonicServer(tls=authority.server_context("h2"), skew=True) as server:
        server.call_tools([("sky", {"city": "Paris"})]).say("Blue.", seconds=0.3)
        keys = server.credentials
        process = await asyncio.create_subprocess_exec(
            *[
                os.path.abspath(PYTHON),
                str(CLIENT),
                server.url,
                str(ca_file),
                keys.access_key_id,
                keys.secret_access_key,
            ],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(45):
                out, told = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, told.decode()
    events = [json.loads(line) for line in out.splitlines()]
    assert next(iter(events[0])) == "completionStart"
    assert "completionEnd" in events[-1]
    assert "Blue." in [event["textOutput"]["content"] for event in events if "textOutput" in event]
    [session] = server.sessions
    assert session.typed == ["hello"]
    assert [value for _, value in session.results] == [{"sky": "blue"}]
    assert server.complaints() == []
