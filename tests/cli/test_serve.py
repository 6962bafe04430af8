from pathlib import Path

import pytest
import torch

from openradial.server import http_server, monitoring
from openradial.server.settings import LogFormat, LogLevel

MODEL = Path(__file__).parents[1] / "bundle" / "data" / "digits"


@pytest.fixture
def serve(call, monkeypatch):
    """Run ``openradial serve`` without listening for long: exit code, output, errors, and what would have been run."""
    threads = torch.get_num_threads()
    calls = []
    monkeypatch.setattr(http_server, "serve", lambda app, opened, **options: calls.append((app.state.service, options)))
    monkeypatch.setattr(monitoring, "configure_logging", lambda *levels: calls.append(levels))
    monkeypatch.delenv("OPENRADIAL_TOKEN", raising=False)

    def run(*arguments):
        return *call("serve", *arguments), calls

    yield run
    torch.set_num_threads(threads)


def test_a_model_is_served_on_loopback(serve):
    code, out, err, (levels, (service, options)) = serve(MODEL, "--port", 0)
    assert (code, err) == (0, "")
    assert out.startswith(f"{MODEL} at http://127.0.0.1:")
    assert levels == (LogLevel.INFO, LogFormat.PLAIN)
    assert service.token is None
    assert options == {"limits": service.limits, "grace": 30}


def test_options_become_limits_and_levels(serve):
    names = ("body", "pixels", "items", "steps", "queue", "batch", "delay")
    options = [text for place, name in enumerate(names, 10) for text in (f"--max-{name}", str(place))]
    log = ("--log-level", "warning", "--log-format", "json")
    _, _, _, (levels, (service, _)) = serve(MODEL, "--port", 0, *options, *log, "--threads", 1)
    assert [getattr(service.limits, name) for name in names] == [10, 11, 12, 13, 14, 15, 16.0]
    assert levels == (LogLevel.WARNING, LogFormat.JSON)
    assert torch.get_num_threads() == 1


def test_a_token_is_taken_from_the_environment_alone(serve, monkeypatch):
    monkeypatch.setenv("OPENRADIAL_TOKEN", "s3cret")
    _, out, err, calls = serve(MODEL, "--port", 0)
    assert calls[1][0].token == "s3cret"
    assert "s3cret" not in out + err


def test_an_address_for_others_without_a_token_is_bad_use(serve):
    code, _, err, calls = serve(MODEL, "--host", "0.0.0.0", "--port", 0)
    assert (code, calls) == (2, [])
    assert err.startswith("error: other computers can reach 0.0.0.0, so a token is required: set OPENRADIAL_TOKEN")


def test_an_address_for_others_may_be_asked_for(serve):
    assert serve(MODEL, "--host", "0.0.0.0", "--port", 0, "--without-token")[0] == 0


def test_hosts_are_those_of_this_computer_the_address_and_the_allowed_ones(serve):
    local = {"localhost", "127.0.0.1", "[::1]"}
    assert serve(MODEL, "--port", 0)[3][1][0].hosts == local
    others = ("--allowed-host", "a.example", "--allowed-host", "b.example")
    *_, calls = serve(MODEL, "--host", "0.0.0.0", "--port", 0, "--without-token", *others)
    assert calls[-1][0].hosts == local | {"0.0.0.0", "a.example", "b.example"}


def test_a_missing_model_is_one_line(serve, tmp_path):
    code, out, err, _ = serve(tmp_path / "nothing")
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_bad_limits_and_threads_are_bad_use(serve):
    code, _, err, _ = serve(MODEL, "--max-batch", 0)
    assert (code, err) == (2, "error: batch must be a whole number of at least 1, got 0\n")
    code, _, err, _ = serve(MODEL, "--threads", 0)
    assert (code, err) == (2, "error: threads must be a whole number of at least 1, got 0\n")
