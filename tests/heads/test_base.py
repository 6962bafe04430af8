"""What every head keeps to. A new head is one more line of CASES."""

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from openradial.errors import DTypeError, HeadError, ShapeError, TargetError
from openradial.heads import (
    CACHead,
    ClosedFormRadialHead,
    DOCHead,
    Head,
    OpenMaxHead,
    RadialHead,
    SoftmaxHead,
    load_head,
    save_head,
)
from openradial.nn import RadialLayer, RadialLoss
from openradial.nn.prototypes import FixedPrototypes, LearnedPrototypes, SimplexPrototypes
from openradial.scorers import Scorer

K = 4
POINTS = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, 0.0], [0.0, -2.0]], dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    """A way to make a scorer for K classes; ``width`` is that of its rows."""

    name: str
    make: Callable[[], Scorer]
    width: int = K
    exports: bool = True  # whether torch.export takes it
    trains: bool = True  # whether its loss trains a network before the fit


CASES = [
    Case("radial", lambda: RadialHead(K, beta=2.0, scale=1.5)),
    Case("radial, probability", lambda: RadialHead(K, cutoff="disjoint", score="probability", loss="squared")),
    Case("radial, metric", lambda: RadialHead(K, metric="manhattan", axis_scale=torch.tensor([1.0, 1.1, 0.8, 1.0]))),
    Case("radial, simplex", lambda: RadialHead(K, prototypes=SimplexPrototypes(K, 2.0)), width=K - 1),
    Case("radial, fixed", lambda: RadialHead(K, prototypes=FixedPrototypes(POINTS)), width=2),
    Case("radial, learned", lambda: RadialHead(K, prototypes=LearnedPrototypes(K, 6)), width=6),
    Case("softmax", lambda: SoftmaxHead(K)),
    Case("softmax, max_logit", lambda: SoftmaxHead(K, "max_logit", temperature=3.0)),
    Case("softmax, entropy", lambda: SoftmaxHead(K, "entropy")),
    Case("softmax, energy", lambda: SoftmaxHead(K, "energy", temperature="fit")),
    Case("doc", lambda: DOCHead(K)),
    Case("cac", lambda: CACHead(K, magnitude=3.0)),
    Case("openmax", lambda: OpenMaxHead(K, tail=2)),
    Case("openmax, raw", lambda: OpenMaxHead(K, tail=2, alpha=2, distance="combined", form="raw")),
    Case("openmax, cosine", lambda: OpenMaxHead(K, tail=2, alpha=2, distance="cosine")),
    Case("cac, distance", lambda: CACHead(K, magnitude=3.0, score="distance")),
    Case("closed form", lambda: ClosedFormRadialHead(K, 5, beta=2.0, scale=1.5), width=5, trains=False),
    Case(
        "closed form, random",
        lambda: ClosedFormRadialHead(K, 5, random_features=12, width=3.0, class_weight="balanced", score="probability"),
        width=5,
        trains=False,
    ),
]


def name_of(case: Case) -> str:
    return case.name


every_scorer = pytest.mark.parametrize("case", CASES, ids=name_of)
every_learner = pytest.mark.parametrize("case", [c for c in CASES if not c.make().is_fitted], ids=name_of)
HEADS = [c for c in CASES if isinstance(c.make(), Head)]
every_head = pytest.mark.parametrize("case", HEADS, ids=name_of)
every_trained_head = pytest.mark.parametrize("case", [c for c in HEADS if c.trains], ids=name_of)


