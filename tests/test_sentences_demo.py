import contextlib
import csv
import io
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

import openradial

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of a run without weights of an encoder, after another run; and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "made by it"
    points = np.random.default_rng(0).normal(size=(60, 2)) + 9 * np.eye(2)[np.arange(60) % 2]
    openradial.fit((points, np.arange(60) % 2), out=out / "model", baseline=False, show_progress=False)
    (out / "report").mkdir()
    (out / "report" / "report.html").write_text("old")
    with contextlib.redirect_stdout(io.StringIO()) as output:
        runpy.run_path(str(EXAMPLES / "sentences.py"))["main"](["--out", str(out), "--encoder", "tfidf"])
    (out / "output.txt").write_text(output.getvalue())
    return out


def test_the_demo_leaves_a_model_and_a_report(demo):
    assert len(openradial.load(demo / "model").classes) == 24
    assert (demo / "report" / "report.html").read_text() != "old"


def test_the_model_of_the_demo_knows_known_intents_and_finds_novel_ones(demo):
    found = json.loads((demo / "report" / "report.json").read_text())
    assert found["known"]["accuracy"]["value"] > 0.75
    assert found["known"]["false_reject_rate"]["measured"] < 0.12
    assert found["novel"][0]["examples"] == 240
    assert found["novel"][0]["metrics"]["auroc"]["value"] > 0.7


def test_the_demo_says_what_to_try_next(demo):
    said = (demo / "output.txt").read_text()
    commands = ("$ openradial fit", "$ openradial evaluate", "$ openradial predict")
    for text in (*commands, "\nWill it rain in Berlin tomorrow? ", "What to try next"):
        assert text in said


def test_novel_sentences_are_of_other_intents():
    intents = {}
    for part in ("train", "test", "novel"):
        with (EXAMPLES / "banking77" / f"{part}.csv").open(encoding="utf-8", newline="") as file:
            intents[part] = {row["category"] for row in csv.DictReader(file)}
    assert len(intents["train"]) == 24
    assert intents["train"] == intents["test"]
    assert not intents["train"] & intents["novel"]


def test_a_figure_shows_both_methods_on_the_same_sentences(tmp_path, capsys):
    """Answers are given here: fitting takes long, and the demo does it."""
    main = runpy.run_path(str(EXAMPLES / "sentences_figure.py"))["main"]
    asked = {}

    def answer(name, probability):
        def answered(encoder, inputs):
            asked[name] = inputs
            return [(np.full(len(each), name), np.full(len(each), probability)) for each in inputs]

        return answered

    main.__globals__["logistic_regression"] = answer("card_arrival", 0.95)
    main.__globals__["radial"] = answer("unknown", 0.5)
    measures = main(["--out", str(tmp_path)])
    assert (tmp_path / "sentences.png").stat().st_size > 10_000
    assert asked["card_arrival"] == asked["unknown"]
    assert [len(each) for each in asked["unknown"]] == [480, 240]
    assert measures["logistic regression, novel with p > 0.9"] == 1
    assert measures["openradial, novel called unknown"] == 1
    assert "openradial, AUROC of the winning probability" in capsys.readouterr().out
