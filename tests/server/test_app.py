import asyncio
import json

import httpx
import numpy as np
import pytest
from asking import PATH, GatedModel, as_json, ask, assert_says, call, png, predict, says, send, until_entered
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from made_bundles import CLASSES, RAW, image_bundle, pixels, point_bundle, sequence_bundle, table_bundle, text_bundle

from openradial.server import Limits, Service, create_app

IMAGES, POINTS, SEQUENCES, TABLE, TEXTS = (
    make() for make in (image_bundle, point_bundle, sequence_bundle, table_bundle, text_bundle)
)


POINTS = point_bundle()


finite = st.floats(-4, 4, width=32).filter(lambda value: value == 0 or abs(value) > 1e-3)


def test_other_paths_and_methods_are_answered_in_json(make_service):
    service = make_service(POINTS)
    missing, wrong = ask(service, call("/nothing", "GET"), call(PATH, "GET"))
    says(missing, 404, "Not Found")
    says(wrong, 405, "Method Not Allowed")
    assert wrong.headers["allow"] == "POST"


@settings(max_examples=15)
@given(
    x=arrays.arrays(np.float32, st.tuples(st.integers(1, 12), st.just(2)), elements=finite),
    cuts=st.lists(st.integers(1, 11), max_size=4),
    batch=st.integers(1, 6),
    rate=st.sampled_from([None, 0.1, 0.4]),
)
def test_answers_are_those_of_the_bundle_whatever_the_batches(x, cuts, batch, rate):
    service = Service(POINTS, Limits(batch=batch, delay=1.0))
    parts = [part for part in np.split(x, sorted({cut for cut in cuts if cut < len(x)})) if len(part)]
    answers = ask(service, *(call(json={"inputs": part.tolist(), "false_reject_rate": rate}) for part in parts))
    service.batcher.close()
    for part, answer in zip(parts, answers, strict=True):
        assert answer.status_code == 200
        assert_says(answer.json()["predictions"], POINTS.predict(part, rate))


def test_a_rate_may_be_asked_for_in_every_way(make_service):
    bundle, image = image_bundle(), pixels(1, seed=5)[0, 0].numpy()
    service, file = make_service(bundle), png(image)
    answers = [
        predict(service, [image.tolist()], false_reject_rate=0.4),
        send(service, file, "image/png", f"{PATH}?false_reject_rate=0.4"),
        ask(service, call(files={"images": file}, data={"false_reject_rate": "0.4"}))[0],
    ]
    for answer in answers:
        assert answer.json()["false_reject_rate"] == 0.4
        assert_says(answer.json()["predictions"], bundle.predict([file], 0.4))


def test_without_a_rate_the_bundle_s_own_counts(make_service):
    assert predict(make_service(POINTS), [[0.5, 0.5]]).json()["false_reject_rate"] == 0.1


def test_requests_with_different_rates_may_share_a_batch(make_service):
    x = np.random.default_rng(0).normal(size=(1, 2))
    rates = [0.05, 0.1, 0.3, 0.5, 0.9]
    calls = [call(json={"inputs": x.tolist(), "false_reject_rate": rate}) for rate in rates]
    for rate, answer in zip(rates, ask(make_service(POINTS), *calls), strict=True):
        assert_says(answer.json()["predictions"], POINTS.predict(x, rate))


def test_a_broken_image_among_others_is_an_error_in_its_place(make_service):
    bundle, images = image_bundle(), pixels(3, seed=6)[:, 0].numpy()
    files = [("images", (f"{place}.png", png(image))) for place, image in enumerate(images)]
    files.insert(1, ("images", ("broken.png", png(images[0])[:50])))
    answer = ask(make_service(bundle), call(files=files))[0]
    found = answer.json()["predictions"]
    assert answer.status_code == 200
    assert list(found[1]) == ["error"]
    assert found[1]["error"].startswith("the image is damaged (")
    assert_says([found[0], *found[2:]], bundle.predict(list(images)))


def test_where_no_input_can_be_used_the_first_sentence_is_the_answer(make_service):
    answer = predict(make_service(POINTS), [[1, 2, 3], "text"])
    assert answer.status_code == 422
    assert answer.json() == {
        "error": "points must have the shape (b, 2), got (1, 3)",
        "predictions": [
            {"error": "points must have the shape (b, 2), got (1, 3)"},
            {"error": "a point must be an array of numbers, got a string"},
        ],
        "false_reject_rate": 0.1,
    }


def test_the_model_is_described(make_service):
    found = ask(make_service(image_bundle(), batch=7), call("/v1/model", "GET"))[0].json()
    assert found["classes"] == list(CLASSES)
    assert found["network"] == "mlp"
    assert found["inputs"] == {"kind": "images", "shape": [1, 8, 8]}
    assert found["false_reject_rate"] == 0.1
    assert found["facts"]["data"] == {"examples": 60}
    assert found["limits"]["batch"] == 7


