"""Grammars from phrases: what may be said is accepted, and nothing else."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.models.embedded.grammar import Choice, Grammar, Optional, build_grammar, normalise

LIGHTS = (
    "Turn",
    Choice("state", ("on", "off")),
    "the",
    Choice("room", ("kitchen", "living room")),
    "lights",
    Optional("please"),
)
ALARM = ("wake me at", Choice("hour", ("7", "8", "42")), Optional(("called", Choice("label", ("work", "gym")))))

WORD = st.sampled_from(["set", "an", "alarm", "for", "two", "o'clock", "in", "the", "hall"])
WORDS = st.lists(WORD, min_size=1, max_size=3).map(" ".join)
CHOICE = st.builds(Choice, st.just("any"), st.lists(WORDS, min_size=1, max_size=3).map(tuple))
PLAIN = st.one_of(WORDS, CHOICE)
OPTIONAL = st.builds(Optional, st.one_of(WORDS, st.lists(PLAIN, min_size=1, max_size=2).map(tuple)))
PHRASE = st.tuples(WORDS, st.lists(st.one_of(PLAIN, OPTIONAL), max_size=4)).map(lambda parts: (parts[0], *parts[1]))


def sentences(phrase):
    """Everything that a phrase allows, by its definition."""
    ways = []
    for part in phrase:
        match part:
            case Choice(_, options):
                ways.append([option.split() for option in options])
            case Optional(words):
                inner = (words,) if isinstance(words, str) else words
                ways.append([[], *sentences(inner)])
            case _:
                ways.append([part.split()])
    return [list(itertools.chain(*way)) for way in itertools.product(*ways)]


@given(st.lists(PHRASE, min_size=1, max_size=3))
def test_a_grammar_accepts_what_its_phrases_allow_and_nothing_else(phrases):
    grammar = build_grammar(phrases)
    allowed = {" ".join(words) for phrase in phrases for words in sentences(phrase)}
    assert all(grammar.accepts(text) for text in itertools.islice(sorted(allowed), 50))
    for text in itertools.islice(sorted(allowed), 50):
        assert grammar.accepts(text + " now") is False
        assert grammar.accepts("now " + text) is False
        shorter = text.rpartition(" ")[0]
        assert grammar.accepts(shorter) is (shorter in allowed)


def test_phrases_are_written_as_one_jsgf_rule_with_a_rule_for_each_choice():
    assert build_grammar([LIGHTS, ("stop",)]).jsgf == (
        "#JSGF V1.0;\ngrammar antiphon;\n"
        "<state0> = on | off;\n<room1> = kitchen | living room;\n"
        "public <sentence> =\n    turn <state0> the <room1> lights [ please ] |\n    stop;\n"
    )


def test_choices_with_the_same_options_share_a_rule():
    grammar = build_grammar([LIGHTS, ("dim the", Choice("place", ("kitchen", "living room")))])
    assert grammar.jsgf.count("kitchen") == 1


def test_numbers_are_spelled_and_optional_parts_may_hold_choices():
    grammar = build_grammar([ALARM])
    assert "seven | eight | forty two" in grammar.jsgf
    assert grammar.accepts("Wake me at 7, called gym!")
    assert grammar.accepts("wake me at forty two")
    assert not grammar.accepts("wake me at forty")
    assert not grammar.accepts("wake me at 7 called")


def test_options_with_unknown_words_are_left_out_and_reported():
    grammar = build_grammar(
        [LIGHTS, ("open the", Choice("thing", ("zorgblat",))), ("start the flimflam",), ("stop", Optional("zorgblat"))],
        knows={"turn", "on", "off", "the", "kitchen", "lights", "please", "stop", "room", "open", "start"}.__contains__,
    )
    assert grammar.unknown == ("living", "zorgblat", "flimflam")
    assert grammar.accepts("turn on the kitchen lights")
    assert grammar.accepts("stop")
    assert not grammar.accepts("turn on the living room lights")
    assert len(grammar.phrases) == 2


def test_a_phrase_that_silence_would_fulfil_is_left_out():
    assert build_grammar([(), ("",), (Optional("please"),), ("...",)]) == Grammar(())


def test_a_grammar_of_nothing_accepts_nothing():
    assert build_grammar([]).jsgf == ""
    assert not build_grammar([]).accepts("")
    assert not build_grammar([("stop",)]).accepts("")


@given(st.text(max_size=40))
def test_normalised_text_has_only_letters_and_apostrophes_and_stays_as_it_is(text):
    once = normalise(text)
    assert re.fullmatch(r"(?:[a-z']+(?: [a-z']+)*)?", once)
    assert normalise(once) == once


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Book a table for 12!", "book a table for twelve"),
        ("at 7:30", "at seven thirty"),
        ("at 19:00", "at nineteen o'clock"),
        ("room 007", "room zero zero seven"),
        ("mp3 player", "mp three player"),
        ("'quoted' don’t", "quoted don't"),
        ("call 123456", "call one two three four five six"),
    ],
)
def test_a_text_is_normalised_to_what_is_said(written, said):
    assert normalise(written) == said
