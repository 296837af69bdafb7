"""Which histories a provider refuses, and how to make them acceptable.

Providers agree on this: a call and its results stand in two neighbouring messages, first the assistant's with the
`toolUse` blocks, then the user's with one `toolResult` for each of them; an id belongs to one call; no message, block or
text is empty. Roles need not alternate: adapters join neighbours of one role where a provider wants that.
"""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.content import ContentBlock, Message, Messages, error_result

INTERRUPTED_TEXT = "Tool was interrupted."
_ROLES = ("user", "assistant")


def problems(messages: Messages) -> list[str]:
    """What a provider would refuse, in order; empty for a legal history.

    >>> problems([{"role": "user", "content": [{"text": ""}]}])
    ['messages[0].content[0]: the text is empty']
    """
    found: list[str] = []
    seen: set[str] = set()
    awaited: list[str] = []
    for index, message in enumerate(messages):
        at, role = f"messages[{index}]", message["role"]
        if role not in _ROLES:
            found.append(f"{at}: the role {role!r} is unknown")
        if not message["content"]:
            found.append(f"{at}: the content is empty")
        answered: list[str] = []
        calls: list[str] = []
        for number, block in enumerate(message["content"]):
            where = f"{at}.content[{number}]"
            if "toolResult" in block:
                key = block["toolResult"]["toolUseId"]
                if role != "user":
                    found.append(f"{where}: the {role} gives the result of {key!r}")
                elif key in answered:
                    found.append(f"{where}: a second result of {key!r}")
                elif key not in awaited:
                    found.append(f"{where}: {key!r} is not a call of the message before it")
                answered.append(key)
            elif "toolUse" in block:
                key = block["toolUse"]["toolUseId"]
                if role != "assistant":
                    found.append(f"{where}: the {role} calls a tool ({key!r})")
                if key in seen:
                    found.append(f"{where}: the id {key!r} is used twice")
                seen.add(key)
                calls.append(key)
            elif _is_empty(block):
                found.append(f"{where}: the {'text' if block else 'block'} is empty")
        found += [f"{at}: no result of {key!r}" for key in awaited if key not in answered]
        awaited = calls
    found += [f"messages[{len(messages) - 1}]: no result of {key!r}" for key in awaited]
    return found


def repair(messages: Messages, *, text: str = INTERRUPTED_TEXT) -> Messages:
    """A history that providers accept: a new list, sharing the messages that need no change.

    A result moves to where its call is; a call without one gets an error result; of two calls with one id the later gets
    another. Results without a call, calls by users, empty texts and messages, and messages of unknown roles are dropped.

    Args:
        messages: Any history; it is left as it is.
        text: What results that are missing say.
    """
    plan = _Plan(messages)
    repaired: Messages = []
    due: list[_Due] = []
    for index, message in enumerate(messages):
        if message["role"] not in _ROLES:
            continue
        here = [entry for entry in due if entry.source is not None and entry.source[0] == index]
        kept = list(plan.kept(index, here))
        if not kept:
            continue
        elsewhere = [plan.result(entry, text) for entry in due if entry not in here]
        if here:
            kept = [*elsewhere, *kept]
        elif elsewhere:
            repaired.append({"role": "user", "content": elsewhere})
        same = len(kept) == len(message["content"]) and all(
            one is other for one, other in zip(kept, message["content"], strict=True)
        )
        repaired.append(message if same else _with(message, kept))
        due = plan.due.get(index, [])
    if due:
        repaired.append({"role": "user", "content": [plan.result(entry, text) for entry in due]})
    return repaired


def without_dangling_tail(messages: Messages) -> Messages:
    """The messages without calls at their end that have no results yet; what was said beside the calls stays.

    A new list; the messages are shared.
    """
    settled = list(messages)
    if settled and has_calls(settled[-1]):
        last = settled.pop()
        if said := [block for block in last["content"] if "toolUse" not in block]:
            settled.append(_with(last, said))
    return settled


def has_calls(message: Message) -> bool:
    """Whether an assistant's message calls tools."""
    return message["role"] == "assistant" and any("toolUse" in block for block in message["content"])


_Place = tuple[int, int]  # message, block


class _Due:
    """A call whose result is still to be placed: the call's id, and where its result stands, if anywhere."""

    __slots__ = ("key", "source")

    def __init__(self, key: str, source: _Place | None) -> None:
        self.key, self.source = key, source


class _Plan:
    """Which result belongs to which call, and how ids that are used twice are told apart."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self.due: dict[int, list[_Due]] = {}
        self._renamed: dict[_Place, str] = {}
        self._claimed: set[_Place] = set()
        calls: dict[str, list[_Place]] = {}
        results: dict[str, list[_Place]] = {}
        for index, message in enumerate(messages):
            for number, block in enumerate(message["content"]):
                if "toolUse" in block and message["role"] == "assistant":
                    calls.setdefault(block["toolUse"]["toolUseId"], []).append((index, number))
                elif "toolResult" in block and message["role"] == "user":
                    results.setdefault(block["toolResult"]["toolUseId"], []).append((index, number))
        taken = set(calls)
        places = sorted((place, key) for key, found in calls.items() for place in found)
        for place, key in places:
            name = key if place == calls[key][0] else _fresh(key, taken)
            later = [other[0] for other in calls[key] if other[0] > place[0]]
            end = min(later, default=len(messages))
            source = next(
                (at for at in results.get(key, ()) if place[0] < at[0] <= end and at not in self._claimed), None
            )
            if source is not None:
                self._claimed.add(source)
            if name != key:
                self._renamed[place] = name
                if source is not None:
                    self._renamed[source] = name
            self.due.setdefault(place[0], []).append(_Due(name, source))

    def kept(self, index: int, here: list[_Due]) -> Iterator[ContentBlock]:
        """The blocks of a message that stay where they are; of results, those in `here`."""
        message = self._messages[index]
        results = {entry.source for entry in here}
        for number, block in enumerate(message["content"]):
            place = (index, number)
            if "toolResult" in block:
                stays = place in results
            elif "toolUse" in block:
                stays = message["role"] == "assistant"
            else:
                stays = not _is_empty(block)
            if stays:
                yield self._named(block, place)

    def result(self, entry: _Due, text: str) -> ContentBlock:
        """The result of a call: moved from where it stood, or an error."""
        if entry.source is None:
            return {"toolResult": error_result(entry.key, text)}
        index, number = entry.source
        return self._named(self._messages[index]["content"][number], entry.source)

    def _named(self, block: ContentBlock, place: _Place) -> ContentBlock:
        name = self._renamed.get(place)
        if name is None:
            return block
        if "toolUse" in block:
            return {"toolUse": {**block["toolUse"], "toolUseId": name}}
        if "toolResult" in block:
            return {"toolResult": {**block["toolResult"], "toolUseId": name}}
        return block


def _fresh(key: str, taken: set[str]) -> str:
    number = 2
    while f"{key}-{number}" in taken:
        number += 1
    taken.add(f"{key}-{number}")
    return f"{key}-{number}"


def _is_empty(block: ContentBlock) -> bool:
    return not block or ("text" in block and not block["text"].strip())


def _with(message: Message, content: list[ContentBlock]) -> Message:
    changed = message.copy()
    changed["content"] = content
    return changed
