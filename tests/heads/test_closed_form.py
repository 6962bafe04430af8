"""The closed-form head against ridge regression from its definition: every way to the same examples."""

from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_ridge import assert_equal, made_data, naive_fit, naive_leave_one_out, naive_outputs
from sklearn.linear_model import Ridge, RidgeCV

from openradial.errors import OptionError
from openradial.heads import ClosedFormRadialHead, RadialHead, closed_form
from openradial.heads.ridge import GRID

WEIGHTS = (1.0, 2.5, 0.3)
NAMES = ("ant", "bee", "cat", "dog", "eel")
OPTIONS = {
    "plain": {},
    "weights": {"class_weight": WEIGHTS},
    "scale": {"scale": 3.0},
    "random": {"random_features": 17, "width": 4.0},
    "squares": {"squares": True},
    "random squares": {"random_features": 17, "width": 0.5, "squares": True},
    "random, weights": {"random_features": 17, "width": 4.0, "class_weight": WEIGHTS, "scale": 0.5},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def head_of(k=3, d=5, alpha=0.7, **options):
    return ClosedFormRadialHead(NAMES[:k], d, alpha=alpha, **options)


def expanded(head, z):
    """The features that W multiplies, from their definition."""
    z = z.double().numpy()
    if head.squares:
        z = z**2 / np.linalg.norm(z**2, axis=1, keepdims=True)
    if not head.random_features:
        return z
    frequencies, phases = (part.double().numpy() for part in (head.features.frequencies, head.features.phases))
    return np.sqrt(2 / head.random_features) * np.cos(z @ frequencies + phases)


def weights_of(head, y):
    weights = head.sums.class_weight
    return None if weights is None else weights.numpy()[np.asarray(y)]


def twin(head, z, y, alpha=0.7):
    """The outputs of z under the naive fit to z and y with the settings of a head."""
    x = expanded(head, z)
    return naive_outputs(naive_fit(x, y, head.num_classes, alpha, head.scale, weights_of(head, y)), x)


def twin_leave_one_out(head, z, y, alpha=0.7):
    return naive_leave_one_out(expanded(head, z), y, head.num_classes, alpha, head.scale, weights_of(head, y))


@every_option
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6])
def test_fit_and_leave_one_out_equal_the_definition(options, dtype, offset):
    if dtype == torch.float16 and offset:
        offset = 1e3  # float16 ends at 65504
    z, y = made_data(offset=offset, dtype=dtype)
    head = head_of(**options).fit(z, y)
    assert_equal(head.outputs(z.double()), twin(head, z, y))
    assert_equal(head.leave_one_out(z, y), twin_leave_one_out(head, z, y))


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_outputs_of_float32_features_are_as_exact_as_those(offset):
    z, y = made_data(offset=offset, dtype=torch.float32)
    head = head_of().fit(z, y)
    assert head.outputs(z).dtype == head.outputs(z.half()).dtype == torch.float32
    size = float(head.weight.abs().sum(1).max()) * float(z.abs().max())
    assert_equal(head.outputs(z), twin(head, z, y), rtol=8 * torch.finfo(torch.float32).eps * max(1.0, size))


def test_the_solution_is_that_of_scikit_learn():
    z, y = made_data()
    weights = np.array(WEIGHTS)[y]
    for options, sample_weight in (({}, None), ({"class_weight": WEIGHTS}, weights)):
        head = head_of(alpha=2.0, **options).fit(z, y)
        theirs = Ridge(alpha=2.0).fit(z.numpy(), np.eye(3)[y], sample_weight=sample_weight)
        assert_equal(head.weight, theirs.coef_)
        assert_equal(head.bias, theirs.intercept_)


def test_the_radial_head_on_the_outputs_gives_the_same_answers():
    z, y = made_data()
    head = head_of(beta=1.5, scale=2.0).fit(z, y)
    radial, o = RadialHead(3, 1.5, 2.0, loss="squared"), head.outputs(z)
    assert torch.equal(head.log_probs(z), radial.log_probs(o))
    assert torch.equal(head.unknown_score(z), radial.unknown_score(o))
    assert torch.equal(head.predict(z), radial.predict(o))
    torch.testing.assert_close(head.loss(z, y), radial.loss(o, y))
    assert head.missing_classes == []


