"""What OpenAI's Realtime API takes and refuses: one session of it, without I/O.

Rules and words are those of the API's reference and of what clients report of it. The session is told the client's frames
(`receive`), and what happens on the provider's side (`speech`, `answer`, ...), and gives the events to send.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from antiphon.testing.servers.openai_realtime_forms import (
    BYTES_PER_MS,
    Event,
    RefusedError,
    as_object,
    check_fields,
    check_id,
    check_response,
    check_session,
    checked_item,
    decoded,
)

LONGEST_AUDIO = 15 * 1024 * 1024
"""Characters of base64 in one `input_audio_buffer.append`."""
PIECE_MS = 100
"""Length of the pieces in which an answer's sound is sent."""


class RealtimeSession:
    """One session.

    Attributes:
        config: The effective configuration.
        received: What the client sent, decoded, in order.
        refusals: The errors that the client was told of, in order.
        items: The conversation, in order.
        audio: What the client said and that is not an item yet, as it came.
        heard: How many bytes of sound came in all.
        updated: Whether the client has configured the session.
        response: The response under way.
        answered: The ids of the responses that began.
        usage: What the next response is said to cost: input and output tokens.
        deleted: The ids of items that the client deleted.
        truncated: By item's id, where the client cut it, in ms.
    """

    def __init__(self, number: int, model: str) -> None:
        self._number = number
        self._count = 0
        self._spoken_ms: dict[str, float] = {}
        self.config: dict[str, Any] = {
            "type": "realtime",
            "object": "realtime.session",
            "id": f"sess_{number}",
            "model": model,
            "output_modalities": ["audio"],
            "instructions": "You are a helpful assistant.",
            "tools": [],
            "tool_choice": "auto",
            "max_output_tokens": "inf",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "transcription": None,
                    "noise_reduction": None,
                    "turn_detection": {
                        "type": "server_vad",
                        "threshold": 0.5,
                        "prefix_padding_ms": 300,
                        "silence_duration_ms": 200,
                        "create_response": True,
                        "interrupt_response": True,
                    },
                },
                "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "alloy", "speed": 1.0},
            },
        }
        self.received: list[Event] = []
        self.refusals: list[Event] = []
        self.items: list[Event] = []
        self.audio = bytearray()
        self.heard = 0
        self.updated = False
        self.response: Event | None = None
        self.answered: list[str] = []
        self.usage: tuple[int, int] = (20, 10)
        self.deleted: list[str] = []
        self.truncated: dict[str, int] = {}

    @property
    def model(self) -> str:
        """The model's id."""
        return str(self.config["model"])

    def _id(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._number}_{self._count:04}"

    def event(self, kind: str, **fields: Any) -> Event:
        """An event of the server's."""
        return {"type": kind, "event_id": self._id("event"), **fields}

    def created(self) -> Event:
        """The first event of a session."""
        return self.event("session.created", session=self.config)

    # What the client sends.

    def receive(self, frame: str | bytes) -> list[Event]:
        """What is answered to a frame of the client."""
        event: Event = {}
        try:
            event = decoded(frame)
            self.received.append(event)
            check_fields(event)
            return self._handlers()[event["type"]](event)
        except RefusedError as refused:
            return [self.refuse(refused, event.get("event_id"))]

    def refuse(self, refused: RefusedError, event_id: object = None, kind: str = "invalid_request_error") -> Event:
        """An `error` event."""
        error: Event = {
            "type": kind,
            "code": refused.code,
            "message": refused.message,
            "param": refused.param,
            "event_id": event_id,
        }
        self.refusals.append(error)
        return self.event("error", error=error)

    def _handlers(self) -> dict[str, Callable[[Event], list[Event]]]:
        return {
            "session.update": self._update,
            "input_audio_buffer.append": self._append,
            "input_audio_buffer.commit": self._commit,
            "input_audio_buffer.clear": self._clear,
            "output_audio_buffer.clear": self._clear_output,
            "conversation.item.create": self._create,
            "conversation.item.delete": self._delete,
            "conversation.item.retrieve": self._retrieve,
            "conversation.item.truncate": self._truncate,
            "response.create": self._respond,
            "response.cancel": self._cancel,
        }

    def _update(self, event: Event) -> list[Event]:
        session = as_object(event["session"], "session")
        check_session(session, self.model)
        voice = session.get("audio", {}).get("output", {}).get("voice")
        if voice is not None and voice != self.config["audio"]["output"]["voice"] and self._spoken_ms:
            raise RefusedError(
                "cannot_update_voice", "Cannot update a conversation's voice if assistant audio is present.", None
            )
        self.config = _merged(self.config, session)
        self.updated = True
        return [self.event("session.updated", session=self.config)]

    def _append(self, event: Event) -> list[Event]:
        audio = event["audio"]
        if not isinstance(audio, str):
            raise RefusedError("invalid_type", "Invalid type for 'audio': expected a base64-encoded string.", "audio")
        if len(audio) > LONGEST_AUDIO:
            raise RefusedError(
                "string_above_max_length", "Invalid 'audio': string too long. Maximum is 15 MiB.", "audio"
            )
        try:
            sound = b64decode(audio, validate=True)
        except Base64Error as error:
            raise RefusedError(
                "invalid_value",
                "Invalid 'audio'. Expected base64-encoded audio bytes, but got something else.",
                "audio",
            ) from error
        self.audio += sound
        self.heard += len(sound)
        return []

    def _commit(self, _: Event) -> list[Event]:
        rate = BYTES_PER_MS[self.config["audio"]["input"]["format"]["type"]]
        if len(self.audio) < 100 * rate:
            raise RefusedError(
                "input_audio_buffer_commit_empty",
                "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, but buffer only "
                f"has {len(self.audio) / rate:.2f}ms of audio.",
            )
        return self.committed(self._id("item"))

    def _clear(self, _: Event) -> list[Event]:
        self.audio.clear()
        return [self.event("input_audio_buffer.cleared")]

    def _clear_output(self, _: Event) -> list[Event]:
        raise RefusedError("invalid_value", "output_audio_buffer.clear is only supported for WebRTC and SIP.", "type")

    def _create(self, event: Event) -> list[Event]:
        item = as_object(event["item"], "item")
        key = item.get("id")
        if key is not None:
            check_id(key, "item.id")
            if any(other["id"] == key for other in self.items):
                raise RefusedError(
                    "item_create_duplicate_item_id",
                    f"Error adding item: an item with ID '{key}' already exists.",
                    "item.id",
                )
        checked = checked_item(item, {other["call_id"] for other in self.items if other["type"] == "function_call"})
        place = self._place(event.get("previous_item_id"))
        return self._added(
            {"id": key or self._id("item"), "object": "realtime.item", "status": "completed", **checked}, place
        )

    def _place(self, previous: object) -> int:
        if previous is None:
            return len(self.items)
        if previous == "root":
            return 0
        return self._index(previous, "item_create_invalid_previous_item_id", "Error adding item: the previous item") + 1

    def _added(self, item: Event, place: int | None = None) -> list[Event]:
        place = len(self.items) if place is None else place
        previous = self.items[place - 1]["id"] if place else None
        self.items.insert(place, item)
        return [
            self.event("conversation.item.added", previous_item_id=previous, item=item),
            self.event("conversation.item.done", previous_item_id=previous, item=item),
        ]

    def _index(self, item_id: object, code: str, doing: str) -> int:
        for index, item in enumerate(self.items):
            if item["id"] == item_id:
                return index
        raise RefusedError(code, f"{doing} with ID '{item_id}' does not exist.", "item_id")

    def _delete(self, event: Event) -> list[Event]:
        index = self._index(event["item_id"], "item_delete_invalid_item_id", "Error deleting item: the item")
        self.deleted.append(self.items.pop(index)["id"])
        return [self.event("conversation.item.deleted", item_id=event["item_id"])]

    def _retrieve(self, event: Event) -> list[Event]:
        index = self._index(event["item_id"], "item_retrieve_invalid_item_id", "Error retrieving item: the item")
        return [self.event("conversation.item.retrieved", item=self.items[index])]

    def _truncate(self, event: Event) -> list[Event]:
        index = self._index(event["item_id"], "item_truncate_invalid_item_id", "Error truncating item: the item")
        item, end_ms = self.items[index], event["audio_end_ms"]
        length = self._spoken_ms.get(item["id"], 0)
        if item.get("role") != "assistant" or not length:
            raise RefusedError(
                "unsupported_content_type", "Only model output audio messages can be truncated.", "item_id"
            )
        if event["content_index"] != 0:
            raise RefusedError("invalid_value", "Invalid 'content_index': expected 0.", "content_index")
        if not isinstance(end_ms, int) or isinstance(end_ms, bool) or end_ms < 0:
            raise RefusedError("invalid_type", "Invalid type for 'audio_end_ms': expected an integer.", "audio_end_ms")
        if end_ms > length:
            raise RefusedError(
                "invalid_value",
                f"Audio content of {length:.0f}ms is already shorter than {end_ms}ms",
                "audio_end_ms",
            )
        self._spoken_ms[item["id"]] = end_ms
        self.truncated[item["id"]] = end_ms
        item["content"] = [{"type": "output_audio", "transcript": None}]  # the words go, all of them
        fields = {name: event[name] for name in ("item_id", "content_index", "audio_end_ms")}
        return [self.event("conversation.item.truncated", **fields)]

    def _respond(self, event: Event) -> list[Event]:
        asked = as_object(event.get("response", {}), "response")
        check_response(asked)
        if self.response is not None:
            raise RefusedError(
                "conversation_already_has_active_response",
                f"Conversation already has an active response in progress: {self.response['id']}. Wait until the response is "
                "finished before creating a new one.",
            )
        return self.begin(asked.get("metadata"))

    def _cancel(self, event: Event) -> list[Event]:
        wanted = event.get("response_id")
        if self.response is None or (wanted is not None and wanted != self.response["id"]):
            raise RefusedError("response_cancel_not_active", "Cancellation failed: no active response found")
        return self.cancelled("client_cancelled")

    # What happens on the provider's side.

    @property
    def speaks(self) -> bool:
        """Whether answers are spoken."""
        return bool(self.config["output_modalities"] == ["audio"])

    @property
    def detection(self) -> Mapping[str, Any]:
        """How turns are detected; empty: they are not."""
        return self.config["audio"]["input"]["turn_detection"] or {}

    def speech(self) -> tuple[str, list[Event]]:
        """The user begins to speak: the item's id, and the events. Whatever is being answered is cut."""
        item_id, rate = self._id("item"), BYTES_PER_MS[self.config["audio"]["input"]["format"]["type"]]
        begun = max(0, (self.heard - len(self.audio)) // rate)
        events = [self.event("input_audio_buffer.speech_started", audio_start_ms=begun, item_id=item_id)]
        if self.response is not None and self.detection.get("interrupt_response", True):
            events += self.cancelled("turn_detected")
        return item_id, events

    def silence(self, item_id: str) -> list[Event]:
        """The user has finished, and what was said is an item."""
        rate = BYTES_PER_MS[self.config["audio"]["input"]["format"]["type"]]
        stopped = self.event("input_audio_buffer.speech_stopped", audio_end_ms=self.heard // rate, item_id=item_id)
        return [stopped, *self.committed(item_id)]

    def committed(self, item_id: str) -> list[Event]:
        """What was said is an item."""
        self.audio.clear()
        previous = self.items[-1]["id"] if self.items else None
        content = [{"type": "input_audio", "transcript": None}]
        item = {"id": item_id, "object": "realtime.item", "type": "message", "status": "completed", "role": "user"}
        return [
            self.event("input_audio_buffer.committed", item_id=item_id, previous_item_id=previous),
            *self._added({**item, "content": content}),
        ]

    def transcribed(self, item_id: str, text: str, *, failed: bool = False) -> list[Event]:
        """Another model has understood what was said, or not. Nothing, where none was asked to."""
        if self.config["audio"]["input"]["transcription"] is None:
            return []
        kind = "conversation.item.input_audio_transcription"
        at: Event = {"item_id": item_id, "content_index": 0}
        if failed:
            error = {
                "type": "transcription_error",
                "code": "audio_unintelligible",
                "message": "The audio is unintelligible.",
            }
            return [self.event(f"{kind}.failed", error=error, **at)]
        return [
            *(self.event(f"{kind}.delta", delta=word, **at) for word in words(text)),
            self.event(f"{kind}.completed", transcript=text, usage={"type": "duration", "seconds": 1}, **at),
        ]

    def begin(self, metadata: Event | None = None) -> list[Event]:
        """A response begins; `metadata` is what the client gave it, where it asked for it."""
        self.response = {
            "object": "realtime.response",
            "id": self._id("resp"),
            "status": "in_progress",
            "status_details": None,
            "output": [],
            "output_modalities": self.config["output_modalities"],
            "usage": None,
            "metadata": metadata,
        }
        self.answered.append(self.response["id"])
        limits = [
            {"name": "requests", "limit": 1000, "remaining": 999, "reset_seconds": 0.1},
            {"name": "tokens", "limit": 50_000, "remaining": 49_000, "reset_seconds": 0.1},
        ]
        return [
            self.event("response.created", response=dict(self.response)),
            self.event("rate_limits.updated", rate_limits=limits),
        ]

    def cancelled(self, reason: str) -> list[Event]:
        """The response under way is cut."""
        response = self._under_way()
        events = [self._item_done(item, "incomplete") for item in response["output"] if item["status"] == "in_progress"]
        details = {"type": "cancelled", "reason": reason}
        return [*events, self.done("cancelled", details)]

    def failed(self, code: str, message: str, kind: str = "invalid_request_error") -> list[Event]:
        """The response under way fails."""
        error = {"type": kind, "code": code, "message": message}
        return [self.done("failed", {"type": "failed", "error": error})]

    def done(self, status: str = "completed", details: Event | None = None) -> Event:
        """The response under way has ended."""
        response = self._under_way()
        self.response = None
        tokens_in, tokens_out = self.usage
        usage = {
            "total_tokens": tokens_in + tokens_out,
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
            "input_token_details": {"text_tokens": tokens_in, "audio_tokens": 0, "image_tokens": 0, "cached_tokens": 0},
            "output_token_details": {"text_tokens": 0, "audio_tokens": tokens_out},
        }
        ended = {**response, "status": status, "status_details": details, "usage": usage}
        return self.event("response.done", response=ended)

    def _under_way(self) -> Event:
        if self.response is None:
            raise LookupError("no response is under way")
        return self.response

    def answer(self, text: str, seconds: float) -> Iterator[Event]:
        """The events of a message, one by one; the response goes on after them until it is `done`."""
        response = self._under_way()
        item: Event = {"id": self._id("item"), "object": "realtime.item", "type": "message", "status": "in_progress"}
        item |= {"role": "assistant", "content": []}
        yield self._item_begun(item)
        previous = self.items[-1]["id"] if self.items else None
        self.items.append(item)
        yield self.event("conversation.item.added", previous_item_id=previous, item=dict(item))
        at: Event = {
            "response_id": response["id"],
            "item_id": item["id"],
            "output_index": response["output"].index(item),
        }
        at["content_index"] = 0
        if not self.speaks:
            yield self.event("response.content_part.added", part={"type": "text", "text": ""}, **at)
            for word in words(text):
                yield self.event("response.output_text.delta", delta=word, **at)
            yield self.event("response.output_text.done", text=text, **at)
            item["content"] = [{"type": "output_text", "text": text}]
        else:
            yield self.event("response.content_part.added", part={"type": "audio", "transcript": ""}, **at)
            yield from self._spoken(item["id"], text, seconds, at)
            yield self.event("response.output_audio.done", **at)
            yield self.event("response.output_audio_transcript.done", transcript=text, **at)
            item["content"] = [{"type": "output_audio", "transcript": text}]
        yield self.event("response.content_part.done", part=item["content"][0], **at)
        yield self._item_done(item, "completed")
        yield self.event("conversation.item.done", previous_item_id=previous, item=item)

    def _spoken(self, item_id: str, text: str, seconds: float, at: Event) -> Iterator[Event]:
        form = self.config["audio"]["output"]["format"]["type"]
        length_ms, told = round(seconds * 1000), 0
        spoken = words(text)
        for start in range(0, max(length_ms, 1), PIECE_MS):
            ms = min(PIECE_MS, length_ms - start)
            wanted = len(spoken) * (start + PIECE_MS) // max(length_ms, 1)
            while told < min(wanted, len(spoken)):
                yield self.event("response.output_audio_transcript.delta", delta=spoken[told], **at)
                told += 1
            if ms > 0:
                self._spoken_ms[item_id] = self._spoken_ms.get(item_id, 0) + ms
                sound = b64encode(_sound(form, ms)).decode()
                yield self.event("response.output_audio.delta", delta=sound, **at)
        for word in spoken[told:]:
            yield self.event("response.output_audio_transcript.delta", delta=word, **at)

    def calls(self, wanted: list[tuple[str, str]], status: str = "completed") -> Iterator[Event]:
        """The events of calls of tools, as name and arguments; the response goes on after them until it is `done`."""
        response = self._under_way()
        for name, arguments in wanted:
            item: Event = {"id": self._id("item"), "object": "realtime.item", "type": "function_call"}
            item |= {"status": "in_progress", "call_id": self._id("call"), "name": name, "arguments": ""}
            yield self._item_begun(item)
            at: Event = {"response_id": response["id"], "item_id": item["id"], "call_id": item["call_id"]}
            at["output_index"] = response["output"].index(item)
            for start in range(0, len(arguments), 8):
                yield self.event("response.function_call_arguments.delta", delta=arguments[start : start + 8], **at)
            item["arguments"] = arguments
            yield self.event("response.function_call_arguments.done", name=name, arguments=arguments, **at)
            yield self._item_done(item, status)
            yield from self._added(item)

    def _item_begun(self, item: Event) -> Event:
        response = self._under_way()
        response["output"].append(item)
        index = len(response["output"]) - 1
        return self.event("response.output_item.added", response_id=response["id"], output_index=index, item=dict(item))

    def _item_done(self, item: Event, status: str) -> Event:
        response = self._under_way()
        item["status"] = status
        index = response["output"].index(item)
        return self.event("response.output_item.done", response_id=response["id"], output_index=index, item=dict(item))


def words(text: str) -> list[str]:
    """A text word by word, with the blanks between."""
    return re.findall(r"\s*\S+|\s+$", text)


def _sound(form: str, ms: int) -> bytes:
    return b"\x10\x00" * (24 * ms) if form == "audio/pcm" else b"\xd5" * (8 * ms)


def _merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in more.items():
        old = merged.get(key)
        if key in {"audio", "input", "output"} and isinstance(old, dict) and isinstance(value, dict):
            merged[key] = _merged(cast("dict[str, Any]", old), cast("dict[str, Any]", value))
        else:
            merged[key] = value
    return merged
