import pytest

from openradial.errors import FetchError


def unavailable():
    raise FetchError("letters cannot be obtained")


def test_a_set_that_cannot_be_had_skips_the_test(fetched, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="letters cannot be obtained"):
        fetched(unavailable)


def test_in_ci_it_fails_the_test(fetched, monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(FetchError, match="letters cannot be obtained"):
        fetched(unavailable)


def test_a_set_that_can_be_had_is_returned(fetched):
    assert fetched(int, "12", base=3) == 5
