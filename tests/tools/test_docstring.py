"""What is read out of a docstring."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.tools.docstring import read_docstring

GOOGLE = """Book a seat.

    Seats are counted from the stage.

    Args:
        row: The row,
            counted from the stage.
        seat (int, optional): The seat: left to right.
        *names: For whom.
        **notes (dict[str, str]): What else.
        quiet:
            Whether to tell nobody.

    Returns:
        The number of the booking.

    Examples:
        book row 5 seat 12
    """

NUMPY = """Book a seat.

    Seats are counted from the stage.

    Parameters
    ----------
    row : int
        The row,
        counted from the stage.
    seat : int, optional
        The seat: left to right.
    *names
        For whom.
    **notes : dict
        What else.
    quiet : bool, default False
        Whether to tell nobody.

    Returns
    -------
    int
        The number of the booking.

    Examples
    --------
    book row 5 seat 12
    """

SPHINX = """Book a seat.

    Seats are counted from the stage.

    :param row: The row,
        counted from the stage.
    :param int seat: The seat: left to right.
    :type row: int
    :param names: For whom.
    :param notes: What else.
    :keyword quiet: Whether to tell nobody.
    :returns: The number of the booking.

    Examples: book row 5 seat 12
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX])
def test_every_style_tells_the_same_of_the_arguments(docstring):
    assert read_docstring(docstring).arguments == {
        "row": "The row, counted from the stage.",
        "seat": "The seat: left to right.",
        "names": "For whom.",
        "notes": "What else.",
        "quiet": "Whether to tell nobody.",
    }


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX])
def test_everything_else_is_kept_the_examples_too(docstring):
    text = read_docstring(docstring).text
    assert text.startswith("Book a seat.\n\nSeats are counted from the stage.\n\n")
    assert "The number of the booking." in text
    assert "Examples" in text
    assert text.endswith("book row 5 seat 12")
    assert "\n\n\n" not in text
    for gone in ("row:", "row :", "left to right", "For whom", "Args", "Parameters", "quiet"):
        assert gone not in text


def test_a_section_ends_where_the_text_is_no_longer_indented():
    found = read_docstring(
        "Do it.\n\nArgs:\n    a: One.\n\n    b: Two.\nAfterwards it rests.\nNote: a: not an argument."
    )
    assert found.arguments == {"a": "One.", "b": "Two."}
    assert found.text == "Do it.\n\nAfterwards it rests.\nNote: a: not an argument."


def test_types_with_brackets_and_colons_in_descriptions_are_understood():
    found = read_docstring("Do it.\n\nArgs:\n    a (Callable[[int], str] (or None)): At 10:30.\n    b: See: below.")
    assert found.arguments == {"a": "At 10:30.", "b": "See: below."}


def test_words_that_belong_to_no_argument_are_dropped_and_nothing_else_is():
    found = read_docstring("Do it.\n\nArgs:\n    Free words here\n    a: One.")
    assert found.arguments == {"a": "One."}
    assert found.text == "Do it."


def test_no_docstring_says_nothing():
    for empty in (None, "", "   \n  "):
        found = read_docstring(empty)
        assert (found.text, found.arguments) == ("", {})


@given(st.text(alphabet=st.sampled_from("ab:- \n*()[]ArgsParameters"), max_size=200))
def test_any_text_can_be_read(text):
    found = read_docstring(text)
    assert found.text == found.text.strip()
    assert all(words and "\n" not in words for words in found.arguments.values())


words = st.text(alphabet="abc xyz", min_size=1, max_size=20).map(lambda text: " ".join(text.split())).filter(bool)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), words, min_size=1, max_size=5), words)
def test_what_is_written_in_google_style_is_read_back(arguments, summary):
    lines = [
        summary,
        "",
        "Args:",
        *(f"    {name}: {text}" for name, text in arguments.items()),
        "",
        "Raises:",
        "    X: y",
    ]
    found = read_docstring("\n".join(lines))
    assert found.arguments == arguments
    assert found.text == f"{summary}\n\nRaises:\n    X: y"
