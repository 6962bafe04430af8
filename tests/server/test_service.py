import asyncio

import numpy as np
import pytest
from asking import GatedModel, assert_says, predict, says, until_entered
from made_bundles import image_bundle, point_bundle, sequence_bundle, table_bundle, text_bundle

from openradial.fitting import fit
from openradial.server import RequestError, create_app
from openradial.server import service as services
from openradial.server.requests import PredictRequest

IMAGES, POINTS, SEQUENCES, TABLE, TEXTS = (
    make() for make in (image_bundle, point_bundle, sequence_bundle, table_bundle, text_bundle)
)


BUNDLE = point_bundle()


X = np.random.default_rng(2).normal(size=(40, 2))


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


@pytest.mark.parametrize("rate", [1e-300, 5e-324, 1e-9])
def test_tiny_rates_are_422_at_once(rate, make_service, must_end):
    answer = predict(make_service(POINTS), [[1, 2]], false_reject_rate=rate)
    assert answer.status_code == 422
    assert "ask for a rate of at least 1/51" in answer.json()["error"]


def test_a_rate_is_422_where_the_model_rejects_nothing(make_service):
    bundle = image_bundle(scorers=None, rejector=False)
    service = make_service(bundle)
    says(
        predict(service, [[[1]]], false_reject_rate=0.1),
        422,
        "this model has no rejector; leave false_reject_rate out",
    )
    assert predict(service, [[[1]]]).json()["false_reject_rate"] is None


def test_a_rate_is_checked_for_each_class_where_each_has_its_own(make_service):
    service = make_service(image_bundle(scorers=None, per_class=True))
    assert predict(service, [[[1]]], false_reject_rate=0.3).status_code == 200
    assert "in each class" in predict(service, [[[1]]], false_reject_rate=0.001).json()["error"]


def test_a_client_that_vanishes_gives_its_place_in_the_queue_away(make_service, monkeypatch):
    monkeypatch.setattr(services, "FIRST_CHECK", 0.0)
    model, service = GatedModel(monkeypatch, is_open=False), make_service(BUNDLE)

    async def several():
        first = service.batcher.submit([X[0].tolist()])
        await until_entered(model)
        with pytest.raises(RequestError) as refused:
            await service.predict(PredictRequest([X[1].tolist()], None), lambda: asyncio.sleep(0))
        model.gate.set()
        await first
        return refused.value.status

    assert asyncio.run(several()) == 499
    service.batcher.close()
    assert model.rows == [1]
    assert "openradial_disconnected_total 1.0" in service.metrics.text().decode()


def test_an_answer_that_takes_too_long_is_503(make_service, monkeypatch):
    monkeypatch.setattr(services, "FIRST_CHECK", 0.0)
    model, service = GatedModel(monkeypatch, is_open=False), make_service(BUNDLE, response_timeout=0.01)
    answer = predict(service, [X[0].tolist()])
    model.gate.set()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"error": "the response took more than 0.01 s; retry later"}


def test_an_answer_that_takes_long_comes_nevertheless(make_service, monkeypatch):
    monkeypatch.setattr(services, "FIRST_CHECK", 0.0)
    model, service = GatedModel(monkeypatch, is_open=False), make_service(BUNDLE)

    async def stay():
        model.gate.set()
        await asyncio.Event().wait()

    assert_says(asyncio.run(service.predict(PredictRequest([X[0].tolist()], None), stay)), BUNDLE.predict(X[:1]))


def test_the_lifespan_of_the_application_warms_up_and_closes(make_service, monkeypatch):
    model, service = GatedModel(monkeypatch), make_service(BUNDLE)

    async def live():
        app = create_app(service)
        async with app.router.lifespan_context(app):
            assert model.rows == [1]
            assert service.batcher.is_open

    asyncio.run(live())
    assert not service.batcher.is_open
    assert predict(service, [X[0].tolist()]).json() == {"error": "the service is stopping; retry later"}


def test_a_model_of_inputs_of_any_length_is_not_warmed_up(make_service, monkeypatch):
    model = GatedModel(monkeypatch)
    make_service(sequence_bundle()).warm_up()
    assert model.rows == []


def test_a_model_of_texts_is_warmed_up_with_an_empty_text(make_service, monkeypatch):
    model = GatedModel(monkeypatch)
    make_service(text_bundle()).warm_up()
    assert model.rows == [1]


def test_a_closed_form_model_of_a_table_is_served(make_service):
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    model = fit((rng.normal(size=(120, 2)) + 5 * y[:, None], np.array(["low", "high"])[y]), random_features=20)
    answer = predict(make_service(model), [{"x0": 0, "x1": 0}, {"x0": 5, "x1": 5}, {"x0": 90, "x1": -90}])
    assert [each["label"] for each in answer.json()["predictions"]] == ["low", "high", "unknown"]
