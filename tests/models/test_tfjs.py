import json
import tarfile

import keras_oracle
import pytest
import torch

from openradial.errors import WeightsError
from openradial.models import ResNet
from openradial.models.tfjs import read_tfjs, resnet50_state
from openradial.models.weights import load_state

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
        (lambda f: (f / "model.json").unlink(), "is no whole TensorFlow.js model (KeyError: 'model.json')"),
        (lambda f: (f / "model.json").write_text("{"), "is no whole TensorFlow.js model (JSONDecodeError"),
        (lambda f: (f / "model.json").write_text("{}"), "is no whole TensorFlow.js model (KeyError: 'modelTopology')"),
        (lambda f: (f / "group1-shard2of3.bin").unlink(), "TensorFlow.js model (KeyError: 'group1-shard2of3.bin')"),
        (lambda f: (f / "group1-shard3of3.bin").write_bytes(b""), "bytes in the shards, got"),
        (lambda f: change(f / "model.json", "dtype", "uint8"), "but conv1/kernel is uint8 or quantised"),
        (lambda f: change(f / "model.json", "quantization", {}), "but conv1/kernel is float32 or quantised"),
        (lambda f: change(f / "model.json", "name", "x"), "conv1/kernel is missing; fetch them again"),
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
    with pytest.raises(WeightsError, match=r"package\.tgz is no whole TensorFlow\.js model \(.*\); fetch it again$"):
        read_tfjs(tmp_path / "package.tgz")


def test_another_epsilon_than_expected_is_refused(tmp_path):
    topology, shapes = keras_oracle.describe(WIDTH, CLASSES, epsilon=1e-5)
    keras_oracle.write(tmp_path, topology, keras_oracle.random_weights(shapes))
    with pytest.raises(WeightsError, match=r"^expected bn_conv1 with an epsilon of 0\.001, the model says 1e-05$"):
        ours(tmp_path)
