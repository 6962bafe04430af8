"""With real connections: the service runs in the main thread, where signals arrive, and clients in another one."""

import http.client
import itertools
import json
import os
import signal
import socket
import threading
import time
from contextlib import closing

import pytest
from asking import PATH, PATIENCE, GatedModel, assert_says
from made_bundles import point_bundle

from openradial.classifier import OpenClassifier
from openradial.errors import OptionError
from openradial.server import Limits, Service, create_app, http_server

BUNDLE = point_bundle()


BODY = json.dumps({"inputs": [[0.5, 0.25]]})


EXPECTED = BUNDLE.predict([[0.5, 0.25]])


JSON = {"Content-Type": "application/json"}


HEAD = (
    f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
)


def run_with(client, grace=5, **limits):
    """Serve until a client, in a thread of its own, is done; what it returned."""
    service = Service(BUNDLE, Limits(**limits))
    opened, found = http_server.listen("127.0.0.1", 0), []

    def use():
        try:
            found.append(client(service, opened.getsockname()[:2]))
        except BaseException as error:
            found.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=use)
    thread.start()
    http_server.serve(create_app(service), opened, limits=service.limits, grace=grace)
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def ask_for(address, body=BODY):
    """The status and what was said."""
    with closing(http.client.HTTPConnection(*address, timeout=PATIENCE)) as connection:
        connection.request("POST", PATH, body, JSON)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def assert_serves(address):
    status, said = ask_for(address)
    assert status == 200
    assert_says(said["predictions"], EXPECTED)


def rest_of(client):
    """All that comes until the other side closes."""
    parts = []
    while part := client.recv(4096):
        parts.append(part)
    return b"".join(parts)


def test_a_stop_answers_what_was_taken(monkeypatch):
    entered, gate, waiting = threading.Event(), threading.Event(), threading.Event()
    real, wait = OpenClassifier.predict, http_server._Server._wait

    async def noted(server, is_done, end):
        checks = itertools.count()

        def check():
            if next(checks) == 2:  # the server still waits
                waiting.set()
            return is_done()

        await wait(server, check, end)

    monkeypatch.setattr(http_server._Server, "_wait", noted)

    def gated(bundle, raw, rate=None):
        entered.set()
        assert gate.wait(PATIENCE)
        return real(bundle, raw, rate)

    def client(service, address):
        assert_serves(address)
        monkeypatch.setattr(OpenClassifier, "predict", gated)
        with closing(http.client.HTTPConnection(*address, timeout=PATIENCE)) as connection:
            connection.request("POST", PATH, BODY, JSON)
            assert entered.wait(PATIENCE)
            os.kill(os.getpid(), signal.SIGTERM)
            assert waiting.wait(PATIENCE)
            gate.set()
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())["predictions"]

    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    status, found = run_with(client, grace=int(PATIENCE))
    assert status == 200
    assert_says(found, EXPECTED)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_clients_that_leave_do_no_harm():
    def client(service, address):
        for sent in ("", "POST", HEAD[:-9], HEAD, HEAD + BODY[:-3], HEAD + BODY):
            with socket.create_connection(address, timeout=PATIENCE) as leaving:
                leaving.sendall(sent.encode())
        assert_serves(address)

    run_with(client)


def test_a_client_that_is_slow_is_cut_off_and_others_are_served():
    def client(service, address):
        slow = []
        for sent in ("", HEAD[:20], HEAD, HEAD + BODY[:5]):
            slow.append(socket.create_connection(address, timeout=PATIENCE))
            slow[-1].sendall(sent.encode())
        assert_serves(address)
        answers = [rest_of(one) for one in slow]
        for one in slow:
            one.close()
        return answers

    *without_a_request, headed, begun = run_with(client, read_timeout=5.0)
    assert without_a_request == [b"", b""]
    for answer in (headed, begun):
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert answer.endswith(b'{"error":"the request did not arrive within 5 s"}')


def test_one_connection_too_many_is_503():
    def client(service, address):
        held = [socket.create_connection(address, timeout=PATIENCE) for _ in range(2)]
        for one in held:  # an answer says that the connection was taken
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            one.recv(4096)
        with socket.create_connection(address, timeout=PATIENCE) as refused:
            answer = rest_of(refused)
        held.pop().close()
        while (status := ask_for(address)[0]) == 503:
            pass
        held.pop().close()
        return answer, status

    answer, status = run_with(client, connections=2)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1" in head
    assert json.loads(body) == {"error": "too many connections are open; retry later"}
    assert status == 200


def test_a_large_body_is_refused_before_it_is_sent():
    def client(service, address):
        with socket.create_connection(address, timeout=PATIENCE) as large:
            large.sendall(HEAD.replace(f"Content-Length: {len(BODY)}", "Content-Length: 3000000").encode())
            return rest_of(large)

    head, _, body = run_with(client, body=1000).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ")
    assert json.loads(body)["error"].startswith("a request may have at most 1,000 bytes")


def test_a_client_that_sends_a_large_body_nevertheless_receives_its_error(monkeypatch):
    monkeypatch.setattr(http_server, "LINGER", PATIENCE)

    def client(service, address):
        with socket.create_connection(address, timeout=PATIENCE) as large:
            large.sendall(HEAD.replace(f"Content-Length: {len(BODY)}", "Content-Length: 9000000").encode())
            large.sendall(bytes(9_000_000))
            return rest_of(large)

    assert run_with(client, body=1000).startswith(b"HTTP/1.1 413 ")


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = HEAD.replace(f"Content-Length: {len(BODY)}", "Transfer-Encoding: chunked").encode()


