import json
import logging

import pytest
from asking import PATH, ask, call, counters, predict
from made_bundles import image_bundle, point_bundle

from openradial.server.monitoring import log_event
from openradial.server.settings import LogFormat, LogLevel

BUNDLE = point_bundle()


def test_answers_are_counted_as_known_unknown_and_errors(make_service):
    service = make_service(image_bundle())
    inputs = [[[value] * 8] * 8 for value in range(0, 250, 25)]
    said = predict(service, [*inputs, "?", "?"]).json()["predictions"]
    unknown = sum(row.get("is_unknown", False) for row in said)
    found = counters(service)
    assert found['openradial_predictions_total{result="error"}'] == 2
    assert found['openradial_predictions_total{result="unknown"}'] == unknown
    assert found['openradial_predictions_total{result="known"}'] == 10 - unknown


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


def test_two_services_count_apart(make_service):
    one, other = make_service(BUNDLE), make_service(BUNDLE)
    predict(one, [[1, 2]])
    assert counters(other)["openradial_batch_rows_count"] == 0


def test_a_line_may_be_json(make_service, written):
    lines = written(form=LogFormat.JSON)
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


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_events_below_the_level_are_not_written(level, count, written):
    lines = written(LogLevel(level))
    for each in LogLevel:
        log_event(each, "something")
    assert len(lines()) == count


def test_warnings_of_the_http_server_become_events(written):
    lines = written(LogLevel.DEBUG)
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
    log_event(LogLevel.INFO, "something", value=value)
    assert lines()[0].endswith(f"info something value={text}")