def known_data(case, n=60, dtype=torch.float64):
    """Rows that mostly show their class, some of them the wrong one."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(n) % K
    directions = torch.randn(K, case.width, generator=rng, dtype=torch.float64)
    directions[:, : min(K, case.width)] += 3 * torch.eye(K, min(K, case.width))
    rows = directions[y] + torch.randn(n, case.width, generator=rng, dtype=torch.float64)
    rows[0], rows[1] = rows[5].clone(), rows[4].clone()
    return rows.to(dtype), y


def inputs(case, n=7, dtype=torch.float64):
    return (3 * torch.randn(n, case.width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).to(dtype)


def fitted(case):
    """The scorer, made and fitted."""
    return case.make().fit(*known_data(case))


def answers(scorer, o):
    """All that a scorer says about rows, one row each."""
    score = scorer.unknown_score(o).unsqueeze(1)
    return torch.cat([scorer.log_probs(o), score], 1) if isinstance(scorer, Head) else score


@every_scorer
def test_the_unknown_score_is_one_finite_number_per_input(case):
    score = fitted(case).unknown_score(inputs(case))
    assert score.shape == (7,)
    assert score.isfinite().all()


@every_head
def test_log_probabilities_are_finite_and_at_most_zero(case):
    log_probs = fitted(case).log_probs(inputs(case))
    assert log_probs.shape == (7, K)
    assert log_probs.isfinite().all()
    assert (log_probs <= 1e-12).all()


@every_head
def test_the_prediction_is_the_most_probable_class(case):
    head, o = fitted(case), inputs(case)
    log_probs = head.log_probs(o)
    assert head.predict(o).dtype == torch.int64
    chosen = log_probs.gather(1, head.predict(o).unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(chosen, log_probs.amax(1))


@every_head
def test_probabilities_are_the_exponentials_of_log_probabilities_or_cut_off(case):
    head, o = fitted(case), inputs(case)
    probs, uncut = head.probs(o), head.log_probs(o).exp()
    torch.testing.assert_close(torch.where(probs > 0, probs, uncut), uncut)


@every_head
@pytest.mark.parametrize("size", [1.0, 1e12])
def test_compute_gives_what_each_method_gives(case, size):
    head, o = fitted(case), size * inputs(case)
    found = head.compute(o)
    torch.testing.assert_close(found.log_probs, head.log_probs(o))
    torch.testing.assert_close(found.unknown_score, head.unknown_score(o))
    assert torch.equal(found.labels, head.predict(o))
    if found.distances is None:
        assert not isinstance(head, (RadialHead, CACHead))
    else:
        torch.testing.assert_close(found.distances, head.distances(o))
    if isinstance(head, RadialHead):
        torch.testing.assert_close(found.log_probs, -head.layer.beta * found.distances)


def test_compute_measures_distances_once(monkeypatch):
    head, calls = RadialHead(K, prototypes=FixedPrototypes(POINTS), score="probability", cutoff="disjoint"), []
    measure = RadialLayer.distances
    monkeypatch.setattr(RadialLayer, "distances", lambda self, o: calls.append("distances") or measure(self, o))
    for name in ("nearest", "probs", "forward"):
        monkeypatch.setattr(RadialLayer, name, lambda *_, name=name: calls.append(name))
    head.compute(torch.zeros(2, 2, dtype=torch.float64))
    assert calls == ["distances"]


@every_head
def test_no_loss_takes_the_results_of_a_head_for_outputs(case):
    head, o, y = fitted(case), inputs(case), torch.zeros(7, dtype=torch.long)
    computed = head.compute(o)
    results = {"log-probabilities": [head.log_probs(o), computed.log_probs], "probabilities": [head.probs(o)]}
    if computed.distances is not None:
        results["distances"] = [head.distances(o), computed.distances]
    losses = [RadialLoss(), *(other.make().loss for other in CASES if other.width == K)]
    for kind, tensors in results.items():
        for loss in losses:
            for tensor in tensors:
                with pytest.raises(
                    DTypeError, match=f"expected the outputs of a network, got the {kind} computed from"
                ):
                    loss(tensor, y)


def test_the_results_of_a_users_head_are_refused_too():
    class Uniform(Head):
        def log_probs(self, o):
            return torch.full_like(o, 1 / K).log()

        def unknown_score(self, o):
            return -o.amax(-1)

        def loss(self, o, y):
            return o.sum()

    head = Uniform(K)
    for result in (
        head.log_probs(torch.zeros(2, K)),
        head.probs(torch.zeros(2, K)),
        head.compute(torch.zeros(2, K))[0],
    ):
        with pytest.raises(DTypeError, match="expected the outputs of a network"):
            SoftmaxHead(K).loss(result, torch.tensor([0, 1]))


@every_head
def test_a_head_is_no_layer_of_a_network(case):
    with pytest.raises(NotImplementedError):
        nn.Sequential(fitted(case))(inputs(case))


@every_scorer
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 2e-4)])
def test_an_answer_does_not_depend_on_the_rest_of_the_batch(case, dtype, tolerance):
    scorer, o = fitted(case), inputs(case, dtype=dtype)
    wild = torch.full((1, case.width), 1e15 if dtype == torch.float32 else 1e30, dtype=dtype)
    together = answers(scorer, o)
    alone = torch.cat([answers(scorer, row) for row in o.split(1)])
    among = answers(scorer, torch.cat([wild, o.flip(0), -wild]))[1:-1].flip(0)
    torch.testing.assert_close(alone, together, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(among, together, rtol=tolerance, atol=tolerance)


@every_scorer
def test_nan_stays_in_its_row(case):
    scorer, o = fitted(case), inputs(case)
    spoilt = o.clone()
    spoilt[2, 1] = torch.nan
    assert scorer.unknown_score(spoilt)[2].isnan()
    others = torch.arange(7) != 2
    torch.testing.assert_close(answers(scorer, spoilt)[others], answers(scorer, o)[others])


@every_scorer
def test_an_empty_batch_has_empty_answers(case):
    scorer, none = fitted(case), torch.zeros(0, case.width, dtype=torch.float64)
    assert scorer.unknown_score(none).shape == (0,)
    if isinstance(scorer, Head):
        assert scorer.log_probs(none).shape == (0, K)
        assert scorer.predict(none).shape == (0,)


@every_scorer
def test_large_outputs_have_finite_answers(case):
    o = torch.cat([sign * 1e4 * torch.eye(case.width)[:2] for sign in (1, -1)])
    assert answers(fitted(case), o).isfinite().all()


@every_scorer
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_answered_in_float32(case, dtype):
    scorer, o = fitted(case), inputs(case, dtype=dtype)
    given = answers(scorer, o)
    assert given.dtype == torch.float32
    torch.testing.assert_close(given, answers(scorer, o.float()), rtol=1e-6, atol=1e-6)


@every_scorer
def test_a_scorer_moves_to_another_precision(case):
    scorer, o = fitted(case), inputs(case)
    before = answers(scorer, o)
    assert before.dtype == torch.float64
    for dtype in (torch.float32, torch.float64):
        after = answers(copy.deepcopy(scorer).to(dtype), o.to(dtype))
        assert after.dtype == dtype
        torch.testing.assert_close(after, before.to(dtype), rtol=1e-4, atol=1e-4)


@every_scorer
def test_fit_returns_the_scorer_and_changes_no_data(case):
    scorer = case.make()
    o, y = known_data(case)
    o_before, y_before = o.clone(), y.clone()
    assert scorer.fit(o, y) is scorer
    assert scorer.is_fitted
    assert torch.equal(o, o_before)
    assert torch.equal(y, y_before)


@every_scorer
def test_fit_does_not_depend_on_the_order_of_the_examples(case):
    (o, y), x = known_data(case), inputs(case)
    torch.testing.assert_close(answers(case.make().fit(o.flip(0), y.flip(0)), x), answers(fitted(case), x))


@every_scorer
def test_fitting_again_forgets_the_first_time(case):
    o, y = known_data(case)
    again = case.make().fit(2 * o + 1, y).fit(o, y)
    assert torch.equal(answers(again, inputs(case)), answers(fitted(case), inputs(case)))


@every_scorer
def test_what_is_fitted_needs_no_gradient(case):
    o, y = known_data(case)
    scorer = case.make().fit(o.requires_grad_(), y)
    assert not any(getattr(scorer, name).requires_grad for name in scorer.fitted if getattr(scorer, name) is not None)


@every_learner
def test_a_scorer_that_must_be_fitted_says_so(case):
    scorer = case.make()
    message = f"{type(scorer).__name__} must be fitted first: call fit(outputs, labels) with known data"
    with pytest.raises(HeadError, match=f"^{re.escape(message)}$"):
        scorer.unknown_score(inputs(case))


@pytest.mark.parametrize("case", [case for case in CASES if case.make().is_fitted], ids=name_of)
def test_a_scorer_with_nothing_to_learn_answers_at_once(case):
    assert torch.equal(answers(case.make(), inputs(case)), answers(fitted(case), inputs(case)))


@every_learner
def test_fit_refuses_what_nothing_can_be_learned_from(case):
    o, y = known_data(case)
    with pytest.raises(ShapeError, match="must hold at least one example to learn from, got none"):
        case.make().fit(o[:0], y[:0])
    o[3, 1] = torch.inf
    with pytest.raises(ShapeError, match="must be finite, got nan or infinity in 1 rows, the first is row 3"):
        case.make().fit(o, y)
    with pytest.raises(TargetError, match=rf"labels must be classes from 0 to {K - 1}, got {K} in row 1"):
        case.make().fit(o, torch.full_like(y, K).index_fill(0, torch.tensor([0]), 0))


@every_scorer
def test_rows_of_another_width_or_type_are_refused(case):
    scorer = fitted(case)
    names = ("log_probs", "probs", "predict", "compute") if isinstance(scorer, Head) else ()
    calls = [getattr(scorer, name) for name in ("unknown_score", *names)]
    for call in calls:
        with pytest.raises(ShapeError, match=rf"must have the shape \(b, {case.width}\), got \(7, {case.width + 1}\)"):
            call(torch.zeros(7, case.width + 1))
        with pytest.raises(ShapeError, match=rf"must have the shape \(b, {case.width}\), got \({case.width},\)"):
            call(torch.zeros(case.width))
        with pytest.raises(
            DTypeError, match=r"must be floating point, got torch\.int64; convert them with \.float\(\)"
        ):
            call(torch.zeros(7, case.width, dtype=torch.int64))
        with pytest.raises(DTypeError, match=r"must be a torch\.Tensor, got list; convert them with torch\.as_tensor"):
            call([[0.0] * case.width])


@every_head
def test_wrong_labels_are_refused(case):
    head, o = case.make(), inputs(case, n=2)
    for y, error, message in [
        (torch.tensor([0, -1]), TargetError, f"labels must be classes from 0 to {K - 1}, got -1 in row 1"),
        (torch.tensor([K, 0]), TargetError, f"labels must be classes from 0 to {K - 1}, got {K} in row 0"),
        (torch.tensor([0]), ShapeError, "labels must have the shape (2,), one per row, got (1,)"),
        (torch.eye(2), ShapeError, "labels must have the shape (2,), one per row, got (2, 2)"),
        (torch.zeros(2), DTypeError, "labels must be whole numbers, got torch.float32; convert them with .long()"),
        ([0, 1], DTypeError, "labels must be a torch.Tensor, got list; convert them with torch.as_tensor"),
    ]:
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            head.loss(o, y)


@every_trained_head
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_labels_may_be_any_whole_numbers(case, dtype):
    o, y = known_data(case)
    expected = case.make().loss(o, y)
    torch.testing.assert_close(case.make().loss(o, y.to(dtype)), expected)
    a, b = (case.make().fit(o, labels) for labels in (y, y.to(dtype)))
    assert torch.equal(answers(a, o), answers(b, o))


@every_trained_head
def test_the_loss_is_the_mean_over_the_batch(case):
    head, (o, y) = case.make(), known_data(case)
    alone = torch.stack([head.loss(o[i : i + 1], y[i : i + 1]) for i in range(len(o))])
    torch.testing.assert_close(head.loss(o, y), alone.mean())


@every_trained_head
def test_the_loss_needs_no_fit_and_is_not_changed_by_one(case):
    o, y = known_data(case)
    assert torch.equal(case.make().loss(o, y), fitted(case).loss(o, y))


@every_trained_head
def test_a_network_trained_on_the_loss_classifies_and_knows_what_it_knows(case):
    torch.manual_seed(0)
    head, y = case.make(), torch.arange(80) % K
    x = 3 * torch.eye(8)[y] + torch.randn(80, 8)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, case.width))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(70):
        optimiser.zero_grad()
        head.loss(net(x), y).backward()
        optimiser.step()
    o = net(x).detach()
    assert (head.predict(o) == y).double().mean() > 0.9
    head.fit(torch.cat([o, o[:1]]), torch.cat([y, y[1:2]]))
    nowhere = head.unknown_score(torch.zeros(1, case.width))
    assert (head.unknown_score(o) < nowhere).double().mean() > 0.9


@every_trained_head
def test_the_gradient_of_the_loss_is_that_of_finite_differences(case):
    head, (o, y) = case.make().double(), known_data(case, n=6)
    assert torch.autograd.gradcheck(lambda o: head.loss(o, y), o.requires_grad_())


@every_trained_head
def test_gradients_are_finite_where_the_loss_is_smallest(case):
    head = case.make().double()
    o = head.layer.prototypes.matrix().detach().clone().double() if isinstance(head, RadialHead) else 3.0 * torch.eye(K)
    o = o.requires_grad_()
    head.loss(o, torch.arange(K)).backward()
    assert o.grad.isfinite().all()


@every_scorer
def test_a_saved_scorer_answers_bit_for_bit_the_same(case, tmp_path):
    scorer, o = fitted(case), inputs(case)
    save_head(scorer, tmp_path / "head.safetensors")
    loaded = load_head(tmp_path / "head.safetensors")
    assert type(loaded) is type(scorer)
    assert loaded.settings() == scorer.settings()
    assert loaded.takes == scorer.takes
    assert torch.equal(answers(loaded, o), answers(scorer, o))
    assert loaded.tensors().keys() == scorer.tensors().keys()
    for name, tensor in loaded.tensors().items():
        assert tensor.dtype == scorer.tensors()[name].dtype
        assert torch.equal(tensor, scorer.tensors()[name])


@every_scorer
def test_a_scorer_saved_before_its_fit_can_be_fitted_after(case, tmp_path):
    save_head(case.make(), tmp_path / "head.safetensors")
    loaded = load_head(tmp_path / "head.safetensors").fit(*known_data(case))
    assert torch.equal(answers(loaded, inputs(case)), answers(fitted(case), inputs(case)))


@every_scorer
def test_its_text_names_its_class_and_settings(case):
    text = repr(fitted(case))
    assert text.startswith(f"{type(case.make()).__name__}(")
    assert "=" in text


def test_the_page_about_heads_has_every_head_and_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "heads.md").read_text()
    assert [case.name for case in CASES if f"`{type(case.make()).__name__}`" not in page] == []
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], {})
    assert (tmp_path / "head.safetensors").exists()


class Answers(nn.Module):
    def __init__(self, scorer):
        super().__init__()
        self.scorer = scorer

    def forward(self, o):
        return answers(self.scorer, o)


@pytest.mark.parametrize("case", [case for case in CASES if case.exports], ids=name_of)
def test_torch_export_takes_any_batch_size(case):
    module, o = Answers(fitted(case)).eval(), inputs(case, n=5)
    shapes = {"o": {0: torch.export.Dim("b")}}
    exported = torch.export.export(module, (o,), dynamic_shapes=shapes).module()
    more = inputs(case, n=9)
    torch.testing.assert_close(exported(more), module(more), rtol=1e-9, atol=1e-9)
