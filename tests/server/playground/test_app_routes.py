"""The routes of the playground, asked by a plain client."""

import asyncio
import json
import threading

import httpx
import numpy as np
import pytest

from openradial.data.inputs import PointInputs, TableInputs
from openradial.data.table_encoder import DateFeature, NumberFeature, TableEncoder, WordFeature
from openradial.server import Service
from openradial.server.playground import create_playground, learning, runs
from openradial.server.playground.app import event_stream, input_form
from openradial.server.playground.digits import digit_model
from openradial.server.playground.learning import Pace, SpiralSettings
from openradial.server.playground.runs import SpiralRun


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(learning, "PLAIN", Pace(3, 1, 1, 8, learning.PLAIN.training))
    monkeypatch.setattr(learning, "BAYESIAN", Pace(2, 1, 2, 6, learning.BAYESIAN.training))
    monkeypatch.setattr(runs, "REST", 0.0)


def start(client, **wishes):
    answer = client.post("/play/spiral", json=wishes)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(client, name):
    """All events of a run, to its end: pairs of a name and facts."""
    text = client.get(f"/play/spiral/{name}/events").text
    blocks = [block.split("\n") for block in text.strip().split("\n\n") if block.startswith("event: ")]
    return [(lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: "))) for lines in blocks]


def test_a_run_is_streamed_to_its_end(client):
    run = start(client, label_noise=0.1)
    found = events(client, run["id"])
    assert [name for name, _ in found] == ["frame"] * 3 + ["end"]
    assert [facts["frame"] for name, facts in found if name == "frame"] == [0, 1, 2]
    assert found[-1][1] == {"problem": None}


def test_a_stream_can_begin_later(client):
    run = start(client)
    events(client, run["id"])
    text = client.get(f"/play/spiral/{run['id']}/events", params={"after": 2}).text
    assert text.count("event: frame") == 1


def test_a_run_tells_what_a_page_must_know(client):
    run = start(client)
    assert (run["frames"], run["steps"], run["samples"], run["cells"]) == (3, 1, 1, 8)
    assert len(run["points"]) == len(run["labels"]) == runs.SHOWN
    assert set(run["labels"]) == {0, 1, 2}
    frame = client.get(f"/play/spiral/{run['id']}/frames/0").content
    assert np.frombuffer(frame, np.float16).shape == (8 * 8 * 6,)


def test_a_place_is_told_with_the_outputs_of_both_heads(client):
    run = start(client, bayesian=True)
    found = client.get(f"/play/spiral/{run['id']}/at", params={"frame": 0, "x": 2, "y": 2}).json()
    assert np.shape(found["softmax"]) == np.shape(found["radial"]) == (runs.AT_CROSS, 3)


def test_a_run_can_be_paused_resumed_and_ended(client):
    name = start(client)["id"]
    assert client.post(f"/play/spiral/{name}/pause").status_code == 204
    assert client.post(f"/play/spiral/{name}/resume").status_code == 204
    assert client.delete(f"/play/spiral/{name}").status_code == 204
    gone = client.get(f"/play/spiral/{name}/events")
    assert (gone.status_code, gone.json()) == (404, {"error": "this run has ended; start it again"})


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b'{"scale": 9}', 422, "scale must lie in [0.5, 5.0], got 9.0"),
        (b"[]", 422, "the body must be a JSON object, got list"),
        (b"{", 400, "the body is not valid JSON"),
        (b" " * 2000, 413, "a request may have at most 1,000 bytes"),
    ],
)
def test_a_wrong_start_is_refused_in_one_sentence(client, body, status, sentence):
    answer = client.post("/play/spiral", content=body)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(sentence)


def test_a_place_must_be_finite(client):
    run = start(client)
    answer = client.get(f"/play/spiral/{run['id']}/at", params={"frame": 0, "x": "nan", "y": 0})
    assert (answer.status_code, answer.json()["error"]) == (422, "x and y must be finite numbers, got nan and 0.0")


async def collected(run, stopped):
    return [event async for event in event_stream(run, 0, stopped)]


def test_a_stream_ends_when_the_server_stops_and_then_nobody_watches():
    run = SpiralRun(SpiralSettings())
    try:
        run.pause()
        assert asyncio.run(collected(run, lambda: True)) == [": hello\n\n"]
        assert run.watchers == 0
    finally:
        run.close()


def draw(client, ink, **options):
    return client.post("/play/digits", content=ink.tobytes(), params=options)


