"""Known sentences beside a new one: what the route answers, and what the page shows."""

import json
from contextlib import contextmanager

import httpx
import pytest

import openradial
from openradial.errors import DataError
from openradial.server import Service, http_server
from openradial.server.playground import create_playground
from openradial.server.playground.digits import digit_model
from openradial.server.playground.sentences import Sentences


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of sentences of two classes."""
    path = tmp_path_factory.mktemp("sentences") / "train.csv"
    times = ("now", "today", "soon", "at once", "this week", "again")
    rows = [
        f"{verb} {thing} {when},{name}"
        for name, things in (("card", ("my card", "my visa")), ("rate", ("the fee", "the price")))
        for verb in ("I lost", "show me", "block")
        for thing in things
        for when in times
    ]
    path.write_text("\n".join(["text,kind", *rows]))
    return path


@pytest.fixture(scope="module")
def model(table):
    return openradial.fit(table, label="kind", encoder="tfidf")


def test_the_nearest_sentences_are_those_of_the_largest_cosine(model, table):
    sentences = Sentences(model, str(table))
    matches = sentences.about("I lost my card today", 0.1)
    assert matches["threshold"] == model.rejector.threshold(0.1)
    assert matches["nearest"][0] == {"text": "I lost my card today", "class": "card", "similarity": pytest.approx(1.0)}
    cosines = [each["similarity"] for each in matches["nearest"]]
    assert cosines == sorted(cosines, reverse=True)
    assert len(cosines) == 5


@pytest.mark.parametrize("rate", [1e-300, "many", True, 2])
def test_a_rate_that_cannot_be_used_has_no_threshold(model, rate):
    assert Sentences(model).about("I lost my card", rate) == {"threshold": None, "nearest": []}


def test_sentences_belong_to_a_model_of_texts(table):
    with pytest.raises(DataError, match="--data belongs to a model of texts, and this one takes images"):
        Sentences(digit_model("radial"), str(table))


@pytest.fixture(scope="module")
def url(served, model, table):
    with http_server.listen("127.0.0.1", 0) as opened:
        sentences = Sentences(model, str(table))
        app = create_playground(Service(model), title="cards", sentences=sentences, stopped=lambda: opened.fileno() < 0)
        with served(app, opened) as address:
            yield address


def test_the_route_answers_a_text_and_refuses_others(url):
    with httpx.Client(base_url=url, timeout=300) as client:
        assert client.post("/play/sentence", json={"text": "my visa"}).json()["nearest"][0]["class"] == "card"
        answer = client.post("/play/sentence", json={"text": 3})
        assert (answer.status_code, answer.json()["error"]) == (422, "a text must be a str, got int; decode it first")
        lone = json.dumps({"text": "\ud800", "rate": None})
        assert client.post("/play/sentence", content=lone).status_code == 200
        assert client.post("/play/sentence", content=b"[]").status_code == 422


def test_a_sentence_is_answered_while_it_is_typed(visit, url):
    page = visit(f"{url}/#/model")
    page.get_by_label("Type a sentence").fill("I lost my visa today")
    page.wait_for_function("() => document.querySelector('#sentence-verdict').textContent === 'card'")
    assert page.locator("#sentence-classes .class").all_inner_texts() == ["card", "rate"]
    assert page.locator("#sentence-nearest li").first.inner_text().startswith("I lost my visa today")
    assert "threshold" in page.inner_text("#sentence-facts")
    assert page.locator("#sentence-score").is_visible()
    page.get_by_label("Type a sentence").fill("zebras <b>sing</b>")
    page.wait_for_function("() => document.querySelector('#sentence-verdict').textContent === 'Unknown'")
    assert page.inner_text("#model-said").startswith("Unknown; unknown score")
    page.get_by_label("Type a sentence").fill(" ")
    page.wait_for_function("() => document.querySelector('#sentence-verdict').textContent === ''")
    assert page.inner_text("#model-said") == ""


def test_the_progress_of_encoding_the_sentences_is_shown(model, table, monkeypatch):
    shown = []

    @contextmanager
    def bar(title, total, *, unit):
        shown.append((title, total, unit))
        yield shown.append

    monkeypatch.setattr("openradial.server.playground.sentences.bar", bar)
    Sentences(model, str(table))
    assert shown[0] == ("encoding", 72, "texts")
    assert sum(shown[1:]) == 72
