import csv
import json
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of a run without weights of an encoder."""
    out = tmp_path_factory.mktemp("demo") / "made by it"
    runpy.run_path(str(EXAMPLES / "sentences.py"))["main"](["--out", str(out), "--encoder", "tfidf"])
    return out


def test_the_demo_leaves_a_model_and_a_report(demo):
    assert (demo / "model" / "bundle.json").is_file()
    assert (demo / "report" / "report.html").is_file()


def test_the_model_of_the_demo_knows_known_intents_and_finds_novel_ones(demo):
    found = json.loads((demo / "report" / "report.json").read_text())
    assert found["known"]["accuracy"]["value"] > 0.75
    assert found["known"]["false_reject_rate"]["measured"] < 0.12
    assert found["novel"][0]["examples"] == 240
    assert found["novel"][0]["metrics"]["auroc"]["value"] > 0.7


def test_the_demo_may_run_again_and_says_what_to_try_next(demo, capsys):
    runpy.run_path(str(EXAMPLES / "sentences.py"))["main"](["--out", str(demo), "--encoder", "tfidf"])
    said = capsys.readouterr().out
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
