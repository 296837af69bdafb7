from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.models.embedded import stream, talk, words
from antiphon.models.embedded.stream import word_pieces
from antiphon.models.embedded.words import Utterance, spoken_number


@given(st.integers(0, 9999))
def test_a_number_in_words_is_that_number(value):
    assert [span.value for span in Utterance(spoken_number(value)).numbers] == [value]


@pytest.mark.parametrize(
    ("text", "hour", "minute"),
    [
        ("at seven", 7, 0),
        ("seven o'clock", 7, 0),
        ("at seven thirty", 7, 30),
        ("half past seven", 7, 30),
        ("quarter to eight in the evening", 19, 45),
        ("quarter past 6 pm", 18, 15),
        ("19:05", 19, 5),
        ("7 p.m.", 19, 0),
        ("7pm", 19, 0),
        ("12 am", 0, 0),
        ("noon", 12, 0),
        ("midnight", 0, 0),
        ("eight tonight", 20, 0),
    ],
)
def test_times_of_day_are_understood(text, hour, minute):
    [time] = Utterance(text).times
    assert (time.hour, time.minute) == (hour, minute)


@given(st.text())
def test_the_pieces_of_a_text_are_the_text(text):
    assert "".join(word_pieces(text)) == text


@pytest.mark.parametrize("module", [words, talk, stream])
def test_the_examples_in_the_documentation_hold(module):
    assert doctest.testmod(module).failed == 0
