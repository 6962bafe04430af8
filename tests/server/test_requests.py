import asyncio

import httpx
import pytest
from asking import PATH, ask, call, png, predict, says, send
from made_bundles import image_bundle, pixels, point_bundle, sequence_bundle, table_bundle, text_bundle

from openradial.server import RequestError, create_app
from openradial.server.requests import RATE

IMAGES, POINTS, SEQUENCES, TABLE, TEXTS = (
    make() for make in (image_bundle, point_bundle, sequence_bundle, table_bundle, text_bundle)
)


JSON = "application/json"


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_are_422(name, make_service):
    answer = send(make_service(POINTS), f'{{"inputs": [[{name}, 1]]}}'.encode(), JSON)
    says(answer, 422, f"numbers must be finite, got {name}, which is not valid JSON")


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 400, "the body is not valid JSON (Expecting value: line 1 column 1 (char 0))"),
        (b"\xff\xfe\xff", 400, None),
        (b"[" * 100_000, 400, None),
        (b"1" * 5000, 400, None),
        (b"[1]", 422, "the body must be a JSON object, got list"),
        (b'{"inputs": 1}', 422, 'the body must be an object with "inputs", an array with one entry per input'),
        (b'{"inputs": []}', 422, "a request needs at least one input, got none"),
        (
            b'{"inputs": [[1, 2]], "rate": 1}',
            422,
            "the body may have the keys inputs and false_reject_rate, got 'rate'",
        ),
        (
            b'{"inputs": [[1,2],[1,2],[1,2],[1,2]]}',
            413,
            "a request may have at most 3 inputs; split it into several",
        ),
    ],
)
def test_a_body_that_asks_nothing_is_refused(body, status, sentence, make_service):
    answer = send(make_service(POINTS, items=3), body, JSON)
    says(answer, status, sentence or answer.json()["error"])
    if sentence is None:
        assert answer.json()["error"].startswith("the body is not valid JSON (")


def test_a_rate_that_is_no_number_is_422_in_a_query(make_service):
    answer = send(make_service(IMAGES), png(pixels(1)[0, 0].numpy()), "image/png", f"{PATH}?false_reject_rate=x")
    says(answer, 422, "false_reject_rate must be a number, got 'x'")


def test_an_underscore_is_no_part_of_a_rate(make_service):
    answer = send(make_service(IMAGES), png(pixels(1)[0, 0].numpy()), "image/png", f"{PATH}?false_reject_rate=0.2_5")
    says(answer, 422, "false_reject_rate must be a number, got '0.2_5'")


@pytest.mark.parametrize(
    ("bundle", "kind", "sentence"),
    [
        (POINTS, "image/png", "send application/json, got image/png"),
        (POINTS, "multipart/form-data; boundary=x", "send application/json, got multipart/form-data"),
        (POINTS, "", "send application/json, got no Content-Type"),
        (POINTS, "text/csv", "send application/json, got text/csv"),
        (TABLE, "text/plain", "send application/json or text/csv, got text/plain"),
        (IMAGES, "text/html", "send application/json, or images as multipart/form-data or image/*, got text/html"),
    ],
)
def test_a_kind_of_body_that_is_not_taken_is_415(bundle, kind, sentence, make_service):
    says(send(make_service(bundle), b"x", kind), 415, sentence)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"--x\r\nno form", "the form cannot be parsed: Invalid multipart data."),
        (b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n', None),
    ],
)
def test_a_form_that_holds_something_else_is_refused(body, sentence, make_service):
    answer = send(make_service(IMAGES), body, "multipart/form-data; boundary=x")
    if sentence is None:
        says(answer, 422, "a form may have files and false_reject_rate, got 'a'")
    else:
        says(answer, 400, sentence)


def test_too_many_files_are_413(make_service):
    files = [("images", ("a.png", b"x"))] * 4
    answer = ask(make_service(IMAGES, items=3), call(files=files))[0]
    says(answer, 413, "a request may have at most 3 inputs; split it into several")


def test_an_empty_form_is_422(make_service):
    answer = send(make_service(IMAGES), b"--x--\r\n", "multipart/form-data; boundary=x")
    says(answer, 422, "a request needs at least one input, got none")


def test_a_large_body_is_413_whether_it_is_announced_or_not(make_service):
    async def parts():
        for _ in range(20):
            yield b" " * 10

    service = make_service(POINTS, body=100)
    sentence = "a request may have at most 100 bytes; split it into several"
    says(send(service, b" " * 101, JSON), 413, sentence)
    says(send(service, parts(), JSON), 413, sentence)
    assert send(service, b'{"inputs": [[1, 2]]}'.ljust(100), JSON).status_code == 200


