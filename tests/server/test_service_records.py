import asyncio
import io
import json
import logging
import re

import httpx
import pytest
from asking import PATH, ask, call, predict
from made_bundles import image_bundle, point_bundle
from starlette.responses import StreamingResponse

from openradial.bundle import Bundle
from openradial.server import create_app, logs
from openradial.server.logs import Form, Level, event

BUNDLE = point_bundle()


@pytest.fixture
def written():
    """Set the log up; what was written to it."""
    streams = []
    loggers = (logs.LOGGER, logs.HTTP_LOGGER)
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]

    def set_up(level=Level.INFO, form=Form.PLAIN):
        streams.append(io.StringIO())
        logs.set_up(level, form, streams[-1])
        return lambda: streams[-1].getvalue().splitlines()

    yield set_up
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def counters(service):
    lines = ask(service, call("/metrics", "GET"))[0].text.splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_answers_are_counted_as_known_unknown_and_errors(make_service):
    service = make_service(image_bundle())
    inputs = [[[value] * 8] * 8 for value in range(0, 250, 25)]
    said = predict(service, [*inputs, "?", "?"]).json()["predictions"]
    unknown = sum(row.get("is_unknown", False) for row in said)
    found = counters(service)
    assert found['openradial_predictions_total{answer="error"}'] == 2
    assert found['openradial_predictions_total{answer="unknown"}'] == unknown
    assert found['openradial_predictions_total{answer="known"}'] == 10 - unknown


def test_requests_batches_and_the_queue_are_measured(make_service):
    service = make_service(BUNDLE)
    predict(service, [[1, 2]] * 3)
    predict(service, ["x"])
    ask(service, call("/made/up/by/a/client", "GET"))
    found = counters(service)
    assert found[f'openradial_requests_total{{path="{PATH}",status="200"}}'] == 1
    assert found[f'openradial_requests_total{{path="{PATH}",status="422"}}'] == 1
    assert found['openradial_requests_total{path="other",status="404"}'] == 1
    assert found[f'openradial_request_seconds_count{{path="{PATH}"}}'] == 2
    assert found["openradial_batch_rows_count"] == 2
    assert found["openradial_batch_rows_sum"] == 4
    assert found["openradial_batch_seconds_count"] == 2
    assert found["openradial_queue_rows"] == 0


def test_a_path_that_a_client_makes_up_is_no_counter(make_service):
    service = make_service(BUNDLE)
    ask(service, *(call(f"/{place}", "GET") for place in range(20)))
    assert sum(name.startswith("openradial_requests_total") for name in counters(service)) == 1


def test_two_services_count_apart(make_service):
    one, other = make_service(BUNDLE), make_service(BUNDLE)
    predict(one, [[1, 2]])
    assert counters(other)["openradial_batch_rows_count"] == 0


def test_a_request_is_one_line(make_service, written):
    lines = written()
    predict(make_service(BUNDLE), [[1, 2], [90, 90]])
    (line,) = lines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info request method=POST path=/v1/predict status=200 ms=[\d.]+ "
        r"client=127\.0\.0\.1 inputs=2 unknown=[12]",
        line,
    )


def test_a_line_may_be_json(make_service, written):
    lines = written(form=Form.JSON)
    predict(make_service(BUNDLE), ["x"])
    (line,) = map(json.loads, lines())
    assert {name: line[name] for name in ("level", "event", "method", "path", "status", "inputs", "unknown")} == {
        "level": "info",
        "event": "request",
        "method": "POST",
        "path": PATH,
        "status": 422,
        "inputs": 1,
        "unknown": 0,
    }


def test_a_path_cannot_make_a_second_line(make_service, written):
    lines = written()
    ask(make_service(BUNDLE), call("/%0a2026-01-01T00:00:00Z%20error%20status=500", "GET"))
    assert len(lines()) == 1
    assert r'path="/\n2026-01-01T00:00:00Z error status=500"' in lines()[0]


def test_a_long_path_makes_no_long_line(make_service, written):
    lines = written()
    ask(make_service(BUNDLE), call(f"/{'x' * 5000}", "GET"))
    assert len(lines()[0]) < 400


def test_a_failure_after_the_answer_has_begun_is_written_and_ends_the_connection(make_service, written):
    async def parts():
        yield b"begun"
        raise RuntimeError("broken off")

    async def use():
        app = create_app(make_service(BUNDLE))
        app.add_route("/parts", lambda request: StreamingResponse(parts()))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
            await client.get("/parts")

    lines = written()
    with pytest.raises(RuntimeError, match=r"^broken off$"):
        asyncio.run(use())
    assert 'error failure path=/parts error="RuntimeError: broken off"' in lines()[0]


def test_a_failure_is_an_error_with_its_reason(make_service, written, monkeypatch):
    monkeypatch.setattr(Bundle, "predict", lambda *args: 1 / 0)
    lines = written(Level.ERROR)
    predict(make_service(BUNDLE), [[1, 2]])
    failure, request = lines()
    assert re.search(
        r'failure path=/v1/predict error="ZeroDivisionError: division by zero" where=test_service_records\.py:\d+$',
        failure,
    )
    assert " error request " in request
    assert " status=500 " in request


@pytest.mark.parametrize(("level", "count"), [(Level.DEBUG, 4), (Level.INFO, 3), (Level.WARNING, 2), (Level.ERROR, 1)])
def test_events_below_the_level_are_not_written(level, count, written):
    lines = written(level)
    for each in Level:
        event(each, "something")
    assert len(lines()) == count


def test_warnings_of_the_http_server_become_events(written):
    lines = written(Level.DEBUG)
    server = logging.getLogger("uvicorn.error")
    server.info("Started server process [1]")
    server.warning("Invalid HTTP request received.")
    try:
        raise RuntimeError("gone")
    except RuntimeError as error:
        server.error("Exception in ASGI application\n", exc_info=error)
    warning, error = lines()
    assert warning.endswith('warning http message="Invalid HTTP request received."')
    assert error.endswith('error http message="Exception in ASGI application" error="RuntimeError: gone"')


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        ("", '""'),
        ("a b", '"a b"'),
        ("a=b", '"a=b"'),
        ('"', '"\\""'),
        (None, "None"),
        (200, "200"),
    ],
)
def test_values_are_written_so_that_they_can_be_read_back(value, text, written):
    lines = written()
    event(Level.INFO, "something", value=value)
    assert lines()[0].endswith(f"info something value={text}")