def test_a_drawing_is_answered_by_both_classifiers(client):
    ink = np.zeros((140, 140), np.uint8)
    ink[20:120, 64:76] = 255
    found = draw(client, ink).json()
    assert len(found["pixels"]) == 784
    for head in ("softmax", "radial"):
        assert found[head]["nearest"] == 1
        assert len(found[head]["probabilities"]) == 10
        assert 0 < found[head]["p_value"] <= 1
    assert found["softmax"]["distances"] is None
    assert len(found["radial"]["distances"]) == 10


def test_a_ready_image_is_taken_as_it_is(client):
    image = np.random.default_rng(0).integers(0, 255, (28, 28), np.uint8)
    assert draw(client, image, ready=True).json()["pixels"] == image.flatten().tolist()


@pytest.mark.parametrize(
    ("ink", "options", "status", "sentence"),
    [
        (np.zeros((20, 20), np.uint8), {}, 422, "the drawing is empty; draw something first"),
        (np.ones((2, 3), np.uint8), {}, 422, "a drawing is a square of bytes, one per pixel, got 6 bytes"),
        (np.ones((0, 0), np.uint8), {}, 422, "a drawing is a square of bytes, one per pixel, got 0 bytes"),
        (np.ones((20, 20), np.uint8), {"ready": True}, 422, "a ready image has 28 x 28 pixels, got 20 x 20"),
        (np.ones((600, 600), np.uint8), {}, 413, "a request may have at most 262,144 bytes"),
    ],
)
def test_a_wrong_drawing_is_refused_in_one_sentence(client, ink, options, status, sentence):
    answer = draw(client, ink, **options)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(sentence)


def test_what_was_measured_of_the_classifiers_is_told(client):
    assert set(client.get("/play/digits").json()) == {"softmax", "radial"}


def test_the_model_of_the_page_is_described(client):
    about = client.get("/play/model").json()
    assert about["title"] is None
    assert about["classes"] == list("0123456789")
    assert (about["kind"], about["shape"], about["fields"]) == ("images", [1, 28, 28], [])
    assert about["false_reject_rate"] == 0.05


def test_a_table_becomes_a_form():
    features = (NumberFeature("length", 2.34567, 2.0, 0.5), WordFeature("colour", ("red", "blue"), (0.5, 0.5)))
    when = DateFeature("when", "%d.%m.%Y", (), (), ())
    found = input_form(TableInputs(TableEncoder((*features, when), ("a", "b"))))
    assert found["fields"] == [
        {"name": "length", "usual": 2.346, "words": None},
        {"name": "colour", "usual": None, "words": ["red", "blue"]},
        {"name": "when", "usual": "17.05.2024", "words": None},
    ]
    assert input_form(PointInputs(4)) == {"kind": "points", "shape": [4], "fields": []}


def test_the_service_is_there_too(client):
    image = np.zeros((28, 28), np.uint8).tolist()
    answer = client.post("/v1/predict", json={"inputs": [image]})
    assert answer.status_code == 200
    assert client.get("/healthz").json() == {"status": "alive"}


def test_the_page_may_load_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    script = client.get("/static/main.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["x-content-type-options"] == "nosniff"
    assert client.get("/static/%2e%2e/app.py").status_code == 404


def test_no_other_site_can_reach_it_under_a_name_of_its_own(client):
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/", headers={"Host": "localhost:8080"}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://{}"])
def test_the_page_of_another_site_cannot_start_anything(client, origin):
    host = client.base_url.netloc.decode()
    foreign = {"Origin": origin.format(host), "Content-Type": "text/plain"}
    run = start(client)["id"]
    for method, path in (
        ("POST", "/play/spiral"),
        ("POST", f"/play/spiral/{run}/pause"),
        ("DELETE", f"/play/spiral/{run}"),
        ("POST", "/play/digits"),
        ("POST", "/play/sentence"),
    ):
        answer = client.request(method, path, content=b"{}", headers=foreign)
        assert answer.status_code == 403, path
        assert answer.json()["error"].startswith("only the page of this playground may call this path")
    own = {"Origin": f"http://{host}"}
    assert client.post("/play/spiral", json={}, headers=own).status_code == 200


async def left(app):
    """Start and stop an application; the run that was going on."""
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            name = (await client.post("/play/spiral", json={})).json()["id"]
        return next(thread for thread in threading.enumerate() if name in thread.name)


def test_leaving_the_application_ends_all_runs():
    assert not asyncio.run(left(create_playground(Service(digit_model("radial"))))).is_alive()
