"""`antiphon talk`: calls from files and typed lines, in one tree with typed turns."""

import json
import os
import subprocess
import sys
import wave
from importlib.util import find_spec
from pathlib import Path

import pytest

from antiphon.cli.entry import main
from tests.cli.conftest import KINDS

CLIPS = Path(__file__).parents[1] / "audio"


@pytest.fixture
def url(request, make_url, monkeypatch):
    place = make_url(getattr(request, "param", "sqlite"))
    monkeypatch.setenv("ANTIPHON_STORE", place)
    return place


def as_json(capsys, *arguments, code=0):
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("url", KINDS, indirect=True)
def test_a_talk_goes_on_after_typed_turns_and_typed_turns_after_a_talk(url, tmp_path, capsys):
    sound = tmp_path / "answer.wav"
    assert main(["chat", "-s", "ann", "-m", "hello"]) == 0
    capsys.readouterr()
    told = as_json(capsys, "talk", "-s", "ann", "-t", "count to three", "-t", "thanks", "-o", str(sound), "--fast")
    assert [line["text"] for line in told["turn"]] == [
        "count to three",
        "one, two, three.",
        "thanks",
        "You are welcome.",
    ]
    assert [line["spoken"] for line in told["turn"]] == [False, True, False, True]
    with wave.open(str(sound)) as heard:
        assert heard.getnframes() / heard.getframerate() == pytest.approx(told["seconds"], abs=0.01)
    assert main(["chat", "-s", "ann", "-m", "how are you"]) == 0
    capsys.readouterr()
    rows = as_json(capsys, "sessions", "tree", "ann")["rows"]
    assert [(row["mode"], row["messages"], len(row["children"])) for row in rows] == [
        ("text", 2, 1),
        ("text+voice", 4, 1),  # each turn of the talk is a row
        ("text+voice", 6, 1),
        ("text", 8, 0),
    ]


@pytest.mark.realtime
@pytest.mark.skipif(find_spec("pocketsphinx") is None, reason="needs the extra voice")
def test_a_talk_hears_a_file_and_answers_into_one_between_typed_turns(url, tmp_path, capsys):
    assert main(["chat", "-s", "ann", "-m", "hello"]) == 0
    sound = tmp_path / "answer.wav"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "antiphon.cli", "talk", "-s", "ann", "--quiet", "1", "--json"),
            *("-i", str(CLIPS / "flite-go-on.wav"), "-o", str(sound)),
        ],
        capture_output=True,
        env=dict(os.environ),
        timeout=50,
        check=True,
    )
    told = json.loads(done.stdout)
    assert [line["who"] for line in told["turn"]] == ["user", "assistant"]
    assert told["turn"][0] == {"who": "user", "text": "go on", "spoken": True}
    assert told["seconds"] > 0.5
    assert main(["chat", "-s", "ann", "-m", "thanks"]) == 0
    capsys.readouterr()
    rows = as_json(capsys, "sessions", "tree", "ann")["rows"]
    assert [(row["mode"], row["status"], row["messages"]) for row in rows] == [
        ("text", "completed", 2),
        ("voice", "completed", 4),
        ("text", "completed", 6),
    ]
    assert [len(row["children"]) for row in rows] == [1, 1, 0]


@pytest.mark.parametrize(
    "wrong", [[], ["-i", "x.wav", "-t", "hello"], ["-i", "x.wav", "--fast"], ["-t", "hello", "--quiet", "0"]]
)
def test_a_talk_is_either_heard_or_typed(url, tmp_path, wrong, capsys):
    assert main(["talk", "-o", str(tmp_path / "y.wav"), *wrong]) == 2


def test_a_file_that_cannot_be_heard_is_named(url, tmp_path, capsys):
    pytest.importorskip("pocketsphinx")
    assert main(["talk", "-i", str(tmp_path / "none.wav"), "-o", str(tmp_path / "y.wav")]) == 1
    assert "none.wav" in capsys.readouterr().err


def test_a_provider_cannot_be_hurried_and_a_name_that_names_none_is_told(tmp_path, capsys):
    file = str(tmp_path / "heard.wav")
    assert main(["talk", "-o", file, "-t", "hello", "--fast", "--model", "openai:gpt-realtime-2"]) != 0
    assert "--fast is for the embedded model" in " ".join(capsys.readouterr().err.split())
    assert main(["talk", "-o", file, "-t", "hello", "--model", "nobody:x"]) != 0
    assert "no BidiAgent has" in " ".join(capsys.readouterr().err.split())
