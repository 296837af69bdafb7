"""What the embedded model says besides calling tools: small talk, stories, counting, and results in sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, cast

from antiphon.content import ToolResult
from antiphon.models.embedded.slots import Slot, Tool
from antiphon.models.embedded.words import Utterance, name_words, spoken_number

_ECHO_WORDS = 12
_SPOKEN_CHARACTERS = 400

STOP = re.compile(
    r"(?:please )?(?:stop|stop it|stop talking|stop that|cancel|cancel that|cancel it|never ?mind|forget it|quiet|be quiet|"
    r"shut up|enough|that's enough|that is enough|no thanks|no thank you|wait|hold on|leave it)(?: please| now)?"
)
GO_ON = re.compile(r"(?:please )?(?:go on|continue|carry on|keep going|go ahead|and then|what then|resume)(?: please)?")
REPEAT = re.compile(
    r"(?:please )?(?:repeat(?: that| it)?|say (?:that|it) again|again|pardon|sorry|what did you say|come again)(?: please)?"
)
_SMALL_TALK: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), answer)
    for pattern, answer in (
        (r"(?:hello|hi|hey|hello there|hi there|good day|greetings)", "Hello! What can I do for you?"),
        (r"good (morning|afternoon|evening)", "Good {0}! What can I do for you?"),
        (
            r"(?:thank you|thanks|thank you very much|thanks a lot|many thanks|great|perfect|wonderful)",
            "You are welcome.",
        ),
        (r"(?:goodbye|bye|bye bye|good night|see you|see you later)", "Goodbye!"),
        (r"(?:how are you|how are you doing|how do you do)", "I am well, thank you. What can I do for you?"),
        (
            r"(?:who are you|what are you|what is your name|what's your name)",
            "I am the embedded model: a few rules, no network. Ask me what I can do.",
        ),
        (r"(?:yes|yeah|yep|no|nope|okay|ok|right|good|fine|all right)", "All right."),
    )
)
_HELP = re.compile(r"(?:help|help me|what can you do|what can i say|what do you do|what can i ask)")
_STORY = re.compile(r"\b(?:story|fairy tale|tale)\b(?: about| of)?(?: the| a| an)?\s*(.*)")
_COUNT = re.compile(r"^count(?: up)? (?:from .* )?to\b")


def plain(text: str) -> str:
    """An utterance in lower case, without marks and without what is said out of politeness."""
    words = [word for word in Utterance(text).words if word not in {"please", "um", "uh"}]
    return " ".join(words)


def small_talk(text: str, tools: Sequence[Tool]) -> str | None:
    """The answer to what needs no tool; None when it is nothing of the kind."""
    said = plain(text)
    full = " ".join(word.lower().replace("’", "'") for word in re.findall(r"[^\W\d_]+(?:['’][^\W\d_]+)*", text))
    for form in (full, said):
        for pattern, answer in _SMALL_TALK:
            if found := pattern.fullmatch(form):
                return answer.format(*found.groups())
        if _HELP.fullmatch(form):
            return abilities(tools)
    utterance = Utterance(text)
    if _COUNT.search(said) and utterance.numbers:
        return count(utterance.numbers[-1].value, utterance.numbers[0].value if len(utterance.numbers) > 1 else 1)
    found = _STORY.search(said)
    if found and re.match(r"(?:tell|read|make up|i want|a |another|short|long|story|give)", said):
        return story(found[1])
    return None


def abilities(tools: Sequence[Tool]) -> str:
    """What can be asked for."""
    names = [tool.spoken for tool in tools if tool.sayable]
    if not names:
        return "I can tell a story and count. I have no tools."
    return f"I can {joined(names)}. I can also tell a story and count."


def not_understood(text: str, tools: Sequence[Tool]) -> str:
    """The answer to what is nothing of ours: what was understood, and what can be done."""
    words = text.split()
    heard = " ".join(words[:_ECHO_WORDS]).strip().rstrip(".!?,;:") + (" and so on" if len(words) > _ECHO_WORDS else "")
    return f'I heard: "{heard}". I cannot help with that. {abilities(tools)}'


def count(last: float, first: float = 1) -> str:
    """Numbers from one to another, at most a hundred of them."""
    start, end = int(first), int(last)
    step = 1 if end >= start else -1
    numbers = list(range(start, end + step, step))[:100]
    return ", ".join(spoken_number(number) if number >= 0 else str(number) for number in numbers) + "."


def story(about: str) -> str:
    """A story, always the same one for the same subject."""
    hero = re.sub(r"\b(?:for me|to me|now)\b", "", about).strip() or "fox"
    name = "an" if hero[0] in "aeiou" else "a"
    return (
        f"Once upon a time there was {name} {hero} who lived at the edge of a quiet valley. "
        f"Every morning the {hero} walked down to the river and listened to the water. "
        "One day the river was silent, and nobody knew why. "
        f"So the {hero} followed the dry bed up into the hills, past seven old oaks and three sleeping stones. "
        "At the spring sat a small bird that had lost its song and had stopped the water with its sorrow. "
        f"The {hero} sat down beside it and hummed the only tune that came to mind. "
        "The bird tried one note, and then another, and with the third the water began to run again. "
        f"Ever since, the valley has had a song in the morning, and the {hero} has had a friend. "
        "And that is the end of the story."
    )


_QUESTIONS = (
    "Which ",
    "On or off?",
    "Yes or no:",
    "At what ",
    "On which day?",
    "For how many ",
    "What ",
    "In which city?",
    "Where?",
    "It must be between ",
    "That is not possible.",
    "I did not get that.",
)


def may_be_question(text: str) -> bool:
    """Whether a text may be a question of ours, or the beginning of one; cheap."""
    return any(text.startswith(start) or start.startswith(text) for start in _QUESTIONS)


def question(slot: Slot, *, refused: bool = False) -> str:
    """The question for a value that is missing, or that cannot be."""
    words = set(name_words(slot.name))
    name = slot.spoken
    if slot.kind == "choice":
        asked = f"Which {name}: {joined([str(choice.value).replace('_', ' ') for choice in slot.choices], 'or')}?"
    elif slot.kind == "boolean":
        asked = "On or off?" if words & {"on", "off", "state", "enabled", "power"} else f"Yes or no: {name}?"
    elif slot.kind == "time":
        asked = "At what time?"
    elif slot.kind == "hour":
        asked = "At what hour?"
    elif slot.kind == "date":
        asked = "On which day?"
    elif words & {"people", "persons", "guests", "seats", "size", "party"} and slot.kind == "integer":
        asked = "For how many people?"
    elif slot.kind in {"integer", "number"}:
        asked = f"What number for {name}?"
    elif words & {"city", "town"}:
        asked = "In which city?"
    elif words & {"place", "location", "destination"}:
        asked = "Where?"
    else:
        asked = f"What {name}?"
    if refused and slot.minimum is not None and slot.maximum is not None:
        return f"It must be between {slot.minimum:g} and {slot.maximum:g}. {asked}"
    if refused:
        return f"That is not possible. {asked}"
    return asked


def joined(items: Sequence[str], last: str = "and") -> str:
    """Items as they are read out.

    >>> joined(["tea", "milk", "sugar"])
    'tea, milk and sugar'
    """
    return f"{', '.join(items[:-1])} {last} {items[-1]}" if len(items) > 1 else "".join(items)


def say_result(result: ToolResult, name: str) -> str:
    """What a tool call came to, as a sentence or two.

    Args:
        result: The result.
        name: The tool's name, or nothing when it is unknown.
    """
    spoken = " ".join(name_words(name)) or "the tool"
    parts = [_say_block(block, spoken) for block in result["content"]]
    told = " ".join(part for part in parts if part)
    if result["status"] == "error":
        return f"Sorry, {spoken} did not work. {_sentence(told)}".strip()
    return _sentence(told) if told else "Done."


def _say_block(block: dict[str, Any], spoken: str) -> str:
    if "json" in block:
        return _say_value(block["json"], spoken)
    if "text" in block:
        text = str(block["text"]).strip()
        try:
            value = json.loads(text)
        except ValueError:
            return _say_value(text, spoken)
        return _say_value(value, spoken)
    return f"{spoken} gave something that I cannot read out." if block else ""


def _say_value(value: Any, spoken: str) -> str:
    if (
        value is None
        or value is True
        or (isinstance(value, str) and value.lower() in {"", "ok", "okay", "done", "none"})
    ):
        return "Done."
    if value is False:
        return "The answer is no."
    if isinstance(value, (dict, list)):
        if not value:
            return "There is nothing."
        return _sentence(f"{spoken}: {_flat(value)}")
    text = str(value)
    return text if isinstance(value, str) and " " in text else f"The answer is {text}."


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return joined([f"{' '.join(name_words(str(key)))} {_flat(item)}" for key, item in fields.items()])
    if isinstance(value, list):
        return joined([_flat(item) for item in cast("Sequence[Any]", value)])
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value is None else str(value)


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    if len(text) > _SPOKEN_CHARACTERS:
        text = text[:_SPOKEN_CHARACTERS].rsplit(" ", 1)[0] + ", and more"
    if not text:
        return text
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?" else text + "."
