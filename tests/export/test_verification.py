"""When an export counts as equal, and what cannot be exported; nothing is written here."""

import dataclasses
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from made_bundles import CLASSES, RAW, classifier, image_bundle, pixels, point_bundle
from onnx import helper
from torch import nn

from openradial.bundle import Bundle, PointInputs
from openradial.errors import ExportError, MissingError, OptionError
from openradial.export import to_onnx, to_torch
from openradial.export.verification import compare, random_inputs


@pytest.fixture(scope="module")
def bundle():
    return image_bundle()


def changed(bundle, **change):
    """A prediction in which some arrays are changed."""

    def predict(x, rate):
        own = bundle.predict(x, rate)
        return dataclasses.replace(own, **{name: how(getattr(own, name)) for name, how in change.items()})

    return predict


def test_a_bundle_agrees_with_itself(bundle):
    agreement = compare(bundle, bundle.predict, pixels(20, seed=9))
    assert (agreement.examples, agreement.real, agreement.ties) == (20, True, 0)
    assert agreement.probability == agreement.unknown_score == agreement.distance == agreement.p_value == 0


def test_random_inputs_are_reported_as_such(bundle):
    agreement = compare(bundle, bundle.predict)
    assert not agreement.real
    assert str(agreement).startswith("64 random inputs: all decisions equal; largest differences: probability 0,")


@pytest.mark.parametrize("make", RAW, ids=lambda make: make.__name__)
def test_random_inputs_are_prepared_ones(make):
    own = make()
    x = random_inputs(own.preprocessing)
    own.preprocessing.check(x)
    assert torch.equal(x.nan_to_num(), random_inputs(own.preprocessing).nan_to_num())
    assert compare(own, own.predict).ties == 0


CHANGES = {
    "score": ({"unknown_score": lambda s: s * 1.01}, r"unknown score \S+, expected \S+; export to another"),
    "nan": ({"unknown_score": lambda s: np.full_like(s, np.nan)}, "decisions differ|finite unknown score"),
    "probability": ({"probability": lambda p: p + 0.01}, r"probability \S+, expected"),
    "distance": ({"distance": lambda d: None}, "does not return a distance for every input"),
    "shape": ({"p_values": lambda p: p[:-1]}, "does not return a p-value for every input"),
    "decision": (
        {"labels": lambda y: np.full_like(y, -1)},
        r"of 20 decisions differ, the first is 'unknown', expected",
    ),
    "class": ({"nearest": lambda y: (y + 1) % 3, "labels": lambda y: y}, "of 20 decisions differ"),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_what_differs_by_more_than_rounding_is_refused(bundle, change, message):
    with pytest.raises(ExportError, match=message):
        compare(bundle, changed(bundle, **change), pixels(20, seed=9))


def test_a_decision_on_the_border_is_a_tie_and_counted(bundle):
    """Scores of calibration data are thresholds themselves; the last bit of one decides."""
    limit = bundle.classifier.rejector.threshold(0.1)

    def predict(x, rate):
        own = bundle.predict(x, rate)
        above = np.nextafter(own.unknown_score, np.float32(np.inf))
        border = np.isclose(own.unknown_score, limit, rtol=1e-6)
        scores = np.where(border, above, own.unknown_score)
        decided = bundle.classifier.rejector.decide(torch.from_numpy(scores), torch.from_numpy(own.nearest), rate)
        return dataclasses.replace(own, unknown_score=scores, labels=decided.numpy())

    agreement = compare(bundle, predict, pixels())
    assert agreement.ties == 1
    assert "all decisions equal but 1 within rounding" in str(agreement)


def test_an_export_is_checked_on_something(bundle):
    with pytest.raises(
        ExportError, match=r"^an export is checked on at least one input, got none; give some, or leave"
    ):
        compare(bundle, bundle.predict, [])


class Choosy(nn.Module):
    """A network with a choice that depends on values."""

    def __init__(self, num_classes):
        super().__init__()
        self.classifier = nn.Linear(2, num_classes)

    def forward(self, x):
        return self.classifier(x) if x.sum() > 0 else self.classifier(-x)


def test_a_network_with_choices_cannot_be_traced(tmp_path):
    torch.manual_seed(0)
    made = Bundle(classifier(Choosy(3), torch.randn(40, 2)), f"{__name__}:Choosy", {}, CLASSES, PointInputs(2))
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
