"""Keys come from where they may, and are told to nobody."""

import pytest

from antiphon.errors import InvalidInputError, ModelCredentialsError
from antiphon.models.endpoint import KeySource, address_of, checked_url, retry_after_of, unreachable, without_key
from antiphon.testing import VirtualClock


async def test_a_key_that_is_given_goes_before_one_of_the_environment():
    assert await KeySource("mine", names=["A_KEY"], environ={"A_KEY": "theirs"}).current() == "mine"


async def test_the_first_variable_that_is_set_is_taken():
    environ = {"A_KEY": " ", "B_KEY": "b\n", "C_KEY": "c"}
    assert await KeySource(None, names=["A_KEY", "B_KEY", "C_KEY"], environ=environ).current() == "b"


def test_without_a_key_the_error_names_where_one_may_stand():
    with pytest.raises(ModelCredentialsError, match="A_KEY or B_KEY"):
        KeySource(None, names=["A_KEY", "B_KEY"], environ={})


async def test_a_function_is_asked_for_each_attempt():
    keys = iter(["one", "two"])
    source = KeySource(lambda: next(keys), names=["A_KEY"], environ={})
    assert [await source.current(), await source.current()] == ["one", "two"]


async def test_a_function_may_be_asynchronous():
    async def key():
        return "fresh"

    assert await KeySource(key, names=["A_KEY"], environ={}).current() == "fresh"


async def test_a_function_without_a_key_is_an_error_of_credentials():
    with pytest.raises(ModelCredentialsError, match="gave no key"):
        await KeySource(lambda: "", names=["A_KEY"], environ={}).current()


def test_a_key_that_cannot_be_one_is_refused_without_being_told():
    with pytest.raises(ModelCredentialsError) as caught:
        KeySource("sec\nret", names=["A_KEY"], environ={})
    assert "sec" not in str(caught.value)


def test_a_key_is_not_in_the_repr():
    assert "secret" not in repr(KeySource("secret", names=["A_KEY"], environ={}))


def test_an_address_tells_no_password():
    assert address_of("https://me:secret@example.org:8/v1/?key=secret") == "https://example.org:8/v1"
    assert without_key("no such key: sk-secret", "sk-secret") == "no such key: ***"


def test_a_base_url_without_a_scheme_is_refused():
    with pytest.raises(InvalidInputError, match=r"example\.org"):
        checked_url("example.org")


def test_the_wait_may_be_a_number_or_a_date_or_nonsense():
    clock = VirtualClock()  # it begins with the year 2026
    assert retry_after_of("12", clock) == 12
    assert retry_after_of("Thu, 01 Jan 2026 00:00:30 GMT", clock) == 30
    assert retry_after_of("Wed, 31 Dec 2025 00:00:00 GMT", clock) == 0
    assert retry_after_of("soon", clock) is None
    assert retry_after_of(None, clock) is None


def test_a_failure_of_the_network_names_its_origin_and_passes():
    outer = RuntimeError("Connection error.")
    outer.__cause__ = OSError("connection refused")
    error = unreachable(outer, "http://127.0.0.1:9", "secret")
    assert error.passing
    assert "connection refused" in str(error)