def test_no_other_solution_has_a_smaller_penalised_squared_loss():
    z, y = made_data()
    head = head_of(alpha=0.7, scale=2.0).fit(z, y)

    def objective(weight, bias):
        return (z @ weight.T + bias - 2 * torch.eye(3)[y]).square().sum() + 0.7 * weight.square().sum()

    best = objective(head.weight, head.bias)
    for seed in range(5):
        rng = torch.Generator().manual_seed(seed)
        step = 1e-3 * torch.randn(3, 5, generator=rng, dtype=torch.float64)
        assert objective(head.weight + step, head.bias) > best
        assert objective(head.weight, head.bias + step[:, 0]) > best


@every_option
@given(data=st.data())
@settings(max_examples=15)
def test_streaming_in_any_parts_is_a_fresh_fit(options, data):
    z, y = made_data(n=data.draw(st.integers(4, 40)), seed=data.draw(st.integers(0, 9)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(z)), max_size=5)))
    head = head_of(**options)
    for rows in np.split(np.arange(len(z)), cuts):
        if len(rows):
            head.partial_fit(z[rows], y[rows])
    assert_equal(head.outputs(z), twin(head, z, y))
    assert_equal(head.leave_one_out(z, y), twin_leave_one_out(head, z, y))
    assert head.counts.tolist() == torch.bincount(y, minlength=3).tolist()


@every_option
@given(data=st.data())
@settings(max_examples=15)
def test_removing_leaves_a_fresh_fit_of_the_rest(options, data):
    z, y = made_data(n=40, seed=data.draw(st.integers(0, 9)), offset=data.draw(st.sampled_from([0.0, 3.0])))
    gone = np.array(data.draw(st.lists(st.integers(0, 39), unique=True, min_size=1, max_size=38)))
    rest = np.setdiff1d(np.arange(40), gone)
    head = head_of(**options).fit(z, y)
    part = head.sums_of(z[gone], y[gone])
    for left in (head.without(part), head.remove(z[gone], y[gone])):
        assert_equal(left.outputs(z[rest]), twin(head, z[rest], y[rest]))
        assert left.classes == NAMES[:3]
        assert left.settings() == head.settings()


def test_without_leaves_the_head_as_it_is():
    z, y = made_data()
    head = head_of(alpha="auto", class_weight="balanced").fit(z, y)
    before, o = head.tensors(), head.outputs(z)
    other = head.without(head.sums_of(z[:9], y[:9]))
    assert other.solve().fitted_alpha == head.fitted_alpha
    assert torch.equal(other.sums.class_weight, head.sums.class_weight)
    assert_equal(other.outputs(z[9:]), twin(head, z[9:], y[9:], head.fitted_alpha))
    assert all(torch.equal(value, before[name]) for name, value in head.tensors().items())
    assert torch.equal(head.outputs(z), o)


@pytest.mark.parametrize("options", [{}, {"random_features": 11, "width": 4.0}], ids=["plain", "random"])
@pytest.mark.parametrize("has_weights", [False, True])
@given(data=st.data())
@settings(max_examples=15)
def test_shards_merge_in_any_order_and_with_any_classes(options, has_weights, data):
    z, y = made_data(n=50, k=5, seed=data.draw(st.integers(0, 9)), offset=data.draw(st.sampled_from([0.0, 100.0])))
    weights = dict(zip(NAMES, (1.0, 2.0, 0.5, 3.0, 0.25), strict=True))
    shard = np.array(data.draw(st.lists(st.integers(0, 3), min_size=50, max_size=50)))
    heads = []
    for part in data.draw(st.permutations(range(4))):
        rows = np.flatnonzero(shard == part)
        present = sorted({NAMES[c] for c in y[rows]}) or ["ant"]
        names = data.draw(st.permutations(present))
        given_weights = [weights[name] for name in names] if has_weights else None
        head = ClosedFormRadialHead(names, 5, alpha=0.7, class_weight=given_weights, **options)
        if len(rows):
            head.partial_fit(z[rows], torch.tensor([names.index(NAMES[c]) for c in y[rows]]))
        heads.append(head)
    merged = reduce(lambda mine, theirs: mine.merge(theirs), heads)
    assert set(merged.classes) == set(NAMES)
    labels = torch.tensor([merged.classes.index(NAMES[c]) for c in y])
    assert_equal(merged.outputs(z), twin(merged, z, labels))
    assert_equal(merged.leave_one_out(z, labels), twin_leave_one_out(merged, z, labels))
    kept = None if not has_weights else [weights[name] for name in merged.classes]
    assert (None if merged.class_weight is None else list(merged.class_weight)) == kept


