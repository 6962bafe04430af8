"""Texts that nobody expects: every command answers, or says in one sentence what is wrong."""

import asyncio
import json
import os

import httpx
import pytest

import openradial
from openradial import encoders
from openradial.errors import FetchError, MissingError
from openradial.evaluation.html_report import render_report
from openradial.server import Service, create_app

BAD = {
    "empty": "",
    "blank": " \n\t ",
    "one word": "card",
    "German": "Wo bleibt meine Karte?",
    "Chinese": "我的卡在哪里",
    "Arabic": "أين بطاقتي",
    "emoji": "💳❓🤷‍♀️",
    "lone surrogate": "card \ud800 lost",
    "NUL": "card\0lost",
    "HTML": "<p>where is my <b>card</b>?</p>&nbsp;<script>alert(1)</script>",
    "words": "card lost " * 10_000,
    "1 MB of letters": "a" * 10**6,
    "1 MB of spaces": "card" + " " * 10**6 + "lost",
    "1 MB of emojis": "💳" * 250_000,
}
WITHOUT_WORDS = ("empty", "blank", "Chinese", "emoji", "1 MB of letters", "1 MB of emojis")


def examples():
    words = {"card": ("card", "visa", "pin"), "rate": ("rate", "fee", "price")}
    times = ("now", "today", "at once", "this week", "again", "quickly")
    return [
        (f"{verb} my {thing} {when}", name)
        for name, things in words.items()
        for verb in ("I lost", "please block", "show me")
        for thing in things
        for when in times
    ]


@pytest.fixture(scope="module", params=["tfidf", "minilm"])
def model(request, tmp_path_factory):
    if request.param == "minilm":
        try:
            encoders.load("minilm")
        except (FetchError, MissingError) as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"the encoder minilm cannot be had here: {error}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("openradial.encoders.cache.features_folder", lambda: tmp_path_factory.mktemp("features"))
        texts, labels = zip(*examples(), strict=True)
        return openradial.fit((list(texts), list(labels)), encoder=request.param)


@pytest.fixture(scope="module")
def names(model):
    """The answers to all of them in one batch."""
    return model.predict(list(BAD.values())).names


def test_each_is_predicted_and_the_same_in_a_batch(model, names):
    assert [model.predict([text])[0].label for text in BAD.values()] == names


def test_a_text_without_any_word_of_the_training_texts_is_unknown(model, names):
    if model.network[1]["encoder"] == "tfidf":
        assert {answer for bad, answer in zip(BAD, names, strict=True) if bad in WITHOUT_WORDS} == {"unknown"}


def test_the_service_answers_each(model, names):
    app = create_app(Service(model))

    async def send():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            body = json.dumps({"inputs": list(BAD.values())})  # escapes the surrogate
            return await client.post("/v1/predict", content=body, headers={"Content-Type": "application/json"})

    answer = asyncio.run(send())
    app.state.service.batcher.close()
    assert answer.status_code == 200
    assert [row["label"] for row in answer.json()["predictions"]] == names


def test_evaluate_shows_them_in_its_report(model, names, tmp_path):
    known, novel = tmp_path / "known.jsonl", tmp_path / "novel.jsonl"
    known.write_text("\n".join(json.dumps({"text": text, "label": name}) for text, name in examples()[::6]))
    novel.write_text("\n".join(json.dumps({"text": text, "label": "other"}) for text in BAD.values()))
    evaluation = model.evaluate(str(known), [str(novel)], label="label")
    assert evaluation.novel[0].predictions.names == names
    page = render_report(evaluation, model)
    page.encode()
    assert "<script>alert" not in page


def test_they_can_be_fitted(tmp_path):
    rows = [*examples(), *((text, "card") for text in BAD.values())]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(json.dumps({"text": text, "label": name}) for text, name in rows))
    model = openradial.fit(str(path), label="label", encoder="tfidf")
    assert model.predict(["I lost my visa today"]).names == ["card"]
