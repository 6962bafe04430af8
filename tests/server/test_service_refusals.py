import asyncio
import base64
import io
import json
import struct
import zlib

import httpx
import pytest
from asking import PATH, ask, call, png, predict, send
from made_bundles import image_bundle, pixels, point_bundle, sequence_bundle, table_bundle, text_bundle
from PIL import Image

from openradial.bundle import Bundle
from openradial.errors import OptionError
from openradial.server import Limits, RequestError, create_app

IMAGES, POINTS, SEQUENCES, TABLE, TEXTS = (
    make() for make in (image_bundle, point_bundle, sequence_bundle, table_bundle, text_bundle)
)
JSON = "application/json"


def says(answer, status, sentence):
    assert (answer.status_code, answer.json()["error"]) == (status, sentence)


def header_only(width, height):
    """A PNG file that says how large it is, and holds next to nothing."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(9)))]
    made = [
        struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in [*chunks, (b"IEND", b"")]
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


@pytest.mark.parametrize(
    ("bundle", "value", "sentence"),
    [
        (POINTS, [1, 2, 3], "points must have the shape (b, 2), got (1, 3)"),
        (POINTS, [[1], [2, 3]], "a point must be numbers in rows of one length"),
        (POINTS, [None, 1], "a point must be an array of numbers, got an array of something else"),
        (POINTS, 7, "a point must be an array of numbers, got a number"),
        (POINTS, [True, False], "a point must be an array of numbers, got an array of something else"),
        (POINTS, [1e300, 0], "a point must hold finite numbers, got nan, infinity or one beyond float32"),
        (POINTS, [10**400, 0], "a point must be an array of numbers, got an array of something else"),
        (SEQUENCES, [[1, 2, 3]], "a sequence must have the shape (t, 2) with t above 0, got (1, 3)"),
        (SEQUENCES, [], "a sequence must have the shape (t, 2) with t above 0, got (0,)"),
        (TEXTS, ["word"], "a text must be a string, got an array of something else"),
        (TABLE, [1.0, "red"], "a row must be an object of columns and values, got an array of something else"),
        (TABLE, {"length": 1.0}, "the row has no column 'colour'; its columns are length"),
        (IMAGES, [[300]], "pixels must be whole numbers from 0 to 255, in rows (h, w) or (h, w, c)"),
        (IMAGES, [[0.5]], "pixels must be whole numbers from 0 to 255, in rows (h, w) or (h, w, c)"),
        (IMAGES, [], "pixels must be whole numbers from 0 to 255, in rows (h, w) or (h, w, c)"),
        (IMAGES, {"a": 1}, "an image must be rows of pixels or a file in base64, got an object"),
        (IMAGES, None, "an image must be rows of pixels or a file in base64, got null"),
        (IMAGES, "", "the image is not in JPEG, PNG, WebP, BMP or GIF format; replace it or leave it out"),
        (
            IMAGES,
            [1, 2],
            "an array of pixels must be uint8 of shape (h, w) or (h, w, c) with 1, 3 or 4 channels, got uint8 of shape "
            "(2,); a tensor of prepared inputs is (b, c, h, w)",
        ),
    ],
)
def test_an_input_that_cannot_be_used_is_422_with_the_reason(bundle, value, sentence, make_service):
    answer = send(make_service(bundle), json.dumps({"inputs": [value]}).encode(), JSON)
    says(answer, 422, sentence)
    assert answer.json()["predictions"] == [{"error": sentence}]


@pytest.mark.parametrize("name", ["/etc/passwd", "tests/picture.png", "file:///etc/passwd"])
def test_a_string_is_never_the_name_of_a_file(name, make_service):
    answer = predict(make_service(IMAGES), [name])
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(
        ("an image given as text must be the file in base64 (", "the image is no ")
    )


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_are_422(name, make_service):
    answer = send(make_service(POINTS), f'{{"inputs": [[{name}, 1]]}}'.encode(), JSON)
    says(answer, 422, f"inputs must hold finite numbers, got {name}, which JSON does not have")


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 400, "the body is no JSON (Expecting value: line 1 column 1 (char 0))"),
        (b"\xff\xfe\xff", 400, None),
        (b"[" * 100_000, 400, None),
        (b"1" * 5000, 400, None),
        (b"[1]", 422, 'the body must be an object with "inputs", an array with one entry per input'),
        (b'{"inputs": 1}', 422, 'the body must be an object with "inputs", an array with one entry per input'),
        (b'{"inputs": []}', 422, "a request needs at least one input, got none"),
        (b'{"inputs": [[1, 2]], "rate": 1}', 422, "the body may hold inputs and false_reject_rate, got 'rate'"),
        (
            b'{"inputs": [[1,2],[1,2],[1,2],[1,2]]}',
            413,
            "a request may have 3 inputs, and this one has more; send several",
        ),
    ],
)
def test_a_body_that_asks_nothing_is_refused(body, status, sentence, make_service):
    answer = send(make_service(POINTS, items=3), body, JSON)
    says(answer, status, sentence or answer.json()["error"])
    if sentence is None:
        assert answer.json()["error"].startswith("the body is no JSON (")


@pytest.mark.parametrize(
    ("rate", "sentence"),
    [
        (2, "false_reject_rate must be a number above 0 and below 1, got 2; 0.05 means 5 %"),
        ("high", "false_reject_rate must be a number above 0 and below 1, got 'high'; 0.05 means 5 %"),
        ([0.1], "false_reject_rate must be a number above 0 and below 1, got list; 0.05 means 5 %"),
        (
            0.001,
            "a rate of 0.001 needs at least 999 calibration scores, got 50: fewer can reject nothing at that rate; "
            "give more or ask for a rate of at least 1/51",
        ),
    ],
)
def test_a_rate_that_cannot_be_kept_is_422(rate, sentence, make_service):
    says(predict(make_service(POINTS), [[1, 2]], false_reject_rate=rate), 422, sentence)


def test_a_rate_that_is_no_number_is_422_in_a_query(make_service):
    answer = send(make_service(IMAGES), png(pixels(1)[0, 0].numpy()), "image/png", f"{PATH}?false_reject_rate=x")
    says(answer, 422, "false_reject_rate must be a number, got 'x'")


def test_a_rate_is_422_where_the_model_rejects_nothing(make_service):
    bundle = image_bundle(scorers=None, rejector=False)
    service = make_service(bundle)
    says(
        predict(service, [[[1]]], false_reject_rate=0.1),
        422,
        "this model rejects nothing, so no false_reject_rate can be asked of it; leave it out",
    )
    assert predict(service, [[[1]]]).json()["false_reject_rate"] is None


def test_a_rate_is_checked_for_each_class_where_each_has_its_own(make_service):
    service = make_service(image_bundle(scorers=None, per_class=True))
    assert predict(service, [[[1]]], false_reject_rate=0.3).status_code == 200
    assert "in each class" in predict(service, [[[1]]], false_reject_rate=0.001).json()["error"]


@pytest.mark.parametrize(
    ("bundle", "kind", "sentence"),
    [
        (POINTS, "image/png", "send application/json, got image/png"),
        (POINTS, "multipart/form-data; boundary=x", "send application/json, got multipart/form-data"),
        (POINTS, "", "send application/json, got no Content-Type"),
        (IMAGES, "text/html", "send application/json, or images as multipart/form-data or image/*, got text/html"),
    ],
)
def test_a_kind_of_body_that_is_not_taken_is_415(bundle, kind, sentence, make_service):
    says(send(make_service(bundle), b"x", kind), 415, sentence)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"--x\r\nno form", "the form cannot be read: Invalid multipart data."),
        (b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n', None),
    ],
)
def test_a_form_that_holds_something_else_is_refused(body, sentence, make_service):
    answer = send(make_service(IMAGES), body, "multipart/form-data; boundary=x")
    if sentence is None:
        says(answer, 422, "a form may hold files and false_reject_rate, got 'a'")
    else:
        says(answer, 400, sentence)


def test_too_many_files_are_413(make_service):
    files = [("images", ("a.png", b"x"))] * 4
    answer = ask(make_service(IMAGES, items=3), call(files=files))[0]
    says(answer, 413, "a request may have 3 inputs, and this one has more; send several")


def test_an_empty_form_is_422(make_service):
    answer = send(make_service(IMAGES), b"--x--\r\n", "multipart/form-data; boundary=x")
    says(answer, 422, "a request needs at least one input, got none")


def test_a_large_body_is_413_whether_it_is_announced_or_not(make_service):
    async def parts():
        for _ in range(20):
            yield b" " * 10

    service = make_service(POINTS, body=100)
    sentence = "a request may have 100 bytes, and this one has more; send less at a time"
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
    says(refused, 503, "all requests together may hold 60 bytes, and they do; ask again later")
    assert service.memory.used == 0
    assert predict(service, [[1, 2]]).status_code == 200


def test_an_image_with_too_many_pixels_is_413_before_it_is_decoded(make_service):
    service = make_service(IMAGES, pixels=1000)
    sentence = "an image may have 1,000 pixels, got 40 x 30; send a smaller one"
    says(send(service, header_only(40, 30), "image/png"), 413, sentence)
    says(predict(service, [base64.b64encode(header_only(40, 30)).decode()]), 413, sentence)
    assert send(service, png(pixels(1)[0, 0].numpy()), "image/png").status_code == 200


def test_the_pixels_of_a_jpeg_are_counted_too(make_service):
    stream = io.BytesIO()
    Image.new("L", (40, 30)).save(stream, "JPEG")
    answer = send(make_service(IMAGES, pixels=1000), stream.getvalue(), "image/jpeg")
    says(answer, 413, "an image may have 1,000 pixels, got 40 x 30; send a smaller one")


def test_a_decompression_bomb_is_413(make_service):
    bomb = header_only(60_000, 60_000)
    answer = send(make_service(IMAGES), bomb, "image/png")
    says(answer, 413, "an image may have 25,000,000 pixels, got 60000 x 60000; send a smaller one")
    answer = send(make_service(IMAGES), header_only(6, 6)[:33] + bomb[8:], "image/png")  # a small head before the large
    says(answer, 413, "an image may have 25,000,000 pixels, and this one has far more; send a smaller one")


def test_long_sequences_and_texts_are_413(make_service):
    answer = predict(make_service(SEQUENCES, steps=3), [[[1, 2]] * 4])
    says(answer, 413, "a sequence may have 3 steps, got 4; shorten it")
    answer = predict(make_service(TEXTS, steps=3), ["one two three four"])
    says(answer, 413, "a text may have 3 words, got 4; shorten it")


def test_other_paths_and_methods_are_answered_in_json(make_service):
    service = make_service(POINTS)
    missing, wrong = ask(service, call("/nothing", "GET"), call(PATH, "GET"))
    says(missing, 404, "Not Found")
    says(wrong, 405, "Method Not Allowed")
    assert wrong.headers["allow"] == "POST"


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


def test_a_slow_body_is_408(make_service):
    async def forever():
        yield b"{"
        await asyncio.Event().wait()

    answer = send(make_service(POINTS, reading=0.05), forever(), JSON)
    says(answer, 408, "the request must be sent within 0.05 s, and was not")
    assert answer.headers["connection"] == "close"


def test_what_nobody_expected_is_500_and_says_nothing_of_it(make_service, monkeypatch):
    monkeypatch.setattr(Bundle, "predict", lambda *args: 1 / 0)
    answer = predict(make_service(POINTS), [[1, 2]])
    says(answer, 500, "the service failed; its log says why")


def test_a_client_that_leaves_in_the_middle_of_its_request_is_noted(make_service):
    async def leave():
        sent = []
        messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

        async def receive():
            return next(messages)

        async def send_back(message):
            sent.append(message)

        request = httpx.Request("POST", f"http://service{PATH}", headers={"Content-Type": JSON})
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


def test_limits_that_make_no_sense_are_refused():
    with pytest.raises(OptionError, match=r"^batch must be a whole number of at least 1, got 0$"):
        Limits(batch=0)
    with pytest.raises(OptionError, match=r"^reading must be a finite number above 0, got 0$"):
        Limits(reading=0)
    with pytest.raises(OptionError, match=r"^delay must be a number of milliseconds, at least 0, got -1$"):
        Limits(delay=-1)
    sentence = r"^the memory must have room for one request: 9 bytes but 8 for all; raise memory or lower body$"
    with pytest.raises(OptionError, match=sentence):
        Limits(body=9, memory=8)
    sentence = r"^the queue must have room for one request: 20 items but a queue of 10; raise queue or lower items$"
    with pytest.raises(OptionError, match=sentence):
        Limits(items=20, queue=10)


def test_a_sentence_does_not_send_back_all_that_was_sent(make_service):
    answer = predict(make_service(POINTS), [[1, 2]], **{"x" * 10_000: 1})
    assert answer.status_code == 422
    assert len(answer.json()["error"]) == 500
    assert answer.json()["error"].endswith("xxx…")


def test_a_refusal_is_an_error_with_a_status():
    error = RequestError(422, "no")
    assert (str(error), error.status, error.headers) == ("no", 422, {})
