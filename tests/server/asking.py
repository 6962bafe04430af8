"""Ask a service without a network."""

import asyncio
import io
import os
import threading

import httpx
import numpy as np
from PIL import Image

from openradial.classifier import OpenClassifier
from openradial.server import create_app

PATIENCE = float(os.environ.get("OPENRADIAL_TEST_PATIENCE", "300"))  # seconds; a busy machine may take its time
PATH = "/v1/predict"


def ask(service, *calls):
    """The answers to calls that are made at the same time; a call is a method, a path and httpx's options."""

    async def all_of_them():
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=PATIENCE) as client:
            return await asyncio.gather(*(client.request(method, path, **options) for method, path, options in calls))

    return asyncio.run(all_of_them())


def call(path=PATH, method="POST", **options):
    return method, path, options


def predict(service, inputs, **others):
    """The answer to one request in JSON."""
    return ask(service, call(json={"inputs": inputs, **others}))[0]


def send(service, body, kind, path=PATH, **headers):
    """The answer to one request of some content type."""
    return ask(service, call(path, content=body, headers={"Content-Type": kind, **headers}))[0]


def png(image):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return stream.getvalue()


def as_json(raw):
    """Raw inputs as JSON can hold them."""
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in raw]


def assert_says(found, expected):
    """An answer says what predictions say, up to the rounding that the size of a batch may change."""
    assert len(found) == len(expected)
    for row, wanted in zip(found, [each.as_dict() for each in expected], strict=True):
        assert row.keys() == wanted.keys()
        for name in ("label", "is_unknown", "nearest"):
            assert row[name] == wanted[name]
        for name in ("probability", "distance", "p_value", "unknown_score"):
            np.testing.assert_allclose(number(row[name]), number(wanted[name]), rtol=1e-4, atol=1e-6, err_msg=name)
        assert [each["class"] for each in row["top"]] == [each["class"] for each in wanted["top"]]


def number(value):
    return np.nan if value is None else value


def says(answer, status, message):
    """Assert the status and the error message of a response."""
    assert (answer.status_code, answer.json()["error"]) == (status, message)


def counters(service):
    lines = ask(service, call("/metrics", "GET"))[0].text.splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


class GatedModel:
    """A bundle whose predictions wait at a gate, and which remembers how many rows each batch had."""

    def __init__(self, monkeypatch, *, is_open=True):
        self.gate, self.entered, self.rows = threading.Event(), threading.Event(), []
        if is_open:
            self.gate.set()
        real = OpenClassifier.predict

        def gated(bundle, raw, rate=None):
            self.rows.append(len(raw))
            self.entered.set()
            assert self.gate.wait(PATIENCE)
            return real(bundle, raw, rate)

        monkeypatch.setattr(OpenClassifier, "predict", gated)


async def until_entered(model):
    assert await asyncio.to_thread(model.entered.wait, PATIENCE)
