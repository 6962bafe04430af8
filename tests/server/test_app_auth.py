import pytest
from asking import ask, call
from made_bundles import image_bundle, point_bundle, sequence_bundle, table_bundle, text_bundle

from openradial.errors import OptionError
from openradial.server import settings

IMAGES, POINTS, SEQUENCES, TABLE, TEXTS = (
    make() for make in (image_bundle, point_bundle, sequence_bundle, table_bundle, text_bundle)
)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "secret"}, 401),
        ({"Authorization": "Bearer secret2"}, 401),
        ({"Authorization": "Bearer secret"}, 200),
    ],
)
@pytest.mark.parametrize("path", ["/v1/model", "/metrics"])
def test_a_token_opens_the_service(header, status, path, make_service):
    answer = ask(make_service(POINTS, token="secret"), call(path, "GET", headers=header))[0]
    assert answer.status_code == status
    if status == 401:
        assert answer.json()["error"] == "this service needs a token; send the header Authorization: Bearer ..."
        assert answer.headers["www-authenticate"] == "Bearer"


def test_health_needs_no_token(make_service):
    service = make_service(POINTS, token="secret")
    assert [one.status_code for one in ask(service, call("/healthz", "GET"), call("/readyz", "GET"))] == [200, 200]
    assert ask(service, call(json={"inputs": [[1, 2]]}))[0].status_code == 401


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_loopback_needs_no_token(host):
    settings.check_exposure(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org", ""])
def test_other_addresses_need_a_token_or_a_clear_word(host):
    settings.check_exposure(host, "secret")
    settings.check_exposure(host, None, without_token=True)
    with pytest.raises(OptionError) as refused:
        settings.check_exposure(host, None)
    assert str(refused.value) == (
        f"other computers can reach {host}, so a token is required: set OPENRADIAL_TOKEN, or allow access without a "
        "token with --without-token"
    )


def test_the_token_comes_from_the_environment(monkeypatch):
    monkeypatch.delenv("OPENRADIAL_TOKEN", raising=False)
    assert settings.token_from_environment() is None
    monkeypatch.setenv("OPENRADIAL_TOKEN", "s3cret")
    assert settings.token_from_environment() == "s3cret"


@pytest.mark.parametrize("token", ["", "two words", "schlüssel", "line\nline"])
def test_a_token_that_cannot_be_sent_is_refused(token, monkeypatch):
    monkeypatch.setenv("OPENRADIAL_TOKEN", token)
    sentence = r"^OPENRADIAL_TOKEN must be printable ASCII characters without spaces; set another, or unset it$"
    with pytest.raises(OptionError, match=sentence):
        settings.token_from_environment()
