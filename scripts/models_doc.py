"""Writes docs/models.md from what the suites of models hold; with `--check`, says whether the page is up to date.

A column is a subclass of `ModelContract` or `BidiModelContract` with a `provider_name`; what it cannot do is in its `lacks`, and
all else is tested.
"""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from antiphon.testing import BidiModelContract, ModelContract  # noqa: E402 - `tests` is found from the root only

PAGE = ROOT / "docs" / "models.md"

INTRODUCTION = """\
# Models

Written by `make docs` from the suites that every model passes (`antiphon.testing.ModelContract`,
`antiphon.testing.BidiModelContract`): change `tests/models/`.

A model is an object, or a name:

| name | for `Agent` | for `BidiAgent` | extra |
|---|---|---|---|
| `openai:MODEL` | [`OpenAIModel`](models/openai.md) | [`OpenAIRealtimeModel`](models/openai_realtime.md) | `openai` |
| `openai-responses:MODEL` | [`OpenAIResponsesModel`](models/openai.md#the-responses-api) | | `openai` |
| `anthropic:MODEL` | [`AnthropicModel`](models/anthropic.md) | | `anthropic` |
| `google:MODEL` | [`GeminiModel`](models/gemini.md) | [`GoogleGeminiLiveModel`](models/gemini_live.md) | `google` |
| `bedrock:MODEL`, `MODEL` | [`BedrockModel`](models/bedrock.md) | [`BedrockNovaSonicModel`](models/nova_sonic.md) | `bedrock` |
| `llamacpp:FILE.gguf`, `llamacpp` | [`LlamaCppModel`](models/local.md) | | `llm` |
| `embedded` | `EmbeddedModel` | [`EmbeddedBidiModel`](voice.md) | |

`gemini:` is `google:`. Only ids and ARNs of Bedrock's may stand alone; any other name is refused, with the list of forms. What is
not in a name (keys, parameters, other addresses) is given to an object.
No name at all means Bedrock: `Agent()` asks a Claude, `BidiAgent()` talks through Nova 2 Sonic.

A session that one provider began is gone on with by any other, of either kind, since the history is in the session. There is one
exception: `OpenAIResponsesModel(stateful=True)` leaves the history at OpenAI, and the session has the newest messages only.
Such a session cannot go on with another model without losing what was said before, also with `keep_history=True` (that
copy is for OpenAI, should it lose its own); a warning in the log says so. Choose it for sessions that stay.

Every provider is tested against a loopback server of `antiphon.testing.servers`, which keeps the provider's rules and answers by
a script; [your own tests](testing.md#a-server-for-a-provider) may use the same. `tests/live/` runs talks with the real services
where their keys are in the environment. For a model of your own, subclass [`Model`](agents.md#a-model-of-your-own) or
[`BidiModel`](voice.md#a-model-of-your-own), and run [its suite](testing.md#a-model-of-your-own).

`yes`: the suite tests it. Otherwise a number leads to the reason below the table.
"""

ROWS = {
    "usage": "counts tokens",
    "tools": "calls tools",
    "parallel_tools": "calls several at once",
    "images": "takes pictures",
    "reasoning": "tells its reasoning, and takes it back",
    "user_transcripts": "writes down what the user says",
    "late_transcripts": "puts words that are understood late where they were said",
    "replay": "is told the conversation by a new process",
    "expiry": "goes on over a new connection when the time is up",
    "warning": "says that a connection is about to end",
    "held_answers": "is spoken over, typed to and cut off in the middle of an answer",
    "talking_beside_tools": "talks while tools work",
    "max_tokens": "says that an answer was cut by its limit",
    "throttling": "is asked again after it was crowded",
    "overflow": "says that a conversation is too long",
    "breaks": "tells a line that breaks from an answer that ends",
    "holding": "is let go of in the middle of an answer",
    "credentials": "names a wrong key",
    "model_names": "names an unknown model",
    "network": "says that it cannot be reached",
}


def suites(base: type) -> dict[str, Any]:
    """Every provider's suite, by its name."""
    for path in sorted((ROOT / "tests" / "models").rglob("test_*.py")):
        if base.__name__ in path.read_text(encoding="utf-8"):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found = {suite.__dict__.get("provider_name"): suite for suite in base.__subclasses__()}
    return {name: found[name] for name in sorted(name for name in found if name)}


def table(title: str, base: type, asked: str) -> str:
    """One table, with the reasons below it."""
    columns = suites(base)
    reasons: list[str] = []
    lines = [f"\n## {title}\n", "| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for capability, words in ROWS.items():
        if f'"{capability}"' not in asked:
            continue
        cells = []
        for name, suite in columns.items():
            reason = suite.lacks.get(capability)
            if reason is None:
                cells.append("yes")
                continue
            told = f"{name}: {reason}."
            if told not in reasons:
                reasons.append(told)
            cells.append(f"no ({reasons.index(told) + 1})")
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))]).rstrip() + "\n"


def page() -> str:
    """The whole page."""
    suite = ROOT / "src" / "antiphon" / "testing" / "model_suite"
    live = "".join((suite / f"{name}.py").read_text(encoding="utf-8") for name in ("live", "held", "owed", "sharing"))
    turns = (suite / "turns.py").read_text(encoding="utf-8")
    return (
        INTRODUCTION
        + table("Models that talk", BidiModelContract, live)
        + table("Models that answer in turns", ModelContract, turns)
    )


def main() -> int:
    """Writes or checks the page; the exit code says whether it was up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is out of date")
    wanted = page()
    if parser.parse_args().check:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == wanted:
            return 0
        print(f"docs/{PAGE.name} is out of date: run `make docs`", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
