"""A live conversation of the embedded model: what was said, what it decides, what it says next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

from antiphon.content import ContentBlock, Message, Messages, ToolResultBlock, ToolSpec, ToolUse
from antiphon.events import (
    BidiToolUseBlocksEvent,
    BidiTranscriptDeltaEvent,
    BidiTranscriptStartEvent,
    BidiTranscriptStopEvent,
)
from antiphon.models.embedded.line import Line
from antiphon.models.embedded.mind import INAUDIBLE, Decision, decide
from antiphon.models.embedded.script import numbered_calls
from antiphon.models.embedded.speaker import Response, Speaker, in_sentences
from antiphon.models.embedded.stream import count_calls

_DEAF = "I can hear that you speak, but not the words. Please write to me, or install the extra voice."


class Conversation:
    """One connection's conversation. All of it happens on the event loop, and nothing here waits.

    Args:
        line: Where events go.
        messages: What was said before this connection.
        tools: What may be called.
        numbers: How many calls, responses and utterances there were; goes on over connections.
        knows_words: Whether it can understand speech; else it only hears that somebody speaks.
    """

    def __init__(
        self, line: Line, messages: Messages, tools: Sequence[ToolSpec], numbers: Counter[str], *, knows_words: bool
    ) -> None:
        self._line = line
        self._history: list[Message | Response] = list(messages)
        self._tools = tools
        self._numbers = numbers
        self._knows_words = knows_words
        self._speaker: Speaker | None = None
        self._heard_id = ""
        # Ids that stand in the history must not come again.
        numbers["call"] = max(numbers["call"], count_calls(messages))
        for what, role in (("response", "assistant"), ("heard", "user")):
            numbers[what] = max(numbers[what], sum(message["role"] == role for message in messages))

    def speak_with(self, speaker: Speaker) -> None:
        """Use this speaker."""
        self._speaker = speaker

    def remember(self, rest: Response) -> None:
        """A part of a response became one of its own."""
        self._history.append(rest)

    @property
    def messages(self) -> Messages:
        """What was said so far; of a response that is being said, also what comes."""
        messages: Messages = []
        for entry in self._history:
            if not isinstance(entry, Response):
                messages.append(entry)
            elif entry.text:
                messages.append({"role": "assistant", "content": [{"text": entry.text}]})
        return messages

    def typed(self, content: Sequence[ContentBlock]) -> None:
        """The user wrote: whatever is being said ends here."""
        self._cut()
        self._history.append({"role": "user", "content": list(content)})
        self._act(decide(self.messages, self._tools))

    def results(self, results: Sequence[ToolResultBlock]) -> None:
        """Tools have finished: that is told at the end of the sentence that is being said."""
        self._history.append({"role": "user", "content": [result.to_dict() for result in results]})
        self._act(decide(self.messages, self._tools), urgent=True)

    def speech_started(self) -> None:
        """The user begins to speak: the model falls silent."""
        self._cut()
        if self._speaker is not None:
            self._speaker.hold(held=True)
        self._heard_id = self._next("heard")
        self._line.post(BidiTranscriptStartEvent(content_id=self._heard_id, role="user"))

    def understood(self, text: str) -> None:
        """What the user seems to say, so far."""
        self._line.post(BidiTranscriptDeltaEvent(delta="", role="user", content_id=self._heard_id, partial=text))

    def heard(self, text: str, *, trusted: bool) -> None:
        """The user has finished speaking.

        Args:
            text: What was said; empty when it was not understood.
            trusted: Whether it may call tools.
        """
        text = text or INAUDIBLE
        self._line.post(
            BidiTranscriptDeltaEvent(delta=text, role="user", content_id=self._heard_id),
            BidiTranscriptStopEvent(role="user", content_id=self._heard_id),
        )
        self._history.append({"role": "user", "content": [{"text": text}]})
        if self._speaker is not None:
            self._speaker.hold(held=False)
        if self._knows_words:
            self._act(decide(self.messages, self._tools, trusted=trusted))
        else:
            self._act(Decision(text=_DEAF))

    def truncate(self, response_id: str, played_ms: float) -> None:
        """The listener heard only the beginning of a response."""
        for entry in reversed(self._history):
            if isinstance(entry, Response) and entry.response_id == response_id:
                entry.cut(played_ms)
                return

    def _cut(self) -> None:
        if self._speaker is not None:
            self._speaker.cut()

    def _next(self, what: str) -> str:
        self._numbers[what] += 1
        return f"{what}-{self._numbers[what]}"

    def _act(self, decision: Decision, *, urgent: bool = False) -> None:
        if decision.text and self._speaker is not None:
            response = Response(self._next("response"), in_sentences(decision.text), urgent=urgent)
            self._history.append(response)
            self._speaker.say(response)
        if decision.calls:
            calls: list[ToolUse] = numbered_calls(decision.calls, self._numbers["call"] + 1)
            self._numbers["call"] += len(calls)
            self._history.append(
                {"role": "assistant", "content": [cast("ContentBlock", {"toolUse": call}) for call in calls]}
            )
            self._line.post(BidiToolUseBlocksEvent(tool_uses=calls))
