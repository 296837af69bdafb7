"""The contract of a model that keeps a live connection.

A model is six methods: `get_config`, `update_config`, `start`, `stop`, `send` and `receive`. What it can do beyond that it
says by offering one of the small protocols below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, Protocol, TypedDict, runtime_checkable

from antiphon.content import AudioDelta, BidiMessage, Messages, ToolSpec
from antiphon.events import OutputEvent


class AudioStreamConfig(TypedDict, total=False):
    """Format of one direction of sound: `sample_rate` in Hz, `channels`, `format` (`pcm`)."""

    sample_rate: int
    channels: int
    format: str
    voice: str


class AudioConfig(TypedDict, total=False):
    """Formats of both directions; `input` is what the model hears."""

    input: AudioStreamConfig
    output: AudioStreamConfig


class ConnectionConfig(TypedDict, total=False):
    """How a live connection is kept.

    Attributes:
        restart_after_s: Restart the connection at the next turn boundary after this time; 0 or absent: never.
        auto_restart: Restart when the provider ends the connection at its limit (default True).
    """

    restart_after_s: float
    auto_restart: bool


class BidiModel(ABC):
    """A model that hears and speaks over one live connection.

    Attributes:
        held_by: Whoever has the connection. Set and compared by agents: one that starts a model which is in use takes it
            over, and the other one neither sends anything over the new connection nor closes it.
    """

    held_by: object | None = None

    @property
    def stateful(self) -> bool:
        """Whether the provider keeps the history, so that restored messages are not sent again."""
        return False

    @property
    def model_id(self) -> str:
        """The configured `model_id`, or the class's name."""
        return str(self.get_config().get("model_id", type(self).__name__))

    def get_connection_config(self) -> ConnectionConfig:
        """The configured `connection`, or nothing."""
        config: ConnectionConfig = self.get_config().get("connection", {})
        return config

    @abstractmethod
    def get_config(self) -> dict[str, Any]:
        """The configuration, as a copy; never with a secret in it."""
        ...

    @abstractmethod
    def update_config(self, **config: Any) -> None:
        """Change the configuration from the next connection on."""
        ...

    @abstractmethod
    async def start(
        self,
        system_prompt: str | None = None,
        tools: list[ToolSpec] | None = None,
        messages: Messages | None = None,
        **kwargs: Any,
    ) -> None:
        """Open the connection and hand over the history. Called with keywords.

        Args:
            system_prompt: The system prompt's text.
            tools: The tools that may be called.
            messages: The committed history, without metadata; the model's own copy.
            **kwargs: What `ConnectionTimeoutError.restart_config` carried, on a restart.

        Raises:
            ModelError: If the connection cannot be opened.
        """
        ...

    @abstractmethod
    async def stop(self) -> None:
        """Close the connection. Safe to call twice, and after a failed `start`."""
        ...

    @abstractmethod
    async def send(self, content: BidiMessage | AudioDelta, /) -> None:
        """Send sound, or a complete message: the user's text and images, or results of tools."""
        ...

    @abstractmethod
    def receive(self) -> AsyncIterator[OutputEvent]:
        """The events of this connection, until it ends.

        Yields the classes of `antiphon.events`. Sound and transcripts of one answer carry its `response_id` (through
        `BidiResponseStartEvent`, or the field). A user's `BidiTranscriptStartEvent` comes as soon as speech is known of,
        even when the words come later.

        Raises:
            ConnectionTimeoutError: If the provider's time limit was reached.
            ModelError: If the connection failed.
        """
        ...


@runtime_checkable
class Restartable(Protocol):
    """A model that can open its connection anew better than by `stop()` and `start()`."""

    async def restart(
        self,
        system_prompt: str | None = None,
        tools: list[ToolSpec] | None = None,
        messages: Messages | None = None,
        **restart_config: Any,
    ) -> None:
        """Replace the connection, by a resume handle or by replaying `messages`."""
        ...


@runtime_checkable
class AudioCapable(Protocol):
    """A model that says which sound it takes and gives."""

    def get_audio_config(self) -> AudioConfig:
        """Formats of both directions."""
        ...


@runtime_checkable
class Truncatable(Protocol):
    """A model that can be told how much of an answer was heard."""

    async def truncate(self, response_id: str, played_ms: float) -> None:
        """The listener heard only the first `played_ms` of this response."""
        ...
