"""What a `BedrockModel` is configured with."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class GuardrailConfig(TypedDict, total=False):
    """Which guardrail is applied, and what becomes of what it blocks.

    Attributes:
        guardrail_id: The guardrail that is applied.
        guardrail_version: Its version (default `DRAFT`).
        guardrail_trace: Whether Bedrock tells what the guardrail found (default `enabled`; redaction is exact with it).
        guardrail_stream_processing_mode: `sync`: Bedrock checks before it sends; `async`: it may take back what was sent.
        guardrail_redact_input: Whether a blocked prompt is replaced in the history (default True): it would be blocked
            again with every later turn.
        guardrail_redact_input_message: By what; default `[User input redacted.]`.
        guardrail_redact_output: Whether a blocked answer is replaced (default False: Bedrock sends the guardrail's own
            message in its place).
        guardrail_redact_output_message: By what; default `[Assistant output redacted.]`.
    """

    guardrail_id: str | None
    guardrail_version: str | None
    guardrail_trace: Literal["enabled", "disabled", "enabled_full"] | None
    guardrail_stream_processing_mode: Literal["sync", "async"] | None
    guardrail_redact_input: bool
    guardrail_redact_input_message: str | None
    guardrail_redact_output: bool
    guardrail_redact_output_message: str | None


class BedrockConfig(GuardrailConfig, total=False):
    """The configuration of a `BedrockModel`. What is left out (or None) is left to Bedrock.

    Attributes:
        model_id: A model, an inference profile, or an ARN.
        max_tokens: The longest answer, in tokens.
        temperature: Between 0 and 1.
        top_p: Between 0 and 1.
        stop_sequences: Texts that end the answer.
        streaming: Whether the answer is streamed (default); False for models that cannot.
        tool_choice: `{"auto": {}}`, `{"any": {}}` or `{"tool": {"name": ...}}`, where tools are given.
        cache_prompt: The type of a cache point after the system prompt, such as `default`.
        cache_tools: The type of a cache point after the tools.
        include_tool_result_status: Whether results of tools carry their `status`; `auto` (default): for the families that
            take it.
        additional_request_fields: Parameters of the model's own, such as `{"thinking": {...}}`.
        additional_response_field_paths: JSON pointers to fields that are to come back in `messageStop`.
        additional_args: Further arguments of the operation itself.
        service_tier: `priority`, `default`, `flex` or `reserved`.
    """

    model_id: str
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    stop_sequences: list[str] | None
    streaming: bool
    tool_choice: dict[str, Any] | None
    cache_prompt: str | None
    cache_tools: str | None
    include_tool_result_status: bool | Literal["auto"]
    additional_request_fields: dict[str, Any] | None
    additional_response_field_paths: list[str] | None
    additional_args: dict[str, Any] | None
    service_tier: str | None
