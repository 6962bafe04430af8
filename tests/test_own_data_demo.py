import json
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[1] / "examples" / "own_data.py"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What the demo prints with few epochs, and its folder."""
    out = tmp_path_factory.mktemp("demo") / "made by it"
    runpy.run_path(str(DEMO))["main"](["--out", str(out), "--epochs", "8"])
    return out


def test_the_demo_leaves_images_a_model_and_a_report(demo):
    assert sorted(path.name for path in (demo / "digits" / "train").iterdir()) == list("012345")
    assert sorted(path.name for path in (demo / "novel").iterdir()) == list("6789")
    assert (demo / "model" / "bundle.json").is_file()
    assert (demo / "report" / "report.html").is_file()


def test_the_model_of_the_demo_knows_known_digits_and_finds_novel_ones(demo):
    found = json.loads((demo / "report" / "report.json").read_text())
    assert found["known"]["accuracy"]["value"] > 0.9
    assert found["known"]["false_reject_rate"]["measured"] < 0.15
    assert found["novel"][0]["examples"] == 141
    assert found["novel"][0]["metrics"]["auroc"]["value"] > 0.85


def test_the_demo_may_run_again_and_says_what_to_try_next(demo, capsys):
    runpy.run_path(str(DEMO))["main"](["--out", str(demo), "--epochs", "1"])
    said = capsys.readouterr().out
    for text in ("$ openradial fit", "$ openradial evaluate", "$ openradial predict", "What to try next"):
        assert text in said
