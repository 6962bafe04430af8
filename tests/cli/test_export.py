import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import nn

from openradial.bundle import save
from openradial.classifier import OpenClassifier
from openradial.data.inputs import PointInputs
from openradial.export import Agreement
from openradial.heads import RadialHead

MODEL = Path(__file__).parents[1] / "bundle" / "data" / "digits"
NETWORK = "from torch.nn import Linear\nmake = lambda num_classes: Linear(2, num_classes)\n"
AGREED = Agreement(3, True, (0.05, 0.5), 1e-7, 2e-6, 3e-7, 0.0, 0)


@pytest.fixture
def export(call, monkeypatch):
    """Run ``openradial export`` without tracing: exit code, output, errors, and what was to be written."""
    calls = []

    def write(bundle, path, check):
        calls.append((bundle.classes, path, check))
        path.write_bytes(b"12345")
        return AGREED

    monkeypatch.setattr("openradial.export.to_onnx", write)
    monkeypatch.setattr("openradial.export.to_torch", write)

    def run(*arguments):
        return *call("export", *arguments), calls

    return run


@pytest.mark.parametrize(("target", "ending"), [("onnx", "onnx"), ("torch", "pt2")])
def test_a_file_is_written_beside_the_model(export, tmp_path, monkeypatch, target, ending):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(MODEL, "model")
    code, out, err, calls = export("model/", "--to", target)
    assert (code, err) == (0, "")
    assert calls == [(tuple("012345"), tmp_path / f"model.{ending}", None)]
    assert out == (
        "checked on 3 given inputs: all decisions equal; largest differences: probability 1e-07, unknown score 2e-06, "
        f"distance 3e-07, p-value 0\nwritten: {tmp_path}/model.{ending} (0.00 MB)\n"
    )


def test_a_script_reads_json(export, tmp_path):
    code, out, _, _ = export(MODEL, "--out", tmp_path / "a.onnx", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["file"], found["bytes"], found["ties"]) == (str(tmp_path / "a.onnx"), 5, 0)


def test_the_export_is_checked_on_what_is_named(export, tmp_path):
    for name in ("a.png", "b.png"):
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / name)
    _, _, _, calls = export(MODEL, "--out", tmp_path / "a.onnx", "--check", tmp_path)
    assert [Path(path).name for path in calls[0][2]] == ["a.png", "b.png"]


def test_nothing_to_check_on_is_one_line(export, tmp_path):
    code, out, err, calls = export(MODEL, "--check", tmp_path)
    assert (code, out, calls) == (1, "", [])
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1


def test_another_target_is_bad_use(export):
    code, _, _, calls = export(MODEL, "--to", "tensorrt")
    assert (code, calls) == (2, [])


def test_a_model_that_is_not_there_is_exit_code_1(export, tmp_path):
    code, _, err, _ = export(tmp_path / "none")
    assert (code, err) == (1, f"error: expected the folder of a bundle, but {tmp_path / 'none'} does not exist\n")


def test_a_module_of_the_users_beside_the_run_is_found(export, tmp_path, monkeypatch):
    (tmp_path / "nets_beside.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    model = OpenClassifier(nn.Linear(2, 2), RadialHead(2))
    save(model.replace(network=("nets_beside:make", {}), classes=("a", "b"), preprocessing=PointInputs(2)), "model")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(tmp_path)])
    monkeypatch.delitem(sys.modules, "nets_beside")
    code, _, err, _ = export("model")
    assert (code, "--module nets_beside" in err) == (1, True)
    code, _, err, calls = export("model", "--module", "nets_beside")
    assert (code, err, calls[0][0]) == (0, "", ("a", "b"))
