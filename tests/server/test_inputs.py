import base64
import io
import json
import struct
import zlib

import numpy as np
import pytest
from asking import as_json, ask, assert_says, call, png, predict, says, send
from hypothesis import strategies as st
from made_bundles import CLASSES, RAW, image_bundle, pixels, point_bundle, sequence_bundle, table_bundle, text_bundle
from PIL import Image

IMAGES, POINTS, SEQUENCES, TABLE, TEXTS = (
    make() for make in (image_bundle, point_bundle, sequence_bundle, table_bundle, text_bundle)
)


JSON = "application/json"


def header_only(width, height):
    """A PNG file that says how large it is, and holds next to nothing."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(9)))]
    made = [
        struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in [*chunks, (b"IEND", b"")]
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


POINTS = point_bundle()


finite = st.floats(-4, 4, width=32).filter(lambda value: value == 0 or abs(value) > 1e-3)


@pytest.mark.parametrize(
    ("bundle", "value", "sentence"),
    [
        (POINTS, [1, 2, 3], "points must have the shape (b, 2), got (1, 3)"),
        (POINTS, [[1], [2, 3]], "a point must be numbers in rows of equal length"),
        (POINTS, [None, 1], "a point must be an array of numbers, got an array of something else"),
        (POINTS, 7, "a point must be an array of numbers, got a number"),
        (POINTS, [True, False], "a point must be an array of numbers, got an array of something else"),
        (POINTS, [1e300, 0], "a point must contain finite numbers in the range of float32"),
        (POINTS, [10**400, 0], "a point must be an array of numbers, got an array of something else"),
        (SEQUENCES, [[1, 2, 3]], "a sequence must have the shape (t, 2) with t above 0, got (1, 3)"),
        (SEQUENCES, [], "a sequence must have the shape (t, 2) with t above 0, got (0,)"),
        (TEXTS, ["word"], "a text must be a string, got an array of something else"),
        (TABLE, [1.0, "red"], "a row must be an object of columns and values, got an array of something else"),
        (IMAGES, [[300]], "pixels must be integers from 0 to 255, in rows (h, w) or (h, w, c)"),
        (IMAGES, [[0.5]], "pixels must be integers from 0 to 255, in rows (h, w) or (h, w, c)"),
        (IMAGES, [], "pixels must be integers from 0 to 255, in rows (h, w) or (h, w, c)"),
        (IMAGES, {"a": 1}, "an image must be rows of pixels or a file in base64, got an object"),
        (IMAGES, None, "an image must be rows of pixels or a file in base64, got null"),
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


def test_an_image_with_too_many_pixels_is_413_before_it_is_decoded(make_service):
    service = make_service(IMAGES, pixels=1000)
    sentence = "an image may have at most 1,000 pixels, got 40 x 30; send a smaller one"
    says(send(service, header_only(40, 30), "image/png"), 413, sentence)
    says(predict(service, [base64.b64encode(header_only(40, 30)).decode()]), 413, sentence)
    assert send(service, png(pixels(1)[0, 0].numpy()), "image/png").status_code == 200


def test_the_pixels_of_a_jpeg_are_counted_too(make_service):
    stream = io.BytesIO()
    Image.new("L", (40, 30)).save(stream, "JPEG")
    answer = send(make_service(IMAGES, pixels=1000), stream.getvalue(), "image/jpeg")
    says(answer, 413, "an image may have at most 1,000 pixels, got 40 x 30; send a smaller one")


def test_images_with_too_many_pixels_together_are_413_before_one_is_decoded(make_service):
    service = make_service(IMAGES, pixels=1000)
    sentence = "the images of a request may have at most 1,000 pixels together, got 1,200; split it into several"
    broken = header_only(20, 20)  # decoding it would be another error
    says(predict(service, [base64.b64encode(broken).decode()] * 3), 413, sentence)
    says(ask(service, call(files=[("images", ("a.png", broken))] * 3))[0], 413, sentence)
    two = predict(service, [base64.b64encode(png(pixels(1)[0, 0].numpy())).decode()] * 2)
    assert two.status_code == 200


def test_an_image_that_is_too_large_alone_does_not_count_for_the_others(make_service):
    good, large = (base64.b64encode(each).decode() for each in (png(pixels(1)[0, 0].numpy()), header_only(40, 30)))
    answer = predict(make_service(IMAGES, pixels=1000), [good, large])
    assert answer.status_code == 200
    assert "label" in answer.json()["predictions"][0]
    assert "at most 1,000 pixels, got 40 x 30" in answer.json()["predictions"][1]["error"]


def test_an_icon_whose_header_hides_the_size_of_its_image_is_refused(make_service):
    inside = header_only(4000, 4000)
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(inside), 22)  # says 16 x 16
    answer = send(make_service(IMAGES, pixels=1000), struct.pack("<HHH", 0, 1, 1) + entry + inside, "image/x-icon")
    says(answer, 422, "the service does not read ICO files; send the image as PNG or JPEG")


def test_the_orientation_of_an_upload_is_applied(make_service):
    exif, stream = Image.Exif(), io.BytesIO()
    exif[274] = 6
    turned = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 3)
    turned.transpose(Image.Transpose.ROTATE_90).save(stream, "PNG", exif=exif)
    upright = png(np.asarray(turned))
    service = make_service(IMAGES)
    answers = [send(service, content, "image/png").json() for content in (stream.getvalue(), upright)]
    assert answers[0] == answers[1]


def test_a_decompression_bomb_is_413(make_service):
    bomb = header_only(60_000, 60_000)
    answer = send(make_service(IMAGES), bomb, "image/png")
    says(answer, 413, "an image may have at most 25,000,000 pixels, got far more; send a smaller one")
    answer = send(make_service(IMAGES), header_only(6, 6)[:33] + bomb[8:], "image/png")  # a small head before the large
    says(answer, 413, "an image may have at most 25,000,000 pixels, got far more; send a smaller one")


def test_long_sequences_and_texts_are_413(make_service):
    answer = predict(make_service(SEQUENCES, steps=3), [[[1, 2]] * 4])
    says(answer, 413, "a sequence may have at most 3 steps, got 4; shorten it")
    answer = predict(make_service(TEXTS, steps=3), ["one two three four"])
    says(answer, 413, "a text may have at most 3 words, got 4; shorten it")


@pytest.mark.parametrize("make", RAW, ids=lambda make: make.__name__)
def test_every_kind_of_input_can_be_sent_as_json(make, make_service):
    bundle, raw = make(), RAW[make]()
    answer = predict(make_service(bundle), as_json(raw))
    assert answer.status_code == 200
    assert_says(answer.json()["predictions"], bundle.predict(raw))


def test_images_may_come_as_rows_of_pixels_as_base64_as_files_and_as_forms(make_service):
    bundle, image = image_bundle(), pixels(1, seed=5)[0, 0].numpy()
    service, file = make_service(bundle), png(image)
    text = base64.b64encode(file).decode()
    form = call(files=[("images", ("a.png", file)), ("images", ("b.png", file))])
    answers = [
        predict(service, [image.tolist(), image[:, :, None].tolist(), text, f"data:image/png;base64,{text}"]),
        send(service, file, "image/png"),
        send(service, file, "application/octet-stream"),
        ask(service, form)[0],
    ]
    assert [len(answer.json()["predictions"]) for answer in answers] == [4, 1, 1, 2]
    for answer in answers:
        for row in answer.json()["predictions"]:
            assert_says([row], bundle.predict([file]))


def test_the_error_of_a_table_row_does_not_name_its_index_in_the_batch(make_service):
    rows = [{"length": 1.0, "colour": "red"}, {"length": "long", "colour": "red"}, {"colour": "red"}]
    good, word, missing = predict(make_service(table_bundle()), rows).json()["predictions"]
    assert good["label"] in (*CLASSES, "unknown")
    for found, fact in ((word, "'long'"), (missing, "colour")):
        assert "'length'" in found["error"]
        assert fact in found["error"]
        assert "row 1" not in found["error"]


def test_gaps_in_a_table_are_no_errors(make_service):
    row = {"length": None, "colour": "red", "other": 1}
    answer = predict(make_service(table_bundle()), [row])
    assert_says(answer.json()["predictions"], table_bundle().predict([row]))


def test_the_error_of_an_image_says_what_can_be_read(make_service):
    answer = predict(make_service(IMAGES), [""])
    assert answer.status_code == 422
    assert "in a format that Pillow reads" in answer.json()["error"]
