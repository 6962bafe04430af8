import threading

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.data.inputs import ImageInputs
from openradial.encoders.networks import ImageEncoder
from openradial.errors import DataError, HeadError, OptionError
from openradial.heads import RadialHead, SoftmaxHead
from openradial.models import MLP
from openradial.scorers import Combination, NeighbourScorer, NormScorer
from openradial.training import limited_threads


@pytest.fixture
def parts():
    """Three clouds: training data with labels, and two held-out parts."""
    torch.manual_seed(0)
    y = torch.arange(300) % 3
    x = 3 * nn.functional.one_hot(y, 4).float() + 0.3 * torch.randn(300, 4)
    return x[:150].split(40), y[:150], x[150:220].split(40), x[220:].split(40)


def made(parts, head=None, **options):
    torch.manual_seed(1)
    train, y, held, calibration = parts
    scorers = {"outputs": RadialHead(3), "classifier:input": NeighbourScorer(k=3)}
    options = {"scorers": scorers, "combination": Combination("fisher"), "rejector": Rejector(0.1)} | options
    model = OpenClassifier(MLP(3, inputs=4, hidden=(8, 8)), head or RadialHead(3), **options)
    return model.fit_scorers(train, y).fit_combination(held).calibrate(calibration)


def test_an_answer_is_what_the_parts_say_one_after_the_other(parts):
    model = made(parts)
    train, y, held, calibration = parts
    net, z = model.net, lambda x: model.net.forward_features(x)
    with torch.no_grad():
        near = NeighbourScorer(k=3).fit(z(torch.cat(train)), y)

        def columns(x):
            return torch.stack([RadialHead(3).unknown_score(net(x)), near.unknown_score(z(x))], 1)

        merge = Combination("fisher").fit(columns(torch.cat(held)))
        rejector = Rejector(0.1).fit(merge.unknown_score(columns(torch.cat(calibration))))
        # Rows of its own: the p-values of the calibration's rows would sit on a step.
        known = 3 * torch.eye(4)[torch.arange(40) % 3] + 0.3 * torch.randn(40, 4)
        x = torch.cat([known, 50 * torch.randn(9, 4)])
        scores, nearest = merge.unknown_score(columns(x)), RadialHead(3).predict(net(x))
    answer = model.decide(x)
    torch.testing.assert_close(answer.unknown_score, scores)
    assert torch.equal(answer.nearest, nearest)
    assert torch.equal(answer.labels, rejector.decide(scores, nearest))
    torch.testing.assert_close(answer.p_values, rejector.p_values(scores))
    assert (answer.labels[-9:] == -1).all()


def test_another_rate_can_be_asked_for(parts):
    model = made(parts)
    x = torch.cat(parts[3])
    rejected = [int((model.decide(x, rate).labels == -1).sum()) for rate in (0.02, 0.1, 0.5)]
    assert rejected[0] < rejected[1] < rejected[2]


def test_without_scorers_the_score_is_that_of_the_head(parts):
    model = made(parts, scorers=None, combination=None)
    x = torch.cat(parts[3])
    with torch.no_grad():
        torch.testing.assert_close(model.decide(x).unknown_score, model.head.unknown_score(model.net(x)))
        assert torch.equal(model(x), model.net(x))


def test_without_a_rejector_nothing_is_rejected(parts):
    model = OpenClassifier(MLP(3, inputs=4), RadialHead(3))
    answer = model.decide(1e4 * torch.randn(20, 4))
    assert (answer.labels >= 0).all()
    assert answer.p_values is None
    with pytest.raises(
        HeadError, match=r"there is no rejector to calibrate: pass one, as in rejector=Rejector\(0.05\)"
    ):
        model.calibrate(parts[0])


def test_rejection_per_class_uses_the_predicted_class(parts):
    model = made(parts, rejector=Rejector(0.2, per_class=True))
    answer = model.decide(torch.cat(parts[3]))
    assert 0 < (answer.labels == -1).float().mean() < 0.3


def test_dropout_is_off_however_the_network_comes(parts):
    net = MLP(3, inputs=4, hidden=(8, 8), dropout=0.5).train()
    model = OpenClassifier(net, RadialHead(3))
    x = parts[0][0]
    assert torch.equal(model.decide(x).log_probs, model.decide(x).log_probs)


