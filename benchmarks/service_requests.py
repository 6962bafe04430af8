"""What clients send to the service: digits as PNG and JSON, and whatever else clients send."""

import io
import json
import struct
import zlib
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.service_load import Request, post
from openradial import data

PATH = "/v1/predict"
DIGITS = 64


def good_requests(kind: str) -> list[Request]:
    """One digit per request, as a PNG file or as JSON."""
    if kind == "PNG":
        return [Request("PNG", post(PATH, "image/png", png(image))) for image in digits()]
    return [Request("JSON", json_request([image.tolist()])) for image in digits()]


def digits() -> list[Any]:
    return list(data.load("mnist", "test").inputs[:DIGITS, 0].numpy())


def png(image: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return stream.getvalue()


def json_request(inputs: list[Any], **others: Any) -> bytes:
    return post(PATH, "application/json", json.dumps({"inputs": inputs, **others}).encode())


def parsed(data: bytes, *, is_json: bool | None = None) -> Callable[[], Any]:
    """How a program without HTTP reads the body of a request, each time afresh."""
    head, _, body = data.partition(b"\r\n\r\n") if is_json is None else (b"", b"", data)
    if is_json or b"application/json" in head:
        return lambda: [np.asarray(image, dtype=np.uint8) for image in json.loads(body)["inputs"]]
    return partial(list, [body])


def mixed_requests() -> list[Request]:
    """Good ones and what goes wrong in the world, each with the status that it must get."""
    images = digits()
    one, file = images[0].tolist(), png(images[0])
    batch = json_request([image.tolist() for image in images[:8]])
    good = [*good_requests("PNG")[:6], *good_requests("JSON")[:4]]
    good += [Request("batch", batch), Request("form", form([file, file]), 200)]
    good += [Request("form with a broken image", form([file, b"no image"]), 200)]
    good += [Request("other rate", json_request([one], false_reject_rate=0.2), 200)]
    good += [Request("large image", post(PATH, "image/png", zeros(2000)), 200)]
    return [*good, *bad_requests(one, file), *hostile_requests(one, file)]


def hostile_requests(one: list[list[int]], file: bytes) -> list[Request]:
    """What stopped a service, or used up its memory, in an earlier version."""
    return [
        Request("tiny rate", json_request([one], false_reject_rate=1e-300), 422),
        Request("many large images", form([zeros(5000)] * 8), 413),
        Request("large headers", post(PATH, f"image/png; a={'a' * 70_000}", file), 431),
        Request("foreign host", post(PATH, "image/png", file).replace(b"Host: localhost", b"Host: example.org"), 400),
        Request("no HTTP", bytes(range(256)), 400),
        Request("huge number", post(PATH, "application/json", b'{"inputs": [1%s]}' % (b"0" * 5000)), 400),
    ]


def bad_requests(one: list[list[int]], file: bytes) -> list[Request]:
    whole = post(PATH, "image/png", file)
    return [
        Request("broken image", post(PATH, "image/png", file[:100]), 422),
        Request("no image", post(PATH, "image/png", b"hello"), 422),
        Request("bomb", post(PATH, "image/png", bomb(30_000)), 413),
        Request("nan", post(PATH, "application/json", b'{"inputs": [[[NaN]]]}'), 422),
        Request("no JSON", post(PATH, "application/json", b'{"inputs": '), 400),
        Request("deep JSON", post(PATH, "application/json", b"[" * 100_000), 400),
        Request("wrong shape", json_request([one[0]]), 422),
        Request("wrong rate", json_request([one], false_reject_rate=2), 422),
        Request("too many inputs", json_request([0] * 1000), 413),
        Request("too large", post(PATH, "image/png", b"", announced=10**9), 413),
        Request("wrong kind", post(PATH, "text/html", b"<p>"), 415),
        Request("wrong path", post("/v2/predict", "image/png", b""), 404),
        Request("gone before the answer", whole, None),
        Request("gone in the middle", whole[:-50], None),
        Request("gone in the head", whole[:20], None),
    ]


def form(files: list[bytes]) -> bytes:
    parts = [
        b'--edge\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n' + file + b"\r\n"
        for file in files
    ]
    return post(PATH, "multipart/form-data; boundary=edge", b"".join(parts) + b"--edge--\r\n")


@cache
def zeros(side: int) -> bytes:
    """A black PNG of ``side`` by ``side`` pixels: a small file."""
    return png(np.zeros((side, side), np.uint8))


def bomb(side: int) -> bytes:
    """A small PNG file that says it has ``side`` by ``side`` pixels."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(10**6)))]
    made = [
        struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in [*chunks, (b"IEND", b"")]
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)
