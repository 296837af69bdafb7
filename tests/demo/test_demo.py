"""The demo: what it shows, what it measures, and how it fails."""

import json
import subprocess
import sys
import wave
from array import array

import pytest

from antiphon.audio import pcm_bytes, silence, wav_header
from antiphon.demo.__main__ import main
from antiphon.demo.director import Watched, _latencies, _silences
from antiphon.demo.lines import BOOKING, GO_ON, LIGHTS, STOP, STORY, WEATHER, find_clips, speech_in
from antiphon.demo.news import Claims, read_news
from antiphon.demo.screen import draw_tree, paint, shortened
from antiphon.errors import AudioFileError
from antiphon.session.tree import SessionTree, SnapshotNode


@pytest.mark.realtime
@pytest.mark.timeout(120)
def test_the_demo_in_text_shows_every_part_and_keeps_every_claim(tmp_path):
    folder = tmp_path / "demo"
    done = subprocess.run(
        [sys.executable, "-m", "antiphon.demo", "--text", "--json", "--dir", str(folder)],
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    claims = shown["figures"]["claims"]
    assert len(claims) > 10
    assert all(claim["holds"] for claim in claims)
    root, resumed, branched, latest = shown["tree"]
    assert root["parent_id"] is None
    assert resumed["parent_id"] == branched["parent_id"] == root["snapshot_id"]
    assert latest["snapshot_id"] is None
    assert latest["parent_id"] == branched["snapshot_id"]
    for name in ("cold_start_ms", "restore_ms", "end_of_speech_to_first_sound_ms", "barge_in_to_silence_ms"):
        assert shown["figures"][name]
        assert all(value > 0 for value in shown["figures"][name])
    assert 0 <= shown["figures"]["heard_words_lost_ms"] <= 250
    assert shown["figures"]["bytes_saved"] > 1000
    assert shown["figures"]["seconds"] < 60
    for part in ("SIGKILL", "heard", "cut", "under way", "barge-in", "rewound", "all claims hold"):
        assert part in done.stderr
    for recording in ("1-first-call", "2-next-call", "3-branch"):
        with wave.open(str(folder / f"{recording}.wav")) as heard:
            assert heard.getnframes() > 0


def test_a_folder_with_something_in_it_is_refused(tmp_path, capsys):
    (tmp_path / "mine").touch()
    assert main(["--text", "--dir", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_clips_that_are_not_there_are_named_with_a_way_out(tmp_path):
    with pytest.raises(AudioFileError, match=r"no clips in .*--text"):
        find_clips(tmp_path)


def test_every_line_of_the_user_is_a_clip_in_the_repository():
    clips = find_clips(None)
    for line in (BOOKING, GO_ON, LIGHTS, STOP, STORY, WEATHER):
        speech = speech_in(clips / line.clip)
        assert 0 < speech.start < speech.end <= speech.length


def test_where_speech_lies_in_a_clip_is_found(tmp_path):
    buzz = pcm_bytes(array("h", [9000 if index // 40 % 2 else -9000 for index in range(16000)]))
    sound = silence(500, 16000) + buzz + silence(700, 16000)
    (tmp_path / "clip.wav").write_bytes(wav_header(len(sound), 16000) + sound)
    speech = speech_in(tmp_path / "clip.wav")
    assert (speech.start, speech.end, speech.length) == pytest.approx((0.5, 1.5, 2.2), abs=0.06)


def test_latency_is_counted_from_the_end_of_a_wish_to_its_own_answer():
    watched = Watched(0.0)
    watched.news += [
        {"what": "spoken", "started": 1.0, "ended": 2.0},
        {"what": "sound", "at": 2.5},
        {"what": "spoken", "started": 4.0, "ended": 5.0},  # nobody answers
        {"what": "sound", "at": 7.25},
        {"what": "spoken", "started": 6.0, "ended": 7.0},
        {"what": "barge_in", "at": 6.1},
    ]
    assert _latencies(watched) == pytest.approx([500, 250])
    assert _silences(watched) == pytest.approx([100])


def test_one_claim_that_does_not_hold_is_a_failure(capsys):
    claims = Claims()
    claims.claim("water is wet", holds=True)
    assert claims.exit_code == 0
    claims.claim("fire is cold", holds=False)
    assert claims.exit_code == 1
    told = [read_news(line.encode()) for line in capsys.readouterr().out.splitlines()]
    assert [news["holds"] for news in told] == [True, False]


def test_what_is_no_news_is_noise():
    assert read_news(b"Traceback: \xff\n") == {"what": "noise", "text": "Traceback: \ufffd"}
    assert read_news(b"[1]\n") == {"what": "noise", "text": "[1]"}


def node(number: int, parent: int | None, words: str, *, latest: bool = False) -> SnapshotNode:
    return SnapshotNode(
        None if latest else f"0000000{number}",
        None if parent is None else f"0000000{parent}",
        "2026-01-02T03:04:05.000000Z",
        number,
        words,
        1000 * number,
    )


def test_a_tree_is_drawn_with_each_snapshot_below_the_one_it_descends_from():
    nodes = (node(1, None, "one"), node(2, 1, "two"), node(3, 2, "three"), node(4, 1, "four"))
    drawn = draw_tree(SessionTree("s", "a", nodes, node(5, 4, "now", latest=True)), colour=False)
    assert [line[:9].rstrip() for line in drawn.splitlines()] == [
        "session s",
        "●      …0",
        "├─●    …0",
        "│ ╰─●  …0",
        "╰─●    …0",
        "  ╰─◇  la",
    ]
    assert "“three”" in drawn.splitlines()[3]


def test_a_session_without_checkpoints_is_drawn_as_its_latest_snapshot():
    drawn = draw_tree(SessionTree("s", "a", (), node(1, None, "now", latest=True)), colour=False)
    assert drawn.splitlines()[1].startswith("◇")


def test_colours_are_only_for_terminals():
    assert paint("x", "red", colour=False) == "x"
    assert paint("x", "red", colour=True) == "\x1b[31mx\x1b[0m"
    assert shortened("a  b\nc") == "a b c"
