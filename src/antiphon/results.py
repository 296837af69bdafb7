"""What an invocation of an agent comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from antiphon.content import Message, text_of
from antiphon.interrupts import Interrupt

StopReason = Literal[
    "cancelled",
    "content_filtered",
    "end_turn",
    "guardrail_intervened",
    "interrupt",
    "limit_output_tokens",
    "limit_total_tokens",
    "limit_turns",
    "max_tokens",
    "stop_sequence",
    "tool_use",
]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, summed over the model calls of an invocation."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.total_tokens + other.total_tokens,
        )


@dataclass(frozen=True, slots=True)
class AgentResult:
    """What an invocation of an `Agent` came to.

    Attributes:
        stop_reason: Why it ended.
        message: The model's last message.
        usage: Tokens of all model calls of this invocation.
        state: The `invocation_state` it was given, with what tools and hooks left there.
        interrupts: The open questions, when `stop_reason` is `interrupt`.
        model_calls: How often the model was asked.
    """

    stop_reason: StopReason
    message: Message
    usage: Usage = field(default_factory=Usage)
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    interrupts: tuple[Interrupt, ...] = ()
    model_calls: int = 0

    def __str__(self) -> str:
        """The words of the last message; of an interrupted invocation, its questions."""
        if self.interrupts:
            return "\n".join(f"{question.name}: {question.reason}" for question in self.interrupts)
        return text_of(self.message)
