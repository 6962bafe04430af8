"""Models of timm, with a package of the same names: timm itself needs torchvision, which is not installed here."""

import importlib
import json
import sys

import numpy as np
import pytest
import torch
from rounding import tolerance
from torch import nn

import openradial
from openradial import encoders
from openradial.errors import BundleError, WeightsError

TIMM = """
import torch
from torch import nn

from timm import data

CONFIG = {"input_size": (3, 16, 16), "interpolation": "bicubic", "crop_pct": 0.5, "crop_mode": "center"}
CONFIG |= {"mean": (0.5,) * 3, "std": (0.25,) * 3, "num_classes": 5, "classifier": "fc", "license": "mit"}

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.num_classes, self.num_features = num_classes, 6
        self.stem, self.bn, self.drop = nn.Conv2d(3, 6, 4, 4), nn.BatchNorm2d(6), nn.Dropout()
        self.fc = nn.Linear(6, num_classes) if num_classes else nn.Identity()

    def forward_features(self, x):
        return self.bn(self.stem(x)).relu()

    def forward(self, x):
        return self.fc(self.drop(self.forward_features(x).mean((2, 3))))

def create_model(model_name, pretrained=False, pretrained_cfg=None, checkpoint_path=None, **kwargs):
    if model_name != "tiny":
        raise RuntimeError("Unknown model (%s)" % model_name)
    if pretrained:
        torch.manual_seed(SEED)
    net = Net(kwargs.pop("num_classes", 5))
    assert not kwargs
    net.pretrained_cfg = net.default_cfg = dict(CONFIG)
    return net
"""
TIMM_DATA = """
def resolve_model_data_config(model):
    names = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")
    return {name: model.pretrained_cfg[name] for name in names}
"""


@pytest.fixture
def make_timm(tmp_path, monkeypatch):
    """Write a package with the names of timm that its documentation has: timm itself needs torchvision.

    As there, ``create_model`` returns a network in training mode, with a classifier unless ``num_classes`` is 0.
    """
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it is valid for every file of that second and size
    for name in ("timm", "timm.data"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def make(seed):
        folder = tmp_path / "packages" / "timm"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(TIMM.replace("SEED", str(seed)))
        (folder / "data.py").write_text(TIMM_DATA)
        for name in ("timm", "timm.data"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("timm")

    yield make
    for name in ("timm", "timm.data"):
        sys.modules.pop(name, None)


def test_a_model_of_timm_has_its_configuration_its_licence_and_the_features_before_its_classifier(make_timm):
    timm = make_timm(seed=0)
    encoder, net = encoders.load("timm:tiny"), timm.create_model("tiny", pretrained=True).eval()
    config, inputs = timm.data.resolve_model_data_config(net), encoder.inputs
    assert (3, inputs.size, inputs.size) == config["input_size"]
    assert (inputs.mean, inputs.std, inputs.crop) == (config["mean"], config["std"], config["crop_pct"])
    assert (encoder.name, encoder.num_features, encoder.licence) == ("timm:tiny", 6, net.pretrained_cfg["license"])
    pixels = np.random.default_rng(0).integers(0, 255, (7, 32, 32, 3)).astype(np.uint8)
    x = (torch.from_numpy(pixels[:, 8:24, 8:24]).permute(0, 3, 1, 2) / 255 - 0.5) / 0.25  # the crop has the size
    with torch.no_grad():
        expected = nn.functional.normalize(net.forward_features(x).mean((2, 3)))
    features = encoder.features(pixels)
    torch.testing.assert_close(features, expected, **tolerance(1000, torch.float32))
    assert torch.equal(features, encoder.features(pixels))
    alone = torch.cat([encoder.features([each]) for each in pixels])
    torch.testing.assert_close(alone, features, **tolerance(1000, torch.float32))
    with pytest.raises(WeightsError, match=r"the encoder timm:other cannot be used: Unknown model \(other\)"):
        encoders.load("timm:other")


def test_photographs_are_fitted_with_a_model_of_timm_and_its_other_weights_are_refused(make_timm, photos, tmp_path):
    make_timm(seed=0)
    model = openradial.fit(photos, encoder="timm:tiny", out=tmp_path / "model", baseline=False)
    assert model.report.accuracy > 0.9
    options = json.loads((tmp_path / "model" / "bundle.json").read_text())["network"]["options"]
    assert (options["encoder"], options["licence"]) == ("timm:tiny", "mit")
    assert options["checksum"] == encoders.load("timm:tiny").checksum
    loaded, paths = openradial.load(tmp_path / "model"), sorted(photos.glob("*/*.png"))
    assert loaded.predict(paths).names == model.predict(paths).names
    make_timm(seed=1)
    with pytest.raises(BundleError, match="timm:tiny has other weights than those the bundle was made with"):
        openradial.load(tmp_path / "model")
