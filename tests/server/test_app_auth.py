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
        ({"Authorization": "Basic secret"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer secret"}, 200),
        ({"Authorization": "bearer secret"}, 200),
        ({"Authorization": "BEARER  secret"}, 200),
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


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("[::1]", 200),
        ("models.example.org", 200),
        ("models.example.org:443", 200),
        ("evil.example", 400),
        ("evil.example:8000", 400),
        ("localhost.evil.example", 400),
        ("localhost:8000:8000", 400),
        ("localhost:evil", 400),
        ("", 400),
    ],
)
@pytest.mark.parametrize("path", ["/v1/model", "/docs"])
def test_a_host_that_is_not_allowed_is_refused(host, status, path, make_service):
    service = make_service(POINTS, hosts=(*settings.LOCAL_HOSTS, "Models.example.org"))
    answer = ask(service, call(path, "GET", headers={"Host": host}))[0]
    assert answer.status_code == status
    if status == 400:
        assert "serve --allowed-host" in answer.json()["error"]


def test_by_default_a_service_answers_to_this_computer_alone(make_service):
    service = make_service(POINTS)
    hosts = ("127.0.0.1:8000", "evil.example")
    calls = [call(json={"inputs": [[1, 2]]}, headers={"Host": host}) for host in hosts]
    assert [answer.status_code for answer in ask(service, *calls)] == [200, 400]


def test_two_hosts_are_none(make_service):
    headers = [("Host", "localhost"), ("Host", "localhost")]
    assert ask(make_service(POINTS), call("/v1/model", "GET", headers=headers))[0].status_code == 400


def test_probes_and_services_for_all_hosts_take_any_host(make_service):
    probe = call("/healthz", "GET", headers={"Host": "10.0.0.7:8000"})
    assert ask(make_service(POINTS), probe)[0].status_code == 200
    model = call("/v1/model", "GET", headers={"Host": "10.0.0.7:8000"})
    assert ask(make_service(POINTS, hosts=["*"]), model)[0].status_code == 200