def test_scores_and_combination_must_fit_together():
    net, head = MLP(3, inputs=4), RadialHead(3)
    with pytest.raises(OptionError, match="2 scores need a combination that makes one of them, got none"):
        OpenClassifier(net, head, scorers={"outputs": head, "classifier:input": NeighbourScorer()})
    with pytest.raises(OptionError, match="a combination needs at least two scores, got 1"):
        OpenClassifier(net, head, scorers={"outputs": head}, combination=Combination())


def test_no_batch_is_nothing_to_learn_from():
    model = OpenClassifier(MLP(3, inputs=4), RadialHead(3), rejector=Rejector())
    with pytest.raises(OptionError, match="known data are needed to learn from, got no batch"):
        model.fit_scorers([], torch.empty(0, dtype=torch.long))
    with pytest.raises(OptionError, match="known data are needed to learn from, got no batch"):
        model.calibrate([])


def test_outputs_and_distances_are_computed_once(parts, monkeypatch):
    head = RadialHead(3)
    model = made(parts, head=head, scorers={"outputs": head, "classifier:input": NeighbourScorer(k=3)})
    compute, calls, passes = type(head).compute, [], []

    def counted(self, outputs):
        calls.append(len(outputs))
        return compute(self, outputs)

    monkeypatch.setattr(type(head), "compute", counted)
    monkeypatch.setattr(type(head), "unknown_score", None)  # the score comes from compute
    model.net.register_forward_hook(lambda *_: passes.append(1))
    assert len(model.predict(torch.cat(parts[3]))) == 80
    assert (calls, passes) == ([80], [1])


def test_a_replaced_argument_leaves_the_other_parts_as_they_are(parts):
    model = made(parts).replace(network=("mlp", {"inputs": 4}), metadata={"a": 1}, versions={"torch": "2"})
    other = model.replace(classes=("a", "b", "c"))
    assert other.classes == ("a", "b", "c")
    assert model.classes == ("0", "1", "2")
    for name in ("net", "head", "combination", "rejector", "network"):
        assert getattr(other, name) is getattr(model, name), name
    assert other.layer_scorers() == model.layer_scorers()
    assert (other.metadata, other.versions) == (model.metadata, model.versions)
    assert other.predict(torch.cat(parts[3])).labels.tolist() == model.predict(torch.cat(parts[3])).labels.tolist()


def test_an_argument_that_does_not_exist_is_refused(parts):
    with pytest.raises(TypeError, match="classs"):
        made(parts).replace(classs=("a", "b", "c"))


def test_without_preprocessing_tensors_alone_are_predicted():
    model = OpenClassifier(MLP(3, inputs=4), RadialHead(3))
    assert len(model.predict(torch.zeros(2, 4))) == 2
    with pytest.raises(OptionError, match="without preprocessing predicts tensors, got list"):
        model.predict([[0.0, 0.0, 0.0, 0.0]])


def test_predicting_puts_the_network_into_evaluation_mode(parts):
    model = OpenClassifier(MLP(3, inputs=4, hidden=(8, 8), dropout=0.5), RadialHead(3)).train()
    x = parts[0][0]
    assert (model.predict(x).unknown_score == model.predict(x).unknown_score).all()


@pytest.mark.parametrize("seed", range(5))
def test_no_class_is_probable_far_away_along_any_ray_of_any_network(parts, seed):
    train = torch.cat(parts[0])
    torch.manual_seed(seed)
    net, head = MLP(3, inputs=4, hidden=(8, 8)), RadialHead(3, beta=2.0)
    with torch.no_grad():  # a constant output on a prototype: the most confident network there is
        net.classifier.weight *= seed  # 0 for the first
        net.classifier.bias.copy_(torch.eye(3)[seed % 3])
    model = OpenClassifier(net, head, far_axis=NormScorer().fit(train), rejector=Rejector(0.1)).calibrate(parts[3])
    plain = OpenClassifier(net, head)
    for t in (0.5, 2.0, 10.0, 1e3, 1e30):
        x = t * torch.randn(50, 4)
        far, decided = model.far_axis.unknown_score(x), model.decide(x)
        largest = decided.log_probs.double().amax(1)
        assert (largest <= -2.0 * far.double() * (1 - 4 * torch.finfo(torch.float32).eps)).all()
        assert torch.equal(decided.nearest, plain.decide(x).nearest)
        assert t < 1e3 or (largest.exp() < 1e-9).all()
        assert t < 1e3 or (decided.labels == -1).all()
    known = plain.decide(train)
    assert torch.equal(model.decide(train).log_probs, known.log_probs)
    assert seed or (known.log_probs.amax(1) > -1e-3).all()  # without the axis it is confident everywhere


