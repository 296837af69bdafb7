"""Models of Amazon Bedrock that answer in turns, through the Converse API."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, closing
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import Unpack

from antiphon.clock import SYSTEM_CLOCK, Clock
from antiphon.content import Messages, SystemContentBlock, ToolSpec
from antiphon.errors import (
    ContextWindowOverflowException,
    InvalidInputError,
    InvalidTypeError,
    ModelConnectionError,
    ModelProtocolError,
    ModelRequestError,
)
from antiphon.jsonable import encode_json
from antiphon.models.base import Model, StreamEvent, without_reasoning
from antiphon.models.bedrock.access import Access, CredentialSource
from antiphon.models.bedrock.config import BedrockConfig
from antiphon.models.bedrock.failures import translate
from antiphon.models.bedrock.guardrails import redactions
from antiphon.models.bedrock.line import CURRENT, Line
from antiphon.models.bedrock.request import converse_request, documents_in
from antiphon.models.retrying import Retries, with_retries
from antiphon.models.threaded import Put, from_thread

if TYPE_CHECKING:
    import boto3
    from botocore.config import Config

DEFAULT_MODEL_ID = "global.anthropic.claude-sonnet-4-5-20250929-v1:0"

_log = logging.getLogger(__name__)

# How many documents a request may have is for Bedrock to say; its own count of them it does not tell.
_TOO_MANY_DOCUMENTS = re.compile(r"more than \d+ documents", re.IGNORECASE)
_UNREADABLE = re.compile(r"signature|reasoning.?content|`?(redacted_)?thinking`? block", re.IGNORECASE)
_BROKEN_OUTPUT = ("malformed_model_output", "malformed_tool_use")


class BedrockModel(Model):
    """A model of Amazon Bedrock, asked through boto3.

    Each request has a thread of its own, for boto3 blocks; cancelling the task cuts the connection, so that the thread ends
    at once. One object serves any number of agents at the same time.

    Args:
        boto_session: The session to use: its credentials, region and profile. Excludes `region_name`, `credentials` and
            `environ`.
        boto_client_config: Configuration of the client, merged over ours (10 s to connect, 120 s between bytes, no retries
            of botocore's own).
        region_name: The region. Default: `AWS_REGION`, `AWS_DEFAULT_REGION`, the profile's, `us-west-2`.
        endpoint_url: Another address than the region's, such as a VPC endpoint.
        credentials: Keys, or a function that gives short-lived ones; it is called for each request. Left out: wherever
            boto3 finds them (environment, profile, role).
        environ: The environment to read instead of the process's own.
        retries: When a request is repeated that failed before anything was answered.
        clock: Paces the waits between.
        **model_config: See `BedrockConfig`.

    Raises:
        MissingExtraError: If boto3 is not installed: `pip install 'antiphon[bedrock]'`.
        InvalidInputError: If the configuration has a name that is unknown, or arguments exclude one another.
    """

    def __init__(
        self,
        *,
        boto_session: boto3.Session | None = None,
        boto_client_config: Config | None = None,
        region_name: str | None = None,
        endpoint_url: str | None = None,
        credentials: CredentialSource | None = None,
        environ: Mapping[str, str] | None = None,
        retries: Retries | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **model_config: Unpack[BedrockConfig],
    ) -> None:
        self._access = Access(
            boto_session=boto_session,
            boto_client_config=boto_client_config,
            region_name=region_name,
            endpoint_url=endpoint_url,
            credentials=credentials,
            environ=environ,
        )
        self._retries = retries or Retries()
        self._clock = clock
        self._config = BedrockConfig(model_id=DEFAULT_MODEL_ID)
        self.update_config(**model_config)

    def __repr__(self) -> str:
        return f"BedrockModel(model_id={self._config.get('model_id')!r}, region_name={self._access.region!r})"

    def get_config(self) -> dict[str, Any]:
        return deepcopy(dict(self._config))

    def update_config(self, **config: Any) -> None:
        """Change the configuration from the next request on. The names are those of `BedrockConfig`.

        Raises:
            InvalidInputError: If a name is unknown; nothing is changed then.
            InvalidTypeError: If `model_id` is no text.
        """
        known = sorted(BedrockConfig.__optional_keys__)
        if unknown := sorted(set(config) - set(known)):
            raise InvalidInputError(f"config={unknown!r} is unknown: a BedrockModel has {known!r}")
        if "model_id" in config and not (isinstance(config["model_id"], str) and config["model_id"].strip()):
            raise InvalidTypeError(f"model_id={config['model_id']!r} is no text that names a model")
        self._config = cast("BedrockConfig", {**self._config, **deepcopy(config)})

    async def stream(
        self,
        messages: Messages,
        tool_specs: list[ToolSpec] | None = None,
        system_prompt: str | list[SystemContentBlock] | None = None,
        *,
        model_state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[StreamEvent]:
        config = self.get_config()

        def without_thoughts() -> dict[str, Any]:
            return converse_request(config, without_reasoning(messages), tool_specs, system_prompt)

        request = converse_request(config, messages, tool_specs, system_prompt)
        ask = partial(self._ask_readable, config, request, without_thoughts)
        answers = with_retries(ask, retries=self._retries, clock=self._clock)
        async with aclosing(answers):
            async for event in answers:
                yield event

    async def _ask_readable(
        self, config: dict[str, Any], request: dict[str, Any], without_thoughts: Callable[[], dict[str, Any]]
    ) -> AsyncGenerator[StreamEvent, None]:
        """Ask; once more without the reasoning of the history, where the model cannot read it: it was another model's."""
        begun = False
        try:
            async with aclosing(self._ask(config, request)) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except ModelRequestError as error:
            if begun or not _UNREADABLE.search(str(error)) or (bare := without_thoughts()) == request:
                raise
        _log.warning("model %r cannot read the reasoning in this history, and gets it without", config["model_id"])
        async with aclosing(self._ask(config, bare)) as events:
            async for event in events:
                yield event

    async def _ask(self, config: dict[str, Any], request: dict[str, Any]) -> AsyncGenerator[StreamEvent, None]:
        """One request."""
        line = Line()

        def work(put: Put[StreamEvent]) -> None:
            CURRENT.set(line)
            ask = _streamed if config.get("streaming", True) else _at_once
            ask(self._access.client(), request, put, line)

        over, intervened = False, False
        try:
            async with aclosing(from_thread(work, leave=line.cut)) as events:
                async for event in events:
                    if "messageStop" in event:
                        reason = str(event["messageStop"].get("stopReason"))
                        _check_reason(reason)
                        over, intervened = True, reason == "guardrail_intervened"
                    if "metadata" in event:
                        trace = event["metadata"].get("trace", {}).get("guardrail")
                        for redaction in redactions(config, intervened=intervened, trace=trace):
                            yield redaction
                        intervened = False
                    yield event
        except Exception as error:
            model_id, access = str(config["model_id"]), self._access
            ours = translate(error, model_id=model_id, region=access.region, endpoint=access.endpoint)
            if isinstance(ours, ModelRequestError) and _TOO_MANY_DOCUMENTS.search(str(ours)):
                ours = ModelRequestError(
                    f"{ours} This one has {documents_in(request['messages'])}, since earlier turns and the results of tools "
                    "count, too: put text in the place of those in agent.messages that are not needed any more"
                )
            if ours is error:
                raise
            raise ours from error
        if not over:
            raise ModelConnectionError(
                f"the answer of {self._access.endpoint} broke off: its stream ended before messageStop", passing=True
            )
        for redaction in redactions(config, intervened=intervened, trace=None):
            yield redaction


def _check_reason(reason: str) -> None:
    """Refuse the reasons that are failures."""
    if reason == "model_context_window_exceeded":
        raise ContextWindowOverflowException("the answer filled the model's context window before it was complete")
    if reason in _BROKEN_OUTPUT:
        raise ModelProtocolError(f"Bedrock could not read what the model made (stop reason {reason!r}): ask again")


def _streamed(client: Any, request: dict[str, Any], put: Put[StreamEvent], line: Line) -> None:
    """On the request's thread: ask, and hand on each event as it comes."""
    response = client.converse_stream(**request)
    with closing(response["stream"]) as events:
        for event in events:
            if not put(event):
                return


def _at_once(client: Any, request: dict[str, Any], put: Put[StreamEvent], line: Line) -> None:
    """On the request's thread: ask for the whole answer, and hand it on in the events of a stream."""
    response = client.converse(**request)
    put({"messageStart": {"role": "assistant"}})
    for index, block in enumerate(response["output"]["message"]["content"]):
        for event in _block_events(block):
            kind, value = next(iter(event.items()))
            put(cast("StreamEvent", {kind: {**cast("dict[str, Any]", value), "contentBlockIndex": index}}))
    put({"messageStop": {"stopReason": response["stopReason"], **_extra(response)}})
    kept = ("usage", "metrics", "trace", "performanceConfig", "serviceTier")
    put({"metadata": {name: response[name] for name in kept if name in response}})


def _extra(response: dict[str, Any]) -> dict[str, Any]:
    name = "additionalModelResponseFields"
    return {name: response[name]} if name in response else {}


def _block_events(block: dict[str, Any]) -> list[StreamEvent]:
    if "toolUse" in block:
        use = block["toolUse"]
        start: StreamEvent = {
            "contentBlockStart": {"start": {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}}
        }
        deltas: list[dict[str, Any]] = [{"toolUse": {"input": encode_json(use["input"]).decode()}}]
        return [start, *_deltas(deltas), {"contentBlockStop": {}}]
    if "reasoningContent" in block:
        reasoning = block["reasoningContent"]
        if "redactedContent" in reasoning:
            deltas = [{"reasoningContent": {"redactedContent": reasoning["redactedContent"]}}]
        else:
            text = reasoning["reasoningText"]
            deltas = [{"reasoningContent": {name: text[name]}} for name in ("text", "signature") if text.get(name)]
        return [*_deltas(deltas), {"contentBlockStop": {}}]
    if "text" in block:
        return [*_deltas([{"text": block["text"]}]), {"contentBlockStop": {}}]
    if "citationsContent" in block:
        texts = [part["text"] for part in block["citationsContent"].get("content", []) if "text" in part]
        return [*_deltas([{"text": text} for text in texts]), {"contentBlockStop": {}}]
    return []


def _deltas(deltas: list[dict[str, Any]]) -> list[StreamEvent]:
    return [{"contentBlockDelta": {"delta": delta}} for delta in deltas]