def test_merging_leaves_the_other_head_as_it_is():
    z, y = made_data()
    head, other = head_of().fit(z[:30], y[:30]), head_of().fit(z[30:], y[30:])
    before = other.outputs(z)
    head.merge(other).remove(z[:3], y[:3])
    assert torch.equal(other.outputs(z), before)
    assert int(other.counts.sum()) == 30


@every_option
def test_a_class_is_added_as_if_it_had_been_there(options):
    z, y = made_data()
    options = {name: value for name, value in options.items() if name != "class_weight"}
    old = y < 2
    for weights, extra in ((None, {}), (WEIGHTS, {"weight": WEIGHTS[2]})):
        head = head_of(k=2, class_weight=weights and weights[:2], **options).fit(z[old], y[old])
        assert head.add_class("cat", z[~old], **extra) is head
        fresh = head_of(class_weight=weights, **options).fit(z, y)
        assert_equal(head.outputs(z), fresh.outputs(z))
        assert_equal(head.outputs(z), twin(fresh, z, y))
        assert head.classes == fresh.classes
        assert head.settings() == fresh.settings()
        assert_equal(head.fit(z, y).outputs(z), fresh.outputs(z))  # the weights of all classes are kept


def test_a_weight_of_an_added_class_counts_in_a_head_without_weights():
    z, y = made_data()
    old = y < 2
    head = head_of(k=2).fit(z[old], y[old]).add_class("cat", z[~old], weight=4.0)
    assert_equal(head.outputs(z), head_of(class_weight=[1, 1, 4]).fit(z, y).outputs(z))


@every_option
def test_a_class_is_dropped_as_if_it_had_never_been_there(options):
    z, y = made_data()
    head = head_of(**options).fit(z, y)
    rest = y != 1
    head.drop_class("bee", z[~rest].flip(0))
    assert head.classes == ("ant", "cat")
    labels = y[rest] // 2
    assert_equal(head.outputs(z[rest]), twin(head, z[rest], labels))
    assert_equal(head.leave_one_out(z[rest], labels), twin_leave_one_out(head, z[rest], labels))
    assert head.distances(z).shape == (60, 2)


def test_an_empty_class_is_dropped_without_examples():
    z, y = made_data(k=2)
    head = head_of().fit(z, y)
    assert head.missing_classes == [2]
    assert_equal(head.drop_class("cat", z[:0]).outputs(z), twin(head_of(k=2), z, y))


def test_a_renamed_class_keeps_its_outputs_and_joins_by_its_new_name():
    z, y = made_data()
    head = head_of().fit(z, y)
    before = head.outputs(z)
    assert head.rename_class("bee", "wasp").classes == ("ant", "wasp", "cat")
    assert torch.equal(head.outputs(z), before)
    assert head.merge(head_of().fit(z, y)).classes == ("ant", "wasp", "cat", "bee")