def test_the_columns_of_a_table_are_described(make_service):
    found = ask(make_service(table_bundle()), call("/v1/model", "GET"))[0].json()
    assert found["inputs"]["columns"] == ["length", "colour"]


def test_health_and_readiness_are_told(make_service):
    service = make_service(POINTS)
    alive, ready = ask(service, call("/healthz", "GET"), call("/readyz", "GET"))
    assert (alive.status_code, alive.json()) == (200, {"status": "alive"})
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
    service.batcher.close()
    alive, ready = ask(service, call("/healthz", "GET"), call("/readyz", "GET"))
    assert alive.status_code == 200
    assert (ready.status_code, ready.json()) == (503, {"status": "not ready"})


def test_a_service_that_answers_nothing_is_not_ready(make_service, monkeypatch):
    model, service = GatedModel(monkeypatch, is_open=False), make_service(POINTS, stall_timeout=1e-9)

    async def several():
        waiting = service.batcher.submit([[1, 2]])
        await until_entered(model)
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            stalled = await client.get("/readyz")
            model.gate.set()
            await waiting
            return stalled, await client.get("/readyz")

    assert [answer.status_code for answer in asyncio.run(several())] == [503, 200]


def test_a_service_with_a_full_queue_is_not_ready(make_service, monkeypatch):
    model, service = GatedModel(monkeypatch, is_open=False), make_service(POINTS, queue=2, items=2)

    async def several():
        computing = service.batcher.submit([[1, 2]])
        await until_entered(model)
        waiting = service.batcher.submit([[1, 2], [3, 4]])
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            full = await client.get("/readyz")
            model.gate.set()
            await asyncio.gather(computing, waiting)
            return full, await client.get("/readyz")

    assert [answer.status_code for answer in asyncio.run(several())] == [503, 200]


def test_the_description_for_programs_names_every_path_and_status(make_service):
    found = ask(make_service(IMAGES), call("/openapi.json", "GET"))[0].json()
    assert set(found["paths"]) == {"/v1/predict", "/v1/model", "/healthz", "/readyz", "/metrics"}
    operation = found["paths"]["/v1/predict"]["post"]
    assert list(operation["requestBody"]["content"]) == ["application/json", "multipart/form-data", "image/*"]
    assert set(operation["responses"]) == {"200", "400", "401", "408", "413", "415", "422", "431", "503"}


NAMES = {"array": list, "object": dict, "string": str, "number": (int, float), "boolean": bool, "null": type(None)}


def fits(schema, value):
    """Whether a value has the types of a schema."""
    if "anyOf" in schema:
        return any(fits(each, value) for each in schema["anyOf"])
    types = schema.get("type", [])
    if types and not any(isinstance(value, NAMES[name]) for name in ([types] if isinstance(types, str) else types)):
        return False
    if isinstance(value, list):
        return len(value) >= schema.get("minItems", 0) and all(fits(schema.get("items", {}), each) for each in value)
    if isinstance(value, dict):
        return set(schema["required"]) <= value.keys() and all(
            fits(schema["properties"].get(name, {}), each) for name, each in value.items()
        )
    return True


@pytest.mark.parametrize("make", RAW, ids=lambda make: make.__name__)
def test_the_schema_describes_what_is_accepted_and_not_null(make, make_service):
    service, raw = make_service(make()), as_json(RAW[make]())
    request = ask(service, call("/openapi.json", "GET"))[0].json()["paths"]["/v1/predict"]["post"]["requestBody"]
    schema = request["content"]["application/json"]["schema"]
    assert schema["additionalProperties"] is False
    inputs = schema["properties"]["inputs"]
    assert inputs["maxItems"] == service.limits.items
    assert fits(inputs, raw)
    for refused in (None, [], {}, 7, True):
        assert not fits(inputs, [refused])
        assert predict(service, [refused]).status_code == 422
    assert ("text/csv" in request["content"]) == (make is table_bundle)
    assert ("image/*" in request["content"]) == (make is image_bundle)


def test_the_description_for_people_loads_nothing_from_the_web(make_service):
    page = ask(make_service(POINTS), call("/docs", "GET"))[0]
    assert page.headers["content-type"].startswith("text/html")
    assert "POST /v1/predict" in page.text
    assert "src=" not in page.text
    assert page.text.count("href=") == page.text.count('href="openapi.json"') == 1


def test_an_answer_is_json_even_where_a_number_is_infinite(make_service):
    text = predict(make_service(POINTS), [[3e38, 3e38]]).text
    assert json.loads(text, parse_constant=pytest.fail)["predictions"][0]["is_unknown"]
