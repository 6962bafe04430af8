"""``openradial play``: what it says, serves and refuses, and that it ends while a page looks on."""

import os
import queue
import signal
import socket
import threading
from pathlib import Path

import httpx
import pytest

from openradial.cli import play
from openradial.server import http_server

MODEL = Path(__file__).parents[1] / "bundle" / "data" / "digits"


@pytest.fixture
def command(call):
    """Run ``openradial play``: its exit code, output and errors."""

    def run(*arguments):
        return call("play", *arguments)

    return run


@pytest.fixture
def visitor(monkeypatch):
    """Let a function use the playground once it listens, and then stop it; what the function found."""
    found, address = [], queue.Queue()
    url_of = http_server.url_of
    monkeypatch.setattr(http_server, "url_of", lambda opened: (address.put(url_of(opened)), url_of(opened))[1])

    def start(use):
        def work():
            try:
                url = address.get(timeout=300)
                with httpx.Client(base_url=url, timeout=300) as client:
                    found.append(use(client))
            except BaseException as error:
                found.append(error)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=work)
        thread.start()
        return lambda: (thread.join(), found[0])[1]

    return start


def test_the_playground_is_served_and_ends_while_a_page_looks_on(command, visitor):
    def use(client):
        page = client.get("/")
        name = client.post("/play/spiral", json={"bayesian": True}).json()["id"]
        stream = client.send(client.build_request("GET", f"/play/spiral/{name}/events"), stream=True)
        lines = stream.iter_lines()
        first = [next(lines) for _ in range(3)]
        return page.status_code, first

    ended = visitor(use)
    code, out, err = command("--port", 0)
    status, lines = ended()
    assert (code, err) == (0, "")
    assert out.startswith("the playground is at http://127.0.0.1:")
    assert status == 200
    assert lines == [": hello", "", "event: frame"]


def test_a_model_of_ones_own_is_shown_by_the_name_of_its_folder(command, visitor):
    ended = visitor(lambda client: client.get("/play/model").json())
    code, _, _ = command(MODEL, "--port", 0)
    assert code == 0
    assert ended()["title"] == "digits"


def test_a_browser_is_opened_where_that_is_wanted(command, visitor, monkeypatch):
    opened = []
    monkeypatch.setattr(play.webbrowser, "open", opened.append)
    visitor(lambda client: client.get("/healthz").status_code)
    code, out, _ = command("--port", 0, "--open")
    assert code == 0
    assert out == f"the playground is at {opened[0]}\n"


def test_a_folder_without_a_model_is_refused_in_one_line(command, tmp_path):
    code, out, err = command(tmp_path / "none")
    assert (code, out) == (1, "")
    assert err == f"error: expected the folder of a bundle, but {tmp_path / 'none'} does not exist\n"


def test_a_port_that_is_taken_is_refused_in_one_line(command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = command("--port", port)
    assert code == 2
    assert err.startswith(f"error: cannot listen on port {port} of 127.0.0.1")
    assert err.count("\n") == 1