@every_option
def test_random_updates_end_where_a_fresh_fit_ends(options):
    rng, (z, y) = np.random.default_rng(0), made_data(n=80)
    head, inside = head_of(**options).partial_fit(z[:3], y[:3]), {0, 1, 2}
    for _ in range(40):
        rows = rng.choice(80, size=rng.integers(1, 12), replace=False)
        new, old = ([r for r in rows if (r in inside) == want] for want in (False, True))
        if new:
            head.partial_fit(z[new], y[new])
        if old and len(old) < len(inside):
            head.remove(z[old], y[old])
            inside -= set(old)
        inside |= set(new)
    kept = sorted(inside)
    assert_equal(head.outputs(z[kept]), twin(head, z[kept], y[kept]))


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize(("n", "d"), [(60, 5), (20, 30)])
def test_alpha_is_that_of_the_smallest_leave_one_out_error(weights, n, d):
    z, y = made_data(n=n, d=d)
    z += 3 * torch.randn(n, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    head = head_of(d=d, alpha="auto", class_weight=weights).fit(z, y)
    w = np.ones(n) if weights is None else np.array(weights)[y]
    centred = (z - head.sums.statistics.mean).numpy()
    unit = (w[:, None] * centred**2).sum() / d
    errors = []
    for alpha in (unit * each for each in GRID):
        o = naive_leave_one_out(z, y, 3, alpha, weights=None if weights is None else w)
        errors.append((w @ ((o - np.eye(3)[y]) ** 2).sum(1) / w.sum(), alpha))
    assert head.fitted_alpha == pytest.approx(min(errors)[1], rel=1e-9)
    if weights is None:
        theirs = RidgeCV([alpha for _, alpha in errors], scoring=None).fit(z.numpy(), np.eye(3)[y])
        assert head.fitted_alpha == pytest.approx(theirs.alpha_, rel=1e-9)


def test_alpha_stays_as_chosen_until_the_next_fit():
    z, y = made_data()
    head = head_of(alpha="auto").fit(z, y)
    selected = head.fitted_alpha
    assert head.partial_fit(z, y).solve().fitted_alpha == selected
    assert head.fit(100 * z, y).fitted_alpha == pytest.approx(1e4 * selected)
    assert head.reset().fitted_alpha is None
    assert not head.is_fitted


def test_alpha_of_a_stream_is_that_of_generalised_cross_validation():
    z, y = made_data(n=30)
    z += 2 * torch.randn(30, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    head = head_of(alpha="auto").partial_fit(z, y).solve()
    x, t = z.numpy() - z.numpy().mean(0), np.eye(3)[y]
    errors = []
    for alpha in ((x**2).sum() / 5 * each for each in GRID):
        hat = x @ np.linalg.solve(x.T @ x + alpha * np.eye(5), x.T) + 1 / 30
        errors.append((((t - hat @ t) ** 2).sum() / 30 / (1 - np.trace(hat) / 30) ** 2, alpha))
    assert head.fitted_alpha == pytest.approx(min(errors)[1])


def test_the_width_is_that_of_the_smallest_leave_one_out_error():
    z, y = made_data(n=40)
    head = head_of(alpha="auto", random_features=30, seed=3).fit(z, y)
    unit = closed_form.median_distance(z, 3)
    trials = []
    for width in (unit * each for each in closed_form.WIDTHS):
        pilot = head_of(alpha="auto", random_features=30, width=width, seed=3).fit(z, y)
        o = twin_leave_one_out(pilot, z, y, pilot.fitted_alpha)
        trials.append((((o - np.eye(3)[y]) ** 2).sum(), width))
    assert float(head.features.width) == min(trials)[1]
    assert_equal(head.outputs(z), twin(head, z, y, head.fitted_alpha))


def imbalanced(overlap):
    """Two classes in one dimension, 20 to 1, that overlap or not."""
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(420, 1, generator=rng, dtype=torch.float64)
    y = (torch.arange(420) >= 400).long()
    return z + y.unsqueeze(1) * (2.0 if overlap else 50.0), y


def macro_error(head, z, y):
    wrong = twin_leave_one_out(head, z, y, head.fitted_alpha).argmax(1) != y.numpy()
    return np.mean([wrong[y.numpy() == c].mean() for c in y.unique()])


@pytest.mark.parametrize("overlap", [True, False])
def test_class_weights_are_balanced_where_that_lowers_the_macro_error(overlap):
    z, y = imbalanced(overlap)
    heads = {weight: head_of(2, 1, class_weight=weight).fit(z, y) for weight in ("auto", "balanced", None)}
    errors = {weight: macro_error(head, z, y) for weight, head in heads.items()}
    assert {weight: head.macro_error(z, y) for weight, head in heads.items()} == pytest.approx(errors)
    assert (errors["balanced"] < errors[None]) == overlap
    selected = heads["balanced" if overlap else None]
    assert torch.equal(heads["auto"].outputs(z), selected.outputs(z))
    assert (heads["auto"].sums.class_weight is not None) == overlap


def test_balanced_weights_are_those_of_scikit_learn_and_stay():
    z, y = imbalanced(True)
    head = head_of(2, 1, class_weight="balanced").fit(z, y)
    assert head.sums.class_weight.tolist() == pytest.approx([420 / 800, 420 / 40])
    assert_equal(head.outputs(z), twin(head, z, y))
    head.remove(z[:100], y[:100])
    assert head.sums.class_weight.tolist() == pytest.approx([420 / 800, 420 / 40])
    assert_equal(head.outputs(z[100:]), twin(head, z[100:], y[100:]))


def test_large_data_are_handled_in_parts_and_compared_by_a_sample(monkeypatch):
    z, y = made_data(n=90)
    expected = head_of(alpha="auto", class_weight="auto", random_features=8).fit(z, y)
    monkeypatch.setattr(closed_form, "AT_ONCE", 64)
    head = head_of(alpha="auto", class_weight="auto", random_features=8).fit(z, y)
    assert_equal(head.outputs(z), expected.outputs(z))
    assert_equal(head.leave_one_out(z, y), expected.leave_one_out(z, y))
    monkeypatch.setattr(closed_form, "MOST", 50)
    head = head_of(alpha="auto").fit(z, y)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(0))[:50]
    errors = (head.leave_one_out(z[order], y[order]).argmax(1) != y[order]).double()
    assert head.macro_error(z, y) == pytest.approx(np.mean([errors[y[order] == c].mean() for c in range(3)]))
    assert head.counts.sum() == 90


def weighted_data():
    z, y = made_data()
    return z, y, torch.rand(len(z), generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1


@every_option
def test_sample_weights_multiply_those_of_the_classes(options):
    z, y, w = weighted_data()
    head = head_of(**options).fit(z, y, w)
    x, weights = expanded(head, z), w.numpy() if head.class_weight is None else w.numpy() * weights_of(head, y)
    assert_equal(head.outputs(z), naive_outputs(naive_fit(x, y, 3, 0.7, head.scale, weights), x))
    assert_equal(head.leave_one_out(z, y, w), naive_leave_one_out(x, y, 3, 0.7, head.scale, weights))


@every_option
def test_whole_numbers_as_sample_weights_are_repeated_examples(options):
    z, y = made_data()
    times = torch.arange(len(z)) % 3 + 1
    weighted = head_of(**options).fit(z, y, times.double())
    repeated = head_of(**options).fit(z.repeat_interleave(times, 0), y.repeat_interleave(times))
    assert_equal(weighted.outputs(z), repeated.outputs(z))
    assert torch.equal(weighted.counts, torch.bincount(y))
    balanced = [
        head_of(**options | {"class_weight": "balanced"}).fit(*rows)
        for rows in ((z, y, times.double()), (z.repeat_interleave(times, 0), y.repeat_interleave(times)))
    ]
    assert_equal(*(head.outputs(z) for head in balanced))


def test_weighted_examples_are_added_and_taken_out():
    z, y, w = weighted_data()
    expected = head_of().fit(z[:40], y[:40], w[:40]).outputs(z)
    head = head_of().partial_fit(z[:20], y[:20], w[:20]).partial_fit(z[20:], y[20:], w[20:])
    assert_equal(head.remove(z[40:], y[40:], w[40:]).outputs(z), expected)


def test_alpha_and_class_weights_are_chosen_with_sample_weights():
    z, y, w = weighted_data()
    head = head_of(alpha="auto", class_weight="auto").fit(z, y, w)
    weights = w.numpy() if head.sums.class_weight is None else w.numpy() * weights_of(head, y)
    grid = [head.fitted_alpha * factor for factor in (GRID[0] / GRID[1], 1.0, GRID[1] / GRID[0])]
    errors = [naive_leave_one_out(z, y, 3, alpha, 1.0, weights) - np.eye(3)[y] for alpha in grid]
    errors = [np.square(each).sum(1) @ weights for each in errors]
    assert errors[1] == min(errors)


def test_sample_weights_that_cannot_be_are_refused():
    z, y, w = weighted_data()
    for wrong, got in ((w[1:], r"\(59,\)$"), (-w, r"\(60,\) and -"), (w * torch.nan, r"\(60,\) and nan to nan$")):
        with pytest.raises(OptionError, match=rf"^sample_weight must be 60 positive numbers, .* got the shape {got}"):
            head_of().fit(z, y, wrong)
        with pytest.raises(OptionError, match="sample_weight must be 60 positive"):
            head_of().partial_fit(z, y, wrong)
    head = head_of().fit(z, y, w)
    with pytest.raises(OptionError, match="subtract what was added"):
        head.drop_class("ant", z[y == 0])
    assert head.remove(z[y == 0], y[y == 0], w[y == 0]).drop_class("ant", z[:0]).classes == ("bee", "cat")