def test_requests_that_hold_too_much_together_are_503(make_service):
    async def slow():
        yield b'{"inputs": [[1, 2]]'
        for _ in range(20):
            await asyncio.sleep(0)
        yield b"}"

    service = make_service(POINTS, body=60, memory=60)
    answers = ask(service, *(call(content=slow(), headers={"Content-Type": JSON}) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 503]
    refused = next(answer for answer in answers if answer.status_code == 503)
    says(refused, 503, "requests already hold 60 bytes, the limit for all together; retry later")
    assert service.memory.used == 0
    assert predict(service, [[1, 2]]).status_code == 200


CSV = "text/csv; charset=utf-8"


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_the_rows_of_a_table_may_come_as_csv(start, make_service):
    service = make_service(TABLE)
    answer = send(service, start + b'colour,other,length\r\nred,"1,2",1.5\r\nblue,x,\r\n', CSV, f"{PATH}?{RATE}=0.2")
    rows = [{"length": 1.5, "colour": "red"}, {"length": None, "colour": "blue"}]
    assert answer.status_code == 200
    assert answer.json() == predict(service, rows, **{RATE: 0.2}).json()


def test_a_row_of_csv_that_cannot_be_read_is_an_error_in_its_place(make_service):
    found = send(make_service(TABLE), b"length,colour\n1,red\n2\nlong,red\n", CSV).json()["predictions"]
    assert "label" in found[0]
    assert "the header names 2 columns, but the row has 1 values" in found[1]["error"]
    assert "'long'" in found[2]["error"]


@pytest.mark.parametrize(
    ("body", "status", "facts"),
    [
        (b"a,b\n1,2\n", 422, ("columns length, colour", "there are a, b")),
        (b"", 422, ("got nothing",)),
        (b"length,colour\n", 422, ("at least one input",)),
        (b"length,colour\n\xff,red\n", 400, ("UTF-8",)),
        (b"length,length\n1,2\n", 422, ("length",)),
        (b"length,colour\n" + b"1,red\n" * 4, 413, ("at most 3 inputs",)),
        (b'length,colour\n1,"red', 422, ()),
    ],
)
def test_a_csv_file_that_cannot_be_read_is_refused(body, status, facts, make_service):
    answer = send(make_service(TABLE, items=3), body, CSV)
    assert answer.status_code == status
    for fact in facts:
        assert fact in answer.json()["error"]


def test_all_missing_columns_are_named_at_once(make_service):
    answer = predict(make_service(TABLE), [{"other": 1}])
    says(answer, 422, "the row has no columns length, colour; its columns are other")


def test_a_slow_body_is_408(make_service):
    async def forever():
        yield b"{"
        await asyncio.Event().wait()

    answer = send(make_service(POINTS, read_timeout=0.05), forever(), JSON)
    says(answer, 408, "the request did not arrive within 0.05 s")
    assert answer.headers["connection"] == "close"


def test_a_client_that_leaves_in_the_middle_of_its_request_is_noted(make_service):
    async def leave():
        sent = []
        messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

        async def receive():
            return next(messages)

        async def send_back(message):
            sent.append(message)

        request = httpx.Request("POST", f"http://localhost{PATH}", headers={"Content-Type": JSON})
        scope = {
            "type": "http",
            "method": "POST",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": b"",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("127.0.0.1", 1),
        }
        await create_app(make_service(POINTS))(scope, receive, send_back)
        return sent

    assert asyncio.run(leave())[0]["status"] == 400


def test_a_sentence_does_not_send_back_all_that_was_sent(make_service):
    answer = predict(make_service(POINTS), [[1, 2]], **{"x" * 10_000: 1})
    assert answer.status_code == 422
    assert len(answer.json()["error"]) == 500
    assert answer.json()["error"].endswith("xxx…")


@pytest.mark.parametrize("bundle", [TABLE, POINTS])
@pytest.mark.parametrize("inputs", [b'[{"\\ud800": 1}]', b'["\\ud800"]', b'[{"\\udfff": "\\udfff"}]'])
def test_half_of_a_surrogate_pair_is_an_error_that_can_be_sent(bundle, inputs, make_service):
    answer = send(make_service(bundle), b'{"inputs": %s}' % inputs, "application/json")
    assert answer.status_code == 422
    assert answer.json()["error"]


def test_a_refusal_is_an_error_with_a_status():
    error = RequestError(422, "no")
    assert (str(error), error.status, error.headers) == ("no", 422, {})
