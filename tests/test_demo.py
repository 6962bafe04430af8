import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[1] / "examples" / "digits_demo.py"


@pytest.fixture(scope="module")
def demo():
    return runpy.run_path(str(DEMO))


@pytest.fixture(scope="module")
def result(demo, tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "made" / "by the demo"
    return demo["main"](["--out", str(out), "--seeds", "2", "--epochs", "15"]), out / "openradial-demo.png"


def test_the_picture_is_a_png(result):
    assert result[1].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("method", ["softmax", "radial"])
def test_both_networks_learn_the_known_digits(result, method):
    assert all(run["accuracy"] > 0.9 for run in result[0][method])


def test_every_measure_is_a_share(result):
    runs = [run for runs in result[0].values() for run in runs]
    assert len(runs) == 4
    assert all(0 <= value <= 1 for run in runs for value in run.values())


@pytest.mark.parametrize("method", ["softmax", "radial"])
def test_known_digits_get_higher_probabilities_than_novel_ones(result, method):
    assert all(run["known"] > run["novel"] and run["auroc"] > 0.8 for run in result[0][method])


def test_the_radial_layer_is_less_sure_of_novel_digits(result):
    softmax, radial = result[0]["softmax"], result[0]["radial"]
    assert all(r["novel"] < s["novel"] / 2 for s, r in zip(softmax, radial, strict=True))


def test_novel_digits_are_in_no_training_set(demo):
    split = demo["split_digits"](0)
    assert split.train_y.unique().tolist() == split.test_y.unique().tolist() == [0, 1, 2, 3, 4, 5]
    assert split.novel_y.unique().tolist() == [6, 7, 8, 9]
    assert len(split.train_y) + len(split.calibration_x) + len(split.test_y) + len(split.novel_y) == 1797


@pytest.mark.parametrize("method", ["softmax", "radial"])
def test_the_rejector_finds_more_novel_digits_than_known_ones(result, method):
    assert all(run["known_rejected"] < 0.15 and run["novel_rejected"] > 0.4 for run in result[0][method])


def test_what_is_decided_is_shown(demo, tmp_path, capsys):
    demo["main"](["--out", str(tmp_path), "--seeds", "1", "--epochs", "10"])
    said = capsys.readouterr().out
    assert said.split("digits of the picture")[1].count("unknown") >= 3


@pytest.mark.parametrize("option", ["--seeds", "--epochs"])
def test_zero_runs_are_refused(demo, option, capsys):
    with pytest.raises(SystemExit, match="2"):
        demo["main"]([option, "0"])
    assert "--seeds and --epochs must be at least 1" in capsys.readouterr().err
