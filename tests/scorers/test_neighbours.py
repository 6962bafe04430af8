import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from openradial.errors import DTypeError, HeadError, OptionError, ShapeError, TargetError
from openradial.heads import load_head, save_head
from openradial.scorers import NeighbourScorer, neighbours
from openradial.scorers.neighbours import NeighbourSearch, smallest
from tests.rounding import tolerance

WAYS = [
    {"metric": metric, "reduce": reduce, "normalise": normalise, "by_class": by_class}
    for metric in ("euclidean", "cosine")
    for reduce in ("kth", "mean")
    for normalise in (False, True)
    for by_class in (False, True)
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


def naive_score(row, references, labels, k, metric="euclidean", reduce="kth", normalise=False, by_class=False):
    scores = []
    for label in sorted(set(labels)) if by_class else [None]:
        found = [
            distance(row, reference, metric, normalise)
            for reference, its_label in zip(references, labels, strict=True)
            if label is None or its_label == label
        ]
        nearest = sorted(found)[:k]
        scores.append(nearest[-1] if reduce == "kth" else sum(nearest) / k)
    return min(scores)


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
    references[4] = z[3] = 0.0
    scores = NeighbourScorer(4, **way).fit(references, y).unknown_score(z)
    expected = [naive_score(row, references, y.tolist(), 4, **way) for row in z]
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
    found = NeighbourSearch(references).nearest(z, 7)
    torch.testing.assert_close(found, brute_force(z, references)[:, :7], rtol=1e-13, atol=0.0)


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
    assert NeighbourScorer(3, by_class=True).fit(references, y).unknown_score(z[:0]).shape == (0,)


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


def test_a_class_without_examples_is_no_class():
    references, y, z = data()
    plain = NeighbourScorer(3, by_class=True).fit(references, y)
    assert torch.equal(
        NeighbourScorer(3, by_class=True).fit(references, 7 * y).unknown_score(z), plain.unknown_score(z)
    )


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
            {"k": 21, "by_class": True},
            lambda z, y: (z, y),
            OptionError,
            "k must be at most the number of references, got k=21 but 20 rows in class 0; use a smaller k",
        ),
        (
            {"by_class": True},
            lambda z, y: (z, None),
            OptionError,
            "labels are needed to tell the classes apart, got None; call fit(features, labels)",
        ),
        (
            {"by_class": True},
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
