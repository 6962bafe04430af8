"""Exports of the digits' bundle, as ONNX and by torch.export; each is made once, because tracing takes seconds."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from made_bundles import CLASSES, classifier, point_bundle
from onnx import helper
from PIL import Image
from torch import nn

from openradial import data
from openradial.bundle import load
from openradial.classifier import Predictions
from openradial.data.inputs import PointInputs
from openradial.errors import DataError, ExportError, MissingError, OptionError, ShapeError
from openradial.export import OnnxModel, TorchModel, to_onnx, to_torch
from openradial.export.graph import Graph
from openradial.export.writers import trace

MODEL = Path(__file__).parents[1] / "bundle" / "data" / "digits"


@pytest.fixture(scope="module")
def bundle():
    return load(MODEL)


@pytest.fixture(scope="module")
def digits():
    """All test digits, those of the four classes that the model does not know among them."""
    return data.load("digits", "test").inputs


@pytest.fixture(scope="module")
def files(bundle, digits, tmp_path_factory):
    """An ONNX file and a program of torch, from one trace, each with its agreement."""
    folder, program = tmp_path_factory.mktemp("exports"), trace(Graph(bundle), bundle)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("openradial.export.writers.trace", lambda *_: program)
        writers = {"onnx": (to_onnx, folder / "model.onnx"), "torch": (to_torch, folder / "model.pt2")}
        return {name: (path, write(bundle, path, digits)) for name, (write, path) in writers.items()}


@pytest.fixture(scope="module")
def onnx_file(files):
    return files["onnx"]


@pytest.fixture(scope="module")
def torch_file(files):
    return files["torch"]


@pytest.fixture(scope="module", params=["onnx", "torch"])
def exported(request, files):
    path, agreement = files[request.param]
    return (OnnxModel if request.param == "onnx" else TorchModel)(path), agreement


@pytest.mark.slow
def test_the_agreement_on_real_digits_is_stated(exported):
    _, agreement = exported
    assert agreement.real
    assert agreement.examples == 355
    assert agreement.ties == 0
    assert agreement.rates == (0.05, 0.5)
    assert max(agreement.probability, agreement.unknown_score, agreement.distance) < 1e-4
    assert str(agreement).startswith("355 given inputs: all decisions equal; largest differences: probability ")


@pytest.mark.parametrize("rate", [None, 0.01, 0.05, 0.2, 0.9])
def test_decisions_are_those_of_the_bundle_at_every_rate(exported, bundle, digits, rate):
    own, found = bundle.predict(digits, rate), exported[0].predict(digits, rate)
    np.testing.assert_array_equal(found.labels, own.labels)
    np.testing.assert_array_equal(found.nearest, own.nearest)
    np.testing.assert_array_equal(found.top, own.top)
    np.testing.assert_allclose(found.p_values, own.p_values, atol=0.01)
    np.testing.assert_allclose(found.top_probability, own.top_probability, atol=1e-5)
    np.testing.assert_allclose(found.unknown_score, own.unknown_score, rtol=1e-4, atol=1e-4)
    assert [getattr(found, name).dtype for name in ("labels", "top", "distance", "p_values")] == [
        getattr(own, name).dtype for name in ("labels", "top", "distance", "p_values")
    ]


def test_a_batch_may_have_any_size(exported, digits):
    model, _ = exported
    whole = model.predict(digits)
    for size in (1, 2, 7):
        np.testing.assert_array_equal(model.predict(digits[:size]).labels, whole.labels[:size])
    assert len(model.predict(digits[:0])) == len(model.predict([])) == 0


def test_a_folder_of_images_is_predicted_alike(exported, bundle, digits, tmp_path):
    paths = [tmp_path / f"{place}.png" for place in range(40)]
    for path, image in zip(paths, digits[::9, 0].numpy(), strict=True):
        Image.fromarray(image).resize((24, 16), Image.Resampling.NEAREST).save(path)
    own, found = bundle.predict(paths), exported[0].predict(paths)
    np.testing.assert_array_equal(found.labels, own.labels)
    np.testing.assert_allclose(found.probability, own.probability, atol=1e-5)
    with pytest.raises(DataError, match="cannot be read"):
        exported[0].predict([tmp_path / "none.png"])


def test_a_rate_that_cannot_be_served_is_refused(exported, digits):
    model, _ = exported
    assert model.smallest_rate == pytest.approx(1 / 215)
    with pytest.raises(
        OptionError, match=r"^false_reject_rate must be at least 0.00465116, the smallest .* got 0.001;"
    ):
        model.predict(digits, 0.001)
    with pytest.raises(OptionError, match=r"^false_reject_rate must be a number above 0 and below 1, got 2"):
        model.predict(digits, 2)
    with pytest.raises(ShapeError, match="prepared images must have the shape"):
        model.predict(torch.zeros(3, 8, 8, dtype=torch.uint8))


def test_an_export_names_no_folder_of_the_machine_it_was_made_on(onnx_file, torch_file):
    for path, _ in (onnx_file, torch_file):
        assert str(Path(__file__).parents[2]).encode() not in path.read_bytes()
        assert not list(path.parent.glob(".*"))


def test_the_rate_is_an_input_with_a_default(onnx_file):
    session = OnnxModel(onnx_file[0])._session
    assert [(each.name, each.type, each.shape[1:]) for each in session.get_inputs()] == [
        ("inputs", "tensor(uint8)", [1, 8, 8])
    ]
    assert [(each.name, each.type) for each in session.get_overridable_initializers()] == [
        ("false_reject_rate", "tensor(double)")
    ]
    names = [each.name for each in session.get_outputs()]
    assert names == ["log_probs", "nearest", "distance", "unknown_score", "p_value", "decision"]


def test_the_script_of_the_page_runs_without_torch(onnx_file, bundle, digits, tmp_path, python_blocks):
    (tmp_path / "model.onnx").write_bytes(onnx_file[0].read_bytes())
    Image.fromarray(digits[3, 0].numpy()).save(tmp_path / "photo.png")
    script = next(block for block in python_blocks("export.md") if "from PIL" in block)
    assert len([line for line in script.splitlines() if line.strip()]) <= 12
    (tmp_path / "script.py").write_text(script)
    code = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path('script.py')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = bundle.predict(digits[3:4], 0.01)
    label, probability, p_value = done.stdout.split()
    assert label == expected.names[0]
    assert float(probability) == pytest.approx(expected.probability[0], abs=1e-3)
    assert float(p_value) == pytest.approx(expected.p_values[0], abs=0.01)


def test_the_program_of_the_page_runs_by_torch_alone(torch_file, bundle, python_blocks, monkeypatch):
    monkeypatch.chdir(torch_file[0].parent)
    names = {}
    exec(next(block for block in python_blocks("export.md") if "torch.export.load" in block), names)
    black = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    assert names["outputs"][-1].tolist() == bundle.predict(black).labels.tolist()


def test_the_first_lines_of_the_page_run(onnx_file, digits, python_blocks, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(MODEL, "model")
    Image.fromarray(digits[3, 0].numpy()).save("photo.png")
    made = onnx_file[0].read_bytes()
    monkeypatch.setattr("openradial.export.writers._onnx_bytes", lambda *_: made)  # it takes seconds
    exec(python_blocks("export.md")[0], {})
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("1 given inputs: all decisions equal")
    assert second.startswith("['")


def test_an_export_that_does_not_agree_is_not_kept(bundle, digits, tmp_path, monkeypatch, onnx_file):
    path, made = tmp_path / "model.onnx", onnx_file[0].read_bytes()
    path.write_bytes(b"what was there")
    honest = OnnxModel._predictions

    def flipped(self, found):
        return honest(self, {**found, "decision": np.where(found["decision"] < 0, found["nearest"], -1)})

    monkeypatch.setattr("openradial.export.writers._onnx_bytes", lambda *_: made)
    monkeypatch.setattr(OnnxModel, "_predictions", flipped)
    with pytest.raises(ExportError, match=r"^the exported graph disagrees with PyTorch: \d+ of 355 decisions"):
        to_onnx(bundle, path, digits)
    assert path.read_bytes() == b"what was there"
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("kind", [OnnxModel, TorchModel])
def test_other_files_are_no_exports(kind, tmp_path):
    with pytest.raises(ExportError, match=r"^expected an exported file, but .*none does not exist$"):
        kind(tmp_path / "none")
    with pytest.raises(ExportError, match=r"^expected an exported file, but .* is a folder$"):
        kind(tmp_path)
    (tmp_path / "noise").write_bytes(b"noise" * 100)
    with pytest.raises(ExportError, match=r"noise cannot be run by (onnxruntime|torch) as an export of openradial \("):
        kind(tmp_path / "noise")


def test_a_graph_that_onnxruntime_cannot_run_is_refused(tmp_path):
    from onnx import TensorProto, helper

    node = helper.make_node("Atan", ["inputs"], ["y"])  # of float64, which onnxruntime does not have
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["b"]) for name in ("inputs", "y")]
    graph = helper.make_graph([node], "odd", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path / "odd.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ExportError, match=r"odd.onnx cannot be run by onnxruntime .*Atan"):
        OnnxModel(path)


def test_the_facts_of_an_export_are_its_bundles(onnx_file, bundle):
    model = OnnxModel(onnx_file[0])
    assert model.classes == bundle.classes
    assert model.preprocessing == bundle.preprocessing
    assert model.false_reject_rate == 0.05
    facts = json.loads(model._session.get_modelmeta().custom_metadata_map["openradial"])
    assert facts["format"] == "openradial export 1"
    assert isinstance(model.predict([]), Predictions)


class Choosy(nn.Module):
    """A network with a choice that depends on values."""

    def __init__(self, num_classes):
        super().__init__()
        self.classifier = nn.Linear(2, num_classes)

    def forward(self, x):
        return self.classifier(x) if x.sum() > 0 else self.classifier(-x)


def test_a_network_with_choices_cannot_be_traced(tmp_path):
    torch.manual_seed(0)
    made = classifier(Choosy(3), torch.randn(40, 2)).replace(
        network=(f"{__name__}:Choosy", {}), classes=CLASSES, preprocessing=PointInputs(2)
    )
    message = r"^the network \S+:Choosy with RadialHead cannot be traced \(.+\); a network with data-dependent branches"
    with pytest.raises(ExportError, match=message) as raised:
        to_torch(made, tmp_path / "model")
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def onnx_exporter(monkeypatch):
    """Let ``torch.onnx.export`` do something else, without tracing."""

    def replace(exporter):
        monkeypatch.setattr("openradial.export.writers.trace", lambda *_: None)
        monkeypatch.setattr(torch.onnx, "export", exporter)

    return replace


def test_an_operation_that_onnx_does_not_have_is_named(onnx_exporter, tmp_path):
    def fails(*arguments, **options):
        raise RuntimeError("no such operator\nat all")

    onnx_exporter(fails)
    with pytest.raises(ExportError, match=r"^the network spiral_radial cannot be converted to ONNX \(no such op"):
        to_onnx(point_bundle(), tmp_path / "model.onnx")


def test_an_onnx_file_that_would_be_too_large_is_refused(onnx_exporter, tmp_path, monkeypatch):
    model = helper.make_model(helper.make_graph([], "empty", [], []))
    onnx_exporter(lambda *arguments, **options: SimpleNamespace(model_proto=model))
    monkeypatch.setattr("openradial.export.writers.LARGEST", 10)
    with pytest.raises(ExportError, match=r"^an ONNX file can have at most 2 GB, and this one would have [\d,]+ bytes"):
        to_onnx(point_bundle(), tmp_path / "model.onnx")


def test_a_disk_that_fails_is_one_sentence(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("openradial.export.writers._onnx_bytes", full)
    with pytest.raises(
        ExportError, match=r"^the export cannot be written to .*model.onnx \(\[Errno 28\] No space left"
    ):
        to_onnx(point_bundle(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_names_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        MissingError, match=r"onnxruntime, which is not installed; run: pip install 'openradial\[onnx\]'"
    ):
        to_onnx(point_bundle(), tmp_path / "model.onnx")


def test_a_folder_is_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr("openradial.export.writers.trace", lambda *_: None)
    with pytest.raises(OptionError, match=r"^expected a file to export to, got the folder .*; name a file in it$"):
        to_onnx(point_bundle(), tmp_path)
