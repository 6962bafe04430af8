"""The forms that a graph can hold, beside the originals; nothing is traced here."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_bundles import RAW, image_bundle, pixels, point_bundle, table_bundle

from openradial.conformal import Rejector
from openradial.data import Normalise
from openradial.data.inputs import ImageInputs
from openradial.export.graph import Graph, GraphRejector, count_below, traceable
from openradial.heads import CACHead, DOCHead, OpenMaxHead, SoftmaxHead
from openradial.scorers import Combination, MahalanobisScorer, MixtureScorer, NeighbourScorer, NormScorer, ParzenScorer

scores = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0]), min_size=1, max_size=40)


@given(values=scores, wanted=scores)
def test_counting_below_is_counting(values, wanted):
    rising, asked = sorted(values), torch.tensor(wanted)
    found = count_below(torch.tensor(rising), asked, 0, len(rising), len(rising))
    assert found.tolist() == [sum(value < each for value in rising) for each in wanted]
    found = count_below(torch.tensor(rising), asked, 0, len(rising), len(rising), or_equal=True)
    assert found.tolist() == [sum(value <= each for value in rising) for each in wanted]


@given(known=st.lists(st.floats(-5, 5, width=32), min_size=9, max_size=60), wanted=scores, rate=st.floats(0.1, 0.9))
def test_a_graph_rejects_what_the_rejector_rejects(known, wanted, rate):
    rejector = Rejector(0.1).fit(torch.tensor(known))
    asked = torch.tensor([*wanted, *known, torch.nan, torch.inf, -torch.inf])
    nearest = torch.arange(len(asked)) % 4
    p, decision = GraphRejector(rejector)(asked, nearest, torch.tensor(rate, dtype=torch.float64))
    assert torch.equal(p, rejector.p_values(asked))
    finite = asked.isfinite()
    assert torch.equal(decision[finite], rejector.decide(asked, nearest, rate)[finite])
    assert (decision[~finite] == -1).all()


@given(seed=st.integers(0, 99), rate=st.sampled_from([0.1, 0.25, 0.5]))
def test_a_graph_rejects_per_class_too(seed, rate):
    random = np.random.default_rng(seed)
    labels = np.concatenate([np.repeat(range(3), 9), random.integers(3, size=20)])
    rejector = Rejector(0.1, per_class=True).fit(random.normal(size=len(labels)).astype(np.float32), labels)
    asked, nearest = torch.from_numpy(random.normal(size=30)).float(), torch.from_numpy(random.integers(3, size=30))
    p, decision = GraphRejector(rejector)(asked, nearest, torch.tensor(rate, dtype=torch.float64))
    assert torch.equal(p, rejector.p_values(asked, nearest))
    assert torch.equal(decision, rejector.decide(asked, nearest, rate))


def test_a_thinned_calibration_decides_alike():
    torch.manual_seed(0)
    rejector = Rejector(0.01).fit(torch.randn(250_000))
    asked = torch.randn(5000)
    nearest = torch.zeros(5000, dtype=torch.int64)
    for rate in (0.001, 0.01, 0.3):
        p, decision = GraphRejector(rejector)(asked, nearest, torch.tensor(rate, dtype=torch.float64))
        assert torch.equal(p, rejector.p_values(asked))
        assert torch.equal(decision, rejector.decide(asked, nearest, rate))


SCORERS = {
    "neighbours": NeighbourScorer(3),
    "mean relative cosine": NeighbourScorer(2, "cosine", "mean", relative=True),
    "normalised": NeighbourScorer(1, normalise=True),
    "mahalanobis": MahalanobisScorer(relative=True),
    "mahalanobis++": MahalanobisScorer(relative=True, normalise=True),
    "parzen": ParzenScorer(0.4),
}


@pytest.mark.parametrize("scorer", SCORERS.values(), ids=SCORERS)
def test_scorers_of_a_graph_score_alike(scorer):
    torch.manual_seed(0)
    scorer.fit(torch.randn(200, 4), torch.arange(200) % 3)
    asked = torch.cat([2 * torch.randn(50, 4), 1e3 * torch.randn(5, 4)])
    expected = scorer.unknown_score(asked)
    torch.testing.assert_close(traceable(scorer).unknown_score(asked), expected)


@pytest.mark.parametrize("relative", [False, True])
def test_a_mahalanobis_score_of_directions_is_traced(relative):
    class Scored(torch.nn.Module):
        def __init__(self, scorer):
            super().__init__()
            self.scorer = traceable(scorer)

        def forward(self, z):
            return self.scorer.unknown_score(z)

    torch.manual_seed(0)
    scorer = MahalanobisScorer(relative=relative, normalise=True).fit(torch.randn(200, 4), torch.arange(200) % 3)
    asked = torch.randn(9, 4)
    asked[2], asked[3, 1], asked[4, 2], asked[5] = 0.0, torch.nan, torch.inf, 1e30
    expected = scorer.unknown_score(asked)
    rows = torch.export.Dim("rows", max=1000)
    program = torch.export.export(Scored(scorer), (torch.randn(5, 4),), dynamic_shapes={"z": {0: rows}})
    torch.testing.assert_close(program.module()(asked), expected, equal_nan=True)


def test_a_mixture_in_a_graph_scores_alike():
    torch.manual_seed(0)
    parts = {"log_weights": torch.tensor([0.3, 0.7]).log(), "means": torch.randn(2, 4), "factors": torch.rand(2, 4)}
    mixture = MixtureScorer(2, "diag").restore(parts)  # found without scikit-learn
    asked = torch.randn(20, 4)
    expected = mixture.unknown_score(asked)
    torch.testing.assert_close(traceable(mixture).unknown_score(asked), expected)


@pytest.mark.parametrize("method", ["fisher", "mean", "min", "standardised"])
def test_combinations_of_a_graph_merge_alike(method):
    torch.manual_seed(0)
    merge = Combination(method).fit(torch.rand(80, 3) + 0.1)
    asked = torch.cat([2 * torch.rand(60, 3) + 0.01, 50 * torch.rand(5, 3), merge.columns[:4].float()])
    torch.testing.assert_close(traceable(merge).unknown_score(asked), merge.unknown_score(asked))
    broken = torch.tensor([[torch.nan, 1.0, 1.0], [torch.inf, 1.0, 1.0]])
    torch.testing.assert_close(traceable(merge).unknown_score(broken), merge.unknown_score(broken), equal_nan=True)


def test_pixels_are_normalised_to_the_last_bit(monkeypatch):
    inputs = ImageInputs(4, 3, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    x = torch.arange(256, dtype=torch.uint8).repeat(3)[: 5 * 48].reshape(5, 3, 4, 4)
    expected = Normalise(inputs.mean, inputs.std)(x)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # as while a graph is traced
    assert torch.equal(inputs.transform(x), expected)


def assert_graph_agrees(bundle, x):
    graph = Graph(bundle)
    for rate in (0.1, 0.4):
        own = bundle.predict(x, None if bundle.rejector is None else rate)
        found = dict(zip(graph.outputs, graph(x, torch.tensor(rate, dtype=torch.float64)), strict=True))
        np.testing.assert_array_equal(found["decision"], own.labels)
        np.testing.assert_array_equal(found["nearest"], own.nearest)
        np.testing.assert_allclose(found["unknown_score"], own.unknown_score, rtol=1e-4, atol=1e-5)
        if own.distance is not None:
            np.testing.assert_allclose(found["distance"], own.distance, rtol=1e-5)
        if own.p_values is not None:
            np.testing.assert_allclose(found["p_value"], own.p_values, atol=0.02)
    return graph


@pytest.mark.parametrize("make", RAW, ids=lambda make: make.__name__)
def test_the_graph_of_a_bundle_says_what_the_bundle_says(make):
    bundle = make()
    assert_graph_agrees(bundle, bundle.preprocessing.ready(RAW[make]()))


HEADS = {"softmax": SoftmaxHead(3), "doc": DOCHead(3), "cac": CACHead(3), "openmax": OpenMaxHead(3, tail=5)}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_the_graph_of_every_head_says_the_same(head):
    graph = assert_graph_agrees(image_bundle(head=head, scorers=None), pixels(30, seed=6))
    distance = ["distance"] if isinstance(head, CACHead) else []
    assert graph.outputs == ("log_probs", "nearest", *distance, "unknown_score", "p_value", "decision")


def test_the_graph_has_the_far_axis_of_the_bundle():
    bundle = image_bundle()
    inside = pixels(count=20) // 8 + 100
    far = NormScorer().fit(bundle.preprocessing.transform(inside).flatten(1))
    model = bundle.replace(far_axis=far)
    assert (far.unknown_score(bundle.preprocessing.transform(pixels()).flatten(1)) > 0).any()
    expected = model.decide(model._network_inputs(pixels()))
    log_probs, *_ = Graph(model)(pixels(), torch.tensor(0.1, dtype=torch.float64))
    assert torch.equal(log_probs, expected.log_probs)
    assert not torch.equal(log_probs, bundle.decide(bundle._network_inputs(pixels())).log_probs)


def test_the_graph_decides_per_class():
    assert_graph_agrees(image_bundle(per_class=True), pixels(30, seed=7))


def test_a_graph_without_rejector_decides_for_the_nearest():
    graph = assert_graph_agrees(image_bundle(rejector=False), pixels(30, seed=8))
    assert graph.outputs == ("log_probs", "nearest", "distance", "unknown_score", "decision")


def test_making_a_graph_leaves_the_bundle_alone():
    bundle = image_bundle(scorers={"inputs": ParzenScorer(0.4)})
    Graph(bundle)
    scorer = bundle.scorers[0]
    assert scorer._rows_at_once() < 10**6
    assert all(parameter.requires_grad for parameter in bundle.net.parameters())


@pytest.mark.parametrize("bundle", [point_bundle(), table_bundle()], ids=["points", "table"])
def test_nan_is_unknown_in_a_graph(bundle):
    x = torch.full((2, *bundle.preprocessing.shape), torch.nan)
    *_, p, decision = Graph(bundle)(x, torch.tensor(0.5, dtype=torch.float64))
    assert decision.tolist() == [-1, -1]
    assert (p < 0.1).all()
