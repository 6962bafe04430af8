import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from openradial.errors import DataError, DTypeError, HeadError, OptionError, ShapeError, TargetError
from openradial.heads import load_head, save_head
from openradial.scorers import NeighbourScorer, neighbours
from openradial.scorers.neighbours import NeighbourSearch, smallest
from tests.rounding import tolerance

WAYS = [
    {"metric": metric, "reduce": reduce, "normalise": normalise, "relative": relative}
    for metric in ("euclidean", "cosine")
    for reduce in ("kth", "mean")
    for normalise in (False, True)
    for relative in (False, True)
]


def distance(a, b, metric, normalise):
    """The definition, one pair at a time."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if metric == "cosine":
        lengths = np.sqrt((a * a).sum() * (b * b).sum())
        return 1.0 - (a * b).sum() / lengths if lengths else 1.0
    if normalise:
        a, b = (v / np.sqrt((v * v).sum()) if v.any() else v for v in (a, b))
    return np.sqrt(((a - b) ** 2).sum())


def naive_scales(references, labels, k, relative, **way):
    """The scale of the class of each reference, by the definition."""
    if not relative:
        return [1.0] * len(references)
    rows = list(range(len(references)))
    usual = np.array(
        [naive_score(references[i], np.delete(references, i, 0), [1.0] * len(rows[1:]), k, **way) for i in rows]
    )
    of_all, scales = np.quantile(usual, 0.9), []
    for label in labels:
        in_class = usual[np.asarray(labels) == label]
        share = len(in_class) / (len(in_class) + 10)
        ratio = min(10.0, max(0.1, np.quantile(in_class, 0.9) / of_all))
        scales.append(of_all * ratio**share)
    return scales


def naive_score(row, references, scales, k, metric="euclidean", reduce="kth", normalise=False):
    found = [distance(row, reference, metric, normalise) for reference in references]
    nearest = [found[i] / scales[i] for i in np.argsort(found, kind="stable")[:k]]
    return nearest[-1] if reduce == "kth" else sum(nearest) / k


def data(n=60, b=9, d=5, dtype=torch.float32, seed=0):
    """References, labels of three classes and queries."""
    rng = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    z = torch.randn(n, d, generator=rng, dtype=torch.float64) + y.unsqueeze(1)
    return z.to(dtype), y, torch.randn(b, d, generator=rng, dtype=torch.float64).mul(2).to(dtype)


def brute_force(z, references):
    return torch.linalg.vector_norm(z.double().unsqueeze(1) - references.double(), dim=2).sort(1).values


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
def test_the_score_equals_the_definition(way, dtype):
    references, y, z = data(dtype=dtype)
    references[4] = 0.0
    if not way["relative"]:  # zeros are equally far from all directions, so any class may be that of the neighbours
        z[3] = 0.0
    scores = NeighbourScorer(4, **way).fit(references, y).unknown_score(z)
    scales = naive_scales(references.numpy(), y.tolist(), 4, **way)
    others = {name: value for name, value in way.items() if name != "relative"}
    expected = [naive_score(row, references, scales, 4, **others) for row in z]
    assert scores.dtype == dtype
    np.testing.assert_allclose(scores, expected, rtol=1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("k", [1, 3, 40])
def test_many_references_give_what_scikit_learn_finds(metric, k):
    references, _, z = data(n=3000, b=40, d=6, dtype=torch.float64)
    references[5] = z[2] = 0.0
    oracle = NearestNeighbors(n_neighbors=k, metric=metric, algorithm="brute").fit(references.numpy())
    expected = oracle.kneighbors(z.numpy())[0]
    head = NeighbourScorer(k, metric, "mean").fit(references)
    np.testing.assert_allclose(head.unknown_score(z), expected.mean(1), rtol=1e-9)


def test_a_case_by_hand():
    references = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    z = torch.tensor([[0.0, 0.0], [0.0, -1.0]])
    assert NeighbourScorer(2).fit(references).unknown_score(z).tolist() == [1.0, 2.0]
    assert NeighbourScorer(3, reduce="mean").fit(references).unknown_score(z)[0] == 2.0


@given(
    points=st.lists(st.tuples(*[st.integers(-2, 2)] * 3), min_size=6, max_size=40),
    k=st.integers(1, 6),
    scale=st.sampled_from([1e-20, 1.0, 1e12]),
)
def test_ties_and_copies_count_as_often_as_they_are_there(points, k, scale):
    references = torch.tensor(points, dtype=torch.float64) * scale
    z = references[:5] + scale
    scores = NeighbourScorer(k).fit(references).unknown_score(z)
    torch.testing.assert_close(scores, brute_force(z, references)[:, k - 1], rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1e-2, 3e-3, 1e-3, 3e-4, 1e-5])
def test_distances_within_tight_far_apart_clusters_keep_all_digits(spread, dtype):
    rng = torch.Generator().manual_seed(0)
    centres = 10 * torch.eye(10, dtype=torch.float64)
    noise = torch.randn(3200, 10, generator=rng, dtype=torch.float64)
    rows = (centres[torch.arange(3200) % 10] + spread * noise).to(dtype)
    z, references = rows[:200], rows[200:]
    found, indices = NeighbourSearch(references).nearest(z, 7)
    torch.testing.assert_close(found, brute_force(z, references)[:, :7], rtol=1e-13, atol=0.0)
    of_indices = torch.linalg.vector_norm(z.double().unsqueeze(1) - references[indices].double(), dim=2)
    torch.testing.assert_close(of_indices, found, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("gap", [1e-3, 1e-7, 1e-12])
def test_a_near_copy_has_its_own_distance(gap):
    references, _, _ = data(n=2500, d=20, dtype=torch.float64)
    z = references[:8].clone()
    z[:, 3] += gap
    scores = NeighbourScorer(1).fit(references).unknown_score(z)
    torch.testing.assert_close(scores, (z - references[:8]).abs().amax(1), rtol=1e-12, atol=0.0)


def test_far_away_rows_are_searched_exactly():
    references, _, z = data(n=3000, d=8, dtype=torch.float64)
    z = z * 1e9
    expected = brute_force(z, references)[:, 4]
    torch.testing.assert_close(NeighbourScorer(5).fit(references).unknown_score(z), expected, rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("scale", [1e-19, 1e-22, 3e-23, 1e-23, 3e-24, 1e-40])
def test_features_whose_squares_vanish_in_float32_are_searched_exactly(scale):
    references, _, z = data(n=3000, b=100, d=8, dtype=torch.float64)
    references[:1500] += 20
    z += 20
    expected = brute_force(z, references)[:, 4] * scale
    scores = NeighbourScorer(5).fit(scale * references).unknown_score(scale * z)
    torch.testing.assert_close(scores, expected, rtol=1e-13, atol=0.0)


@given(st.integers(0, 20), st.sampled_from([1, 5, 60]))
def test_the_smallest_of_blocks_are_those_of_the_row(seed, count):
    s = torch.randn(3, 64 * 300, generator=torch.Generator().manual_seed(seed)).mul(20).round()
    values, indices = smallest(s, count)
    assert torch.equal(values, s.sort(1).values[:, :count])
    assert torch.equal(s.gather(1, indices), values)
    assert all(len(set(row)) == count for row in indices.tolist())


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_score_is_the_same_in_any_batch(metric, monkeypatch):
    references, _, z = data(n=2500, b=50, d=33)
    head = NeighbourScorer(5, metric).fit(references)
    together = head.unknown_score(z)
    alone = torch.cat([head.unknown_score(row.unsqueeze(0)) for row in z])
    beside_others = head.unknown_score(torch.cat([z.flip(0), 1e9 * z]))[:50].flip(0)
    monkeypatch.setattr(neighbours, "PRODUCTS", 7000)
    monkeypatch.setattr(neighbours, "IN_CACHE", 100)
    for scores in (alone, beside_others, head.unknown_score(z)):
        torch.testing.assert_close(scores, together, **tolerance(33, together.dtype))  # sums over 33 features


def test_faster_matrix_products_and_autocast_change_nothing():
    references, _, z = data(n=2500, b=20, d=40)
    head = NeighbourScorer(5).fit(references)
    expected = head.unknown_score(z)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(head.unknown_score(z), expected)
    torch.set_float32_matmul_precision("medium")
    try:
        assert torch.equal(head.unknown_score(z), expected)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_nan_and_infinity_stay_in_their_rows():
    references, _, z = data()
    head = NeighbourScorer(3).fit(references)
    expected = head.unknown_score(z)
    z[1, 0], z[4, 2], z[5] = torch.nan, torch.inf, -torch.inf
    scores = head.unknown_score(z)
    assert scores[1].isnan()
    assert scores[[4, 5]].isposinf().all()
    others = [0, 2, 3, 6, 7, 8]
    assert torch.equal(scores[others], expected[others])


def test_numbers_too_large_for_float32_are_scored():
    references = torch.tensor([[0.0], [1e60]], dtype=torch.float64)
    z = torch.tensor([[2e50], [3e60], [1e300]], dtype=torch.float64)
    scores = NeighbourScorer(1).fit(references).unknown_score(z)
    torch.testing.assert_close(scores[:2], z.new_tensor([2e50, 2e60]), rtol=1e-15, atol=0.0)
    assert scores[2] > 1e299


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_scored_in_float32(dtype):
    references, _, z = data(dtype=dtype)
    scores = NeighbourScorer(3).fit(references).unknown_score(z)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, brute_force(z, references)[:, 2].float())


def test_an_empty_batch_has_no_scores():
    references, y, z = data()
    assert NeighbourScorer(3, relative=True).fit(references, y).unknown_score(z[:0]).shape == (0,)


def test_the_gradient_points_away_from_the_neighbour():
    references, _, z = data(dtype=torch.float64)
    z[0] = references[5]
    z.requires_grad_()
    NeighbourScorer(1).fit(references).unknown_score(z).sum().backward()
    assert torch.equal(z.grad[0], torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(z.grad[1:].norm(dim=1), torch.ones(8, dtype=torch.float64))


def test_the_references_are_a_copy():
    references, _, z = data()
    head = NeighbourScorer(3).fit(references)
    expected = head.unknown_score(z)
    references.zero_()
    assert torch.equal(head.unknown_score(z), expected)


def test_other_references_are_searched_from_then_on():
    (first, _, z), (second, _, _) = data(seed=0), data(seed=1)
    head, other = NeighbourScorer(3).fit(first), NeighbourScorer(3).fit(second)
    head.unknown_score(z)
    assert torch.equal(head.fit(second).unknown_score(z), other.unknown_score(z))
    head.fit(first).unknown_score(z)
    head.load_state_dict(other.state_dict())
    assert torch.equal(head.unknown_score(z), other.unknown_score(z))
    torch.testing.assert_close(head.double().unknown_score(z.double()).float(), other.unknown_score(z))


@pytest.mark.parametrize("way", [WAYS[0], WAYS[-1]], ids=["plain", "all"])
def test_a_saved_scorer_is_the_same_to_the_last_bit(way, tmp_path):
    references, y, z = data()
    head = NeighbourScorer(4, **way).fit(references, y)
    save_head(head, tmp_path / "head")
    loaded = load_head(tmp_path / "head")
    assert loaded.settings() == head.settings() == {"k": 4, **way}
    assert torch.equal(loaded.unknown_score(z), head.unknown_score(z))


def test_a_class_without_references_changes_nothing():
    references, y, z = data()
    plain = NeighbourScorer(3, relative=True).fit(references, y)
    assert torch.equal(
        NeighbourScorer(3, relative=True).fit(references, 7 * y).unknown_score(z), plain.unknown_score(z)
    )


def test_relative_scores_do_not_depend_on_how_close_the_examples_of_a_class_are():
    rng = torch.Generator().manual_seed(0)
    tight, wide = torch.randn(2, 3000, 2, generator=rng, dtype=torch.float64)
    references = torch.cat([0.2 * tight, wide + torch.tensor([50.0, 0.0])])
    y = torch.arange(2).repeat_interleave(3000)
    z = torch.randn(500, 2, generator=rng, dtype=torch.float64)
    beside = [0.2 * z, z + torch.tensor([50.0, 0.0])]  # new examples of each class
    plain, relative = (
        [NeighbourScorer(1, relative=on).fit(references, y).unknown_score(x).median() for x in beside]
        for on in (False, True)
    )
    assert plain[1] > 4 * plain[0]
    assert 0.8 < relative[1] / relative[0] < 1.25


def test_classes_with_few_references_borrow_their_scale_from_all():
    references, y, _ = data()
    rare = y.clone()
    rare[0] = 3  # a class with one reference: 10 of 11 parts are those of all
    first = NeighbourScorer(2, relative=True).fit(references, rare)
    of_all = first.unknown_score(references).new_tensor(
        np.quantile(brute_force(references, references)[:, 2].numpy(), 0.9)
    )
    own = float(brute_force(references[:1], references)[0, 2])
    expected = float(of_all) * (own / float(of_all)) ** (1 / 11)
    assert float(first.scales[0]) == pytest.approx(expected, rel=1e-6)


def test_equal_references_have_a_scale_above_0():
    references, y, z = data()
    equal = NeighbourScorer(1, relative=True).fit(torch.zeros(60, 5), y)
    assert torch.equal(equal.unknown_score(z), NeighbourScorer(1).fit(torch.zeros(60, 5)).unknown_score(z))
    references[y == 1] = 1.0  # nearest references of this class are equal to each other
    scorer = NeighbourScorer(1, relative=True).fit(references, y)
    of_all = np.quantile(brute_force(references, references)[:, 1].numpy(), 0.9)
    assert float(scorer.scales[1]) == pytest.approx(of_all * 0.1 ** (20 / 30), rel=1e-5)


def test_scales_that_do_not_belong_to_the_references_are_refused():
    references, y, _ = data()
    tensors = NeighbourScorer(2, relative=True).fit(references, y).tensors()
    message = "references and scales must have as many rows, got the shapes (60, 5) and (59,)"
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}$"):
        NeighbourScorer(2, relative=True).restore(tensors | {"scales": tensors["scales"][1:]})
    for wrong in (0.0, -1.0, torch.nan, torch.inf):
        scales = tensors["scales"].clone()
        scales[7] = wrong
        with pytest.raises(DataError, match="the scales of classes must be finite and above 0"):
            NeighbourScorer(2, relative=True).restore(tensors | {"scales": scales})


def test_relative_scores_are_not_computed_without_some_references():
    references, y, z = data()
    scorer = NeighbourScorer(2, relative=True).fit(references, y)
    with pytest.raises(OptionError, match="k=2 references must be left, and none be relative"):
        scorer.unknown_score(z, y == 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be a whole number of at least 1, got 0"),
        ({"metric": "manhattan"}, "metric must be one of 'euclidean', 'cosine', got 'manhattan'"),
        ({"reduce": "max"}, "reduce must be one of 'kth', 'mean', got 'max'"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(OptionError, match=f"^{re.escape(message)}$"):
        NeighbourScorer(**options)


def spoilt(z):
    z = z.clone()
    z[3, 1] = torch.nan
    return z


@pytest.mark.parametrize(
    ("options", "change", "error", "message"),
    [
        (
            {},
            lambda z, y: (z[:0], y[:0]),
            ShapeError,
            "features must hold at least one example to learn from, got none",
        ),
        (
            {},
            lambda z, y: (spoilt(z), y),
            ShapeError,
            "features must be finite, got nan or infinity in 1 rows, the first is row 3",
        ),
        ({}, lambda z, y: (z[0], y), ShapeError, "features must have the shape (b, d), got (5,)"),
        (
            {},
            lambda z, y: (z.long(), y),
            DTypeError,
            "features must be floating point, got torch.int64; convert them with .float()",
        ),
        (
            {"k": 61},
            lambda z, y: (z, None),
            OptionError,
            "k must be at most the number of references, got k=61 but 60 rows; use a smaller k",
        ),
        (
            {"k": 60, "relative": True},
            lambda z, y: (z, y),
            OptionError,
            "k must be at most the number of other references, got k=60 but 59 rows; use a smaller k",
        ),
        (
            {"relative": True},
            lambda z, y: (z, None),
            OptionError,
            "labels are needed to tell the classes apart, got None; call fit(features, labels)",
        ),
        (
            {"relative": True},
            lambda z, y: (z, y - 1),
            TargetError,
            "labels must be classes from 0 to 1, got -1 in row 0",
        ),
    ],
)
def test_known_data_that_cannot_be_used_is_refused(options, change, error, message):
    references, y, _ = data()
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        NeighbourScorer(**options).fit(*change(references, y))


def test_scoring_needs_a_fit_and_rows_of_the_same_width():
    references, _, z = data()
    with pytest.raises(HeadError, match=r"^NeighbourScorer must be fitted first"):
        NeighbourScorer().unknown_score(z)
    with pytest.raises(ShapeError, match=r"^features must have the shape \(b, 5\), got \(9, 4\)$"):
        NeighbourScorer().fit(references).unknown_score(z[:, :4])


@pytest.mark.parametrize("options", [{"normalise": True}, {"metric": "cosine"}], ids=str)
@pytest.mark.parametrize("factor", [1e-200, 1e300])
def test_directions_survive_lengths_whose_squares_overflow(options, factor):
    z = torch.tensor([[1.0, 2.0], [-3.0, 1.0]], dtype=torch.float64)
    scorer = NeighbourScorer(1, **options).fit(z)
    query = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(scorer.unknown_score(factor * query), scorer.unknown_score(query))


@given(seed=st.integers(0, 50), k=st.integers(1, 3), count=st.sampled_from([5, 70, 700]))
def test_excluded_references_do_not_count(seed, k, count):
    random = np.random.default_rng(seed)
    rows, queries = (torch.from_numpy(random.normal(size=(n, 3))).float() for n in (count, 4))
    excluded = torch.from_numpy(random.random(count) < 0.4)
    excluded[:k] = False
    expected = NeighbourScorer(k).fit(rows[~excluded]).unknown_score(queries)
    torch.testing.assert_close(NeighbourScorer(k).fit(rows).unknown_score(queries, excluded), expected)


def test_enough_references_must_be_left():
    scorer = NeighbourScorer(2).fit(torch.eye(3))
    with pytest.raises(OptionError, match="exclude fewer rows"):
        scorer.unknown_score(torch.eye(3), torch.tensor([True, True, False]))
