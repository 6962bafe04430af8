import json

import numpy as np
import pytest
import torch
from made_bundles import CLASSES, RAW, assert_same, classifier, image_bundle, pixels, point_bundle, text_bundle
from torch import nn

from openradial.bundle import describe, load, save
from openradial.bundle.parts import classifier_tensors, make_network
from openradial.classifier import OpenClassifier
from openradial.data.inputs import PointInputs
from openradial.heads import CACHead, DOCHead, OpenMaxHead, RadialHead, SoftmaxHead
from openradial.models import build
from openradial.nn.prototypes import LearnedPrototypes, SimplexPrototypes
from openradial.scorers import MahalanobisScorer, NeighbourScorer, ParzenScorer


def assert_equal_bundles(found, expected):
    """All that a bundle holds is the same, tensors bit for bit."""
    left, right = classifier_tensors(found), classifier_tensors(expected)
    assert set(left) == set(right)
    for name, tensor in right.items():
        assert left[name].dtype == tensor.dtype
        assert torch.equal(left[name], tensor), name
    assert found.classes == expected.classes
    assert found.preprocessing == expected.preprocessing
    name, options = expected.network
    assert found.network == (name, json.loads(json.dumps(dict(options))))
    assert (found.metadata, found.versions) == (expected.metadata, expected.versions)
    assert found.layers == expected.layers


@pytest.mark.parametrize("make", RAW, ids=lambda make: make.__name__)
def test_a_loaded_bundle_is_the_saved_one_and_predicts_the_same(make, tmp_path):
    bundle = make()
    loaded = load(save(bundle, tmp_path / "model"))
    assert_equal_bundles(loaded, bundle)
    raw = RAW[make]()
    assert_same(loaded.predict(raw), bundle.predict(raw))