@pytest.mark.parametrize(
    "sent",
    [
        GET + b"X: " + b"x" * 3_000_000,  # a header that does not end
        GET + b"X: y\r\n" * 300_000,
        GET + b"X: " + b"x" * 65_536 + b"\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        CHUNKED + b"2\r\n{}\r\n0\r\nX: " + b"x" * 3_000_000,  # a trailer
        CHUNKED + b"2;" + b"x" * 3_000_000,  # the extension of a chunk
    ],
    ids=["one", "many", "complete", "path", "trailer", "extension"],
)
def test_headers_that_are_too_large_are_431(sent, monkeypatch):
    monkeypatch.setattr(http_server, "LINGER", PATIENCE)

    def client(service, address):
        with socket.create_connection(address, timeout=PATIENCE) as large:
            large.sendall(sent)
            answer = rest_of(large)
        assert_serves(address)
        return answer

    head, _, body = run_with(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert b"Connection: close" in head
    assert json.loads(body) == {"error": "the headers of a request may have at most 65,536 bytes; send fewer"}


def test_large_bodies_and_many_requests_are_not_taken_for_headers():
    body = BODY.encode().ljust(1_000_000)
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(part), part) for part in (body[at : at + 50] for at in range(0, 10**6, 50))
    )
    large = HEAD.replace(str(len(BODY)), str(len(body))).encode() + body

    def client(service, address):
        with socket.create_connection(address, timeout=PATIENCE) as connection:
            connection.sendall(large * 2 + CHUNKED + chunks + b"0\r\n\r\n")
            connection.sendall((GET + b"X: " + b"x" * 60_000 + b"\r\n\r\n") * 3)
            connection.sendall(GET + b"Connection: close\r\n\r\n")
            return rest_of(connection)

    assert run_with(client).count(b"HTTP/1.1 200 OK\r\n") == 7


def test_what_is_not_http_is_400_in_json():
    def client(service, address):
        with socket.create_connection(address, timeout=PATIENCE) as connection:
            connection.sendall(b"no HTTP at all\r\n\r\n")
            return rest_of(connection)

    head, _, body = run_with(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body) == {"error": "the request is not valid HTTP"}


def test_new_requests_are_503_while_accepted_ones_are_finished(monkeypatch):
    model = GatedModel(monkeypatch)
    stopping, shutdown = threading.Event(), http_server._Server.shutdown

    async def noted(server, sockets=None):
        stopping.set()
        await shutdown(server, sockets)

    monkeypatch.setattr(http_server._Server, "shutdown", noted)

    def refused(connection):
        connection.request("POST", PATH, BODY, JSON)
        answer = connection.getresponse()
        said = json.loads(answer.read())["error"]
        return answer.status, answer.getheader("connection"), answer.getheader("retry-after"), said

    def client(service, address):
        accepted, kept, silent, new = (http.client.HTTPConnection(*address, timeout=PATIENCE) for _ in range(4))
        kept.request("POST", PATH, BODY, JSON)  # this connection stays open
        assert len(json.loads(kept.getresponse().read())["predictions"]) == 1
        silent.connect()
        model.gate.clear()
        model.entered.clear()
        accepted.request("POST", PATH, BODY, JSON)
        assert model.entered.wait(PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(PATIENCE)
        answers = [refused(each) for each in (kept, silent, new)]
        model.gate.set()
        finished = accepted.getresponse()
        rows = json.loads(finished.read())["predictions"]
        for each in (accepted, kept, silent, new):
            each.close()
        return answers, (finished.status, finished.getheader("connection")), rows

    answers, finished, rows = run_with(client, grace=int(PATIENCE))
    assert answers == [(503, "close", "1", "the service is stopping; retry later")] * 3
    assert finished == (200, "close")
    assert_says(rows, EXPECTED)


def test_connections_that_the_kernel_holds_are_accepted_before_the_socket_is_closed(monkeypatch):
    model, waiting = GatedModel(monkeypatch), []
    accept_all = http_server._accept_all

    def late(listening):  # clients that connect at the last moment, before the event loop can accept them
        for _ in range(5):
            waiting.append(http.client.HTTPConnection(*listening.getsockname()[:2], timeout=PATIENCE))
            waiting[-1].request("POST", PATH, BODY, JSON)
        return accept_all(listening)

    monkeypatch.setattr(http_server, "_accept_all", late)
    monkeypatch.setattr(http_server, "DRAIN", PATIENCE)
    run_with(lambda service, address: assert_serves(address), grace=int(PATIENCE))
    answers = [each.getresponse() for each in waiting]
    assert [each.status for each in answers] == [503] * 5
    assert model.rows == [1, 1]  # the first request, after the warm-up


def test_what_does_not_end_is_given_up_after_the_time_of_grace():
    held = []

    def client(service, address):
        held.append(socket.create_connection(address, timeout=PATIENCE))
        held[0].sendall(HEAD.encode())
        assert_serves(address)
        return time.monotonic()

    stopped = run_with(client, grace=0, read_timeout=600.0)
    assert time.monotonic() - stopped < 500  # else it would wait for the rest of the request
    held[0].close()


def test_a_port_that_is_taken_is_refused():
    with http_server.listen("127.0.0.1", 0) as opened:
        port = opened.getsockname()[1]
        with pytest.raises(OptionError) as refused:
            http_server.listen("127.0.0.1", port)
    assert str(refused.value).startswith(f"cannot listen on port {port} of 127.0.0.1 (")
    assert str(refused.value).endswith("); choose others with --host and --port")


def test_an_address_is_shown_as_browsers_take_it():
    class Opened:
        def __init__(self, *name):
            self.getsockname = lambda: name

    assert http_server.url_of(Opened("127.0.0.1", 80)) == "http://127.0.0.1:80"
    assert http_server.url_of(Opened("::1", 80, 0, 0)) == "http://[::1]:80"
