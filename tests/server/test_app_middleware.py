import asyncio
import re

import httpx
import pytest
from asking import ask, call, counters, predict, says
from made_bundles import image_bundle, point_bundle, sequence_bundle, table_bundle, text_bundle
from starlette.responses import StreamingResponse

from openradial.classifier import OpenClassifier
from openradial.server import create_app
from openradial.server.settings import LogLevel

IMAGES, POINTS, SEQUENCES, TABLE, TEXTS = (
    make() for make in (image_bundle, point_bundle, sequence_bundle, table_bundle, text_bundle)
)


BUNDLE = point_bundle()


def test_what_nobody_expected_is_500_and_says_nothing_of_it(make_service, monkeypatch):
    monkeypatch.setattr(OpenClassifier, "predict", lambda *args: 1 / 0)
    answer = predict(make_service(POINTS), [[1, 2]])
    says(answer, 500, "internal error; see the log of the service")


def test_a_path_that_a_client_makes_up_is_no_counter(make_service):
    service = make_service(BUNDLE)
    ask(service, *(call(f"/{place}", "GET") for place in range(20)))
    assert sum(name.startswith("openradial_requests_total") for name in counters(service)) == 1


def test_a_request_is_one_line(make_service, written):
    lines = written()
    predict(make_service(BUNDLE), [[1, 2], [90, 90]])
    (line,) = lines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info request method=POST path=/v1/predict status=200 ms=[\d.]+ "
        r"client=127\.0\.0\.1 inputs=2 unknown=[12]",
        line,
    )


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
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            await client.get("/parts")

    lines = written()
    with pytest.raises(RuntimeError, match=r"^broken off$"):
        asyncio.run(use())
    assert 'error failure path=/parts error="RuntimeError: broken off"' in lines()[0]


def test_a_failure_is_an_error_with_its_reason(make_service, written, monkeypatch):
    monkeypatch.setattr(OpenClassifier, "predict", lambda *args: 1 / 0)
    lines = written(LogLevel.ERROR)
    predict(make_service(BUNDLE), [[1, 2]])
    failure, request = lines()
    assert re.search(
        r'failure path=/v1/predict error="ZeroDivisionError: division by zero" where=test_app_middleware\.py:\d+$',
        failure,
    )
    assert " error request " in request
    assert " status=500 " in request