@pytest.mark.parametrize("method", ["fisher", "standardised", "min"])
def test_a_combination_rejects_what_is_far_enough_whatever_the_other_scores_say(parts, method):
    train = torch.cat(parts[0])
    head = RadialHead(3)
    scorers = {"outputs": head, "classifier:input": NeighbourScorer(k=3)}
    model = made(parts, head, scorers=scorers, combination=Combination(method), far_axis=NormScorer().fit(train))
    with torch.no_grad():
        for weight in (model.net.hidden.fc1.weight, model.net.classifier.weight):
            weight *= 0  # all hidden layers and outputs are those of one input, near the training data
    assert (model.decide(1e30 * torch.randn(20, 4)).labels == -1).all()


def test_a_far_axis_needs_a_radial_head():
    with pytest.raises(OptionError, match="radial head, got SoftmaxHead"):
        OpenClassifier(nn.Identity(), SoftmaxHead(2), far_axis=NormScorer())


class Colours(nn.Module):
    """A network of images that notes which thread calls it, and how many threads torch uses there."""

    num_features, num_middle = 3, 3

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward_middle(self, x):
        self.calls.append((threading.get_ident(), torch.get_num_threads()))
        return x.amax((2, 3)).relu(), x

    def forward(self, x):
        return self.forward_middle(x)[0]


@pytest.fixture
def photographs():
    """A model with a frozen encoder, and images."""
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), np.uint8)
    inputs, y = ImageInputs(8), torch.arange(40) % 3
    x = inputs.transform(inputs.prepare(images))
    scorers = {"outputs": RadialHead(3), "middle": NeighbourScorer(k=2)}
    options = {"combination": Combination("fisher"), "rejector": Rejector(0.1), "preprocessing": inputs}
    model = OpenClassifier(ImageEncoder(Colours()), RadialHead(3), scorers=scorers, **options)
    return model.fit_scorers([x[:20]], y[:20]).fit_combination([x[20:30]]).calibrate([x[30:]]), images


def assert_equal_answers(predictions, decisions):
    assert predictions.labels.tolist() == decisions.labels.tolist()
    np.testing.assert_allclose(predictions.probability, decisions.log_probs.exp().amax(1), rtol=1e-5)
    np.testing.assert_allclose(predictions.unknown_score, decisions.unknown_score, rtol=1e-5)
    np.testing.assert_allclose(predictions.p_values, decisions.p_values, rtol=1e-5)


def test_a_frozen_encoder_runs_in_threads_that_do_not_wait_for_each_other(photographs):
    model, images = photographs
    x = model.preprocessing.prepare(images)
    decisions, calls = model.decide(model.preprocessing.transform(x)), model.net.body.calls
    with limited_threads(2):
        for inputs in (list(images), images, iter(images), x):  # raw and prepared
            calls.clear()
            assert_equal_answers(model.predict(inputs), decisions)
            assert {threads for _, threads in calls} == {1}
            assert threading.get_ident() not in {thread for thread, _ in calls}
        assert torch.get_num_threads() == 2


def test_a_single_input_of_a_frozen_encoder_gets_all_threads(photographs):
    model, images = photographs
    decisions = model.decide(model.preprocessing.transform(model.preprocessing.prepare(images)))
    model.net.body.calls.clear()
    with limited_threads(2):
        assert model.predict(images[3]).unknown_score[0] == pytest.approx(float(decisions.unknown_score[3]), rel=1e-5)
    assert model.net.body.calls == [(threading.get_ident(), 2)]


def test_a_layer_inside_a_frozen_encoder_is_read_too(photographs):
    model, images = photographs
    x = model.preprocessing.transform(model.preprocessing.prepare(images))
    scorers, labels = {"outputs": RadialHead(3), "bands:input": NeighbourScorer(k=2)}, torch.arange(40) % 3
    other = model.replace(scorers=scorers).fit_scorers([x], labels).fit_combination([x]).calibrate([x])
    assert_equal_answers(other.predict(list(images)), other.decide(x))


def test_a_broken_file_for_a_frozen_encoder_is_named(photographs, tmp_path):
    model, _ = photographs
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path in paths:
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)
    paths[1].write_bytes(b"no image")
    with pytest.raises(DataError, match=r"1\.png"):
        model.predict(paths)