HEADS = {
    "softmax": lambda: SoftmaxHead(3, "energy", temperature=2.0),
    "openmax": lambda: OpenMaxHead(3, tail=5, alpha=2),
    "doc": lambda: DOCHead(3),
    "cac": lambda: CACHead(3),
    "learned prototypes": lambda: RadialHead(3, prototypes=LearnedPrototypes(3, 3)),
    "axis scale": lambda: RadialHead(3, axis_scale=torch.tensor([1.0, 2.0, 3.0])),
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_every_head_comes_back(head, tmp_path):
    bundle = image_bundle(head=head(), scorers=None)
    loaded = load(save(bundle, tmp_path / "model"))
    assert_equal_bundles(loaded, bundle)
    assert_same(loaded.predict(pixels(seed=2)), bundle.predict(pixels(seed=2)))


def test_a_head_that_saw_no_example_of_a_class_comes_back(tmp_path):
    head = OpenMaxHead(3, tail=5, alpha=2).fit(torch.eye(3)[[0, 1] * 5], torch.tensor([0, 1] * 5))
    bundle = point_bundle()
    model = OpenClassifier(bundle.net, head)
    made = model.replace(network=("spiral_radial", {}), classes=CLASSES, preprocessing=PointInputs(2))
    assert load(save(made, tmp_path / "model")).head.missing_classes == [2]


def test_every_scorer_comes_back(tmp_path):
    layers = ("inputs", "hidden.relu1", "classifier:input")
    scorers = [ParzenScorer(0.5), MahalanobisScorer(relative=True), NeighbourScorer(2, "cosine")]
    bundle = image_bundle(scorers=dict(zip(layers, scorers, strict=True)))
    loaded = load(save(bundle, tmp_path / "model"))
    assert_equal_bundles(loaded, bundle)
    assert_same(loaded.predict(pixels(seed=2)), bundle.predict(pixels(seed=2)))


def test_simplex_prototypes_take_a_network_with_one_output_less(tmp_path):
    torch.manual_seed(0)
    head = RadialHead(3, prototypes=SimplexPrototypes(3))
    made = classifier(build("mlp", 2, inputs=4, hidden=(5,)), torch.randn(40, 4), head=head)
    bundle = made.replace(network=("mlp", {"inputs": 4, "hidden": (5,)}), classes=CLASSES, preprocessing=PointInputs(4))
    assert_equal_bundles(load(save(bundle, tmp_path / "model")), bundle)


def test_the_precision_of_the_weights_stays(tmp_path):
    torch.manual_seed(0)
    made = classifier(build("spiral_radial", 3).double(), torch.randn(50, 2).double())
    bundle = made.replace(network=("spiral_radial", {}), classes=CLASSES, preprocessing=PointInputs(2))
    loaded = load(save(bundle, tmp_path / "model"))
    assert_equal_bundles(loaded, bundle)
    raw = np.random.default_rng(0).normal(size=(9, 2))
    assert_same(loaded.predict(raw), bundle.predict(raw))


def test_a_bundle_without_rejector_rejects_nothing_and_comes_back(tmp_path):
    bundle = image_bundle(rejector=False)
    found = load(save(bundle, tmp_path / "model")).predict(pixels())
    assert found.p_values is None
    np.testing.assert_array_equal(found.labels, found.nearest)


def test_a_loaded_bundle_no_longer_needs_its_files(tmp_path):
    bundle = point_bundle()
    folder = save(bundle, tmp_path / "model")
    loaded = load(folder)
    with (folder / "weights.safetensors").open("r+b") as file:
        file.write(bytes((folder / "weights.safetensors").stat().st_size))
    assert_equal_bundles(loaded, bundle)


def test_loading_leaves_the_random_numbers_alone(tmp_path):
    folder = save(point_bundle(), tmp_path / "model")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load(folder)
    assert torch.equal(torch.rand(3), expected)


def test_no_initial_values_are_drawn_for_weights_that_a_bundle_brings(monkeypatch):
    net = build("efficientnet_lite0", 2)
    monkeypatch.setattr(torch.nn.init, "_no_grad_normal_", None)  # on tensors without memory it imports a compiler
    made = make_network({"name": "efficientnet_lite0", "options": {}}, 2, net.state_dict())
    assert torch.equal(made.stem.conv.weight, net.stem.conv.weight)


def test_saving_twice_writes_the_same_bytes(tmp_path):
    bundle = image_bundle()
    first, second = (save(bundle, tmp_path / name) for name in ("a", "b"))
    for name in ("weights.safetensors", "bundle.json", "card.md"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


class UserNetwork(nn.Module):
    """A network that is not part of openradial."""

    def __init__(self, num_classes, momentum=0.1):
        super().__init__()
        self.normalise = nn.BatchNorm1d(2, momentum=momentum)
        self.classifier = nn.Linear(2, num_classes)

    def forward(self, x):
        return self.classifier(self.normalise(x))


def test_a_network_of_the_users_is_loaded_where_its_module_is_named(tmp_path):
    torch.manual_seed(0)
    name, net, x = f"{__name__}:UserNetwork", UserNetwork(3, momentum=0.5), torch.randn(40, 2)
    net.train()(3 + x)  # statistics of normalisation layers are part of the weights
    bundle = classifier(net.eval(), x).replace(
        network=(name, {"momentum": 0.5}), classes=CLASSES, preprocessing=PointInputs(2)
    )
    loaded = load(save(bundle, tmp_path / "model"), modules=[__name__])
    assert_equal_bundles(loaded, bundle)
    assert loaded.net.normalise.running_mean.min() > 1


def test_texts_keep_their_vocabulary(tmp_path):
    loaded = load(save(text_bundle(), tmp_path / "model"))
    assert loaded.preprocessing.ready(["Profit rose sharply"]).tolist() == [[2, 4, 1]]


def head_as_scorer():
    """A model whose first scorer is the head itself."""
    head = RadialHead(3)
    return image_bundle(head=head, scorers={"outputs": head, "classifier:input": NeighbourScorer(k=2)})


def test_a_scorer_that_is_the_head_stays_the_head(tmp_path, monkeypatch):
    model = head_as_scorer()
    loaded = load(save(model, tmp_path / "model"))
    assert_equal_bundles(loaded, model)
    assert_same(loaded.predict(pixels(seed=2)), model.predict(pixels(seed=2)))
    assert loaded.scorers[0] is loaded.head
    assert [each["kind"] for each in describe(tmp_path / "model").scorers] == ["head", "NeighbourScorer"]
    compute, calls = RadialHead.compute, []
    monkeypatch.setattr(RadialHead, "compute", lambda self, o: (calls.append(len(o)), compute(self, o))[1])
    loaded.predict(pixels(7))
    assert calls == [7]


def test_a_head_that_is_also_a_scorer_is_written_once():
    names = classifier_tensors(image_bundle(head=RadialHead(3, prototypes=LearnedPrototypes(3, 3)), scorers=None))
    head = RadialHead(3, prototypes=LearnedPrototypes(3, 3))
    scorers = {"outputs": head, "classifier:input": NeighbourScorer(k=2)}
    again = classifier_tensors(image_bundle(head=head, scorers=scorers))
    assert {name for name in again if name.startswith(("head.", "scorers.0"))} == {
        name for name in names if name.startswith("head.")
    }
