import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.fitting.cross import FOLDS, FeatureSet, assign_folds, cross_fit, reference_rows
from openradial.heads import ClosedFormRadialHead
from openradial.models import build
from openradial.recipe import OUTPUTS
from openradial.scorers import MahalanobisScorer, NeighbourScorer
from openradial.training import limited_threads
from tests.heads.naive_ridge import made_data, naive_fit, naive_outputs

NAMES = ("a", "b", "c")


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=6), folds=st.integers(2, 10), seed=st.integers(0, 3))
def test_folds_have_the_same_size_and_classes(counts, folds, seed):
    y = torch.cat([torch.full((n,), k) for k, n in enumerate(counts)])
    made = assign_folds(y, folds, seed=seed)
    sizes = made.bincount()
    assert len(sizes) == min(folds, len(y))
    assert sizes.max() - sizes.min() <= 1
    for k in range(len(counts)):
        members = made[y == k].bincount(minlength=len(sizes))
        assert members.max() - members.min() <= 1


@given(labels=st.lists(st.integers(0, 3), min_size=2, max_size=80), groups=st.integers(1, 20), seed=st.integers(0, 3))
def test_no_fold_separates_a_group(labels, groups, seed):
    y = torch.tensor(labels)
    members = torch.from_numpy(np.random.default_rng(seed).integers(0, groups, len(y))) * 7 - 3  # any numbers
    made = assign_folds(y, groups=members, seed=seed)
    for group in members.unique():
        assert len(made[members == group].unique()) == 1
    assert len(made.unique()) == int(made.max()) + 1 == min(FOLDS, len(members.unique()))


def test_folds_follow_from_the_seed_alone():
    y = torch.arange(90) % 3
    first, again, other = (assign_folds(y, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.manual_seed(5)
    assert torch.equal(assign_folds(y, seed=1), first)


def fitted(z, y, **options):
    return ClosedFormRadialHead(NAMES, z.shape[1], **{"alpha": 0.3, **options}).fit(z, y)


@pytest.mark.parametrize("has_weights", [False, True])
def test_outputs_are_those_of_a_head_that_has_never_seen_the_fold(has_weights):
    z, y = made_data(n=70, k=3)
    folds, prototypes = assign_folds(y), np.eye(3)
    w = torch.rand(70, generator=torch.Generator().manual_seed(2), dtype=torch.float64) + 0.2 if has_weights else None
    head = ClosedFormRadialHead(NAMES, z.shape[1], alpha=0.3).fit(z, y, w)
    result = cross_fit(head, [], FeatureSet(z, y, weights=w), folds)
    for fold in range(FOLDS):
        here, rest = folds == fold, folds != fold
        naive = naive_fit(z[rest], y[rest], 3, alpha=0.3, weights=None if w is None else w[rest])
        outputs = naive_outputs(naive, z[here])
        distances = np.linalg.norm(outputs[:, None] - prototypes, axis=2)
        np.testing.assert_allclose(result.distances[here], distances, rtol=1e-8)
        np.testing.assert_allclose(result.scores[here, 0], distances.min(1), rtol=1e-8)
        assert (result.nearest[here].numpy() == distances.argmin(1)).all()
    assert result.outlier_distances.shape == (0, 3)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_random_features_alpha_and_weights_are_those_of_the_complete_head(class_weight):
    z, y = made_data(n=60, k=3)
    head = fitted(z, y, alpha="auto", random_features=16, class_weight=class_weight)
    folds, rows, weights = assign_folds(y), head.expand(z), head.sums.class_weight
    result = cross_fit(head, [], FeatureSet(z, y), folds)
    rest = folds != 2
    row_weights = None if weights is None else weights[y[rest]]
    naive = naive_fit(rows[rest], y[rest], 3, head.fitted_alpha, weights=row_weights)
    distances = np.linalg.norm(naive_outputs(naive, rows[~rest])[:, None] - np.eye(3), axis=2)
    np.testing.assert_allclose(result.distances[~rest], distances, rtol=1e-6)
    assert head.is_fitted
    torch.testing.assert_close(head.counts, y.bincount())  # nothing was taken from the head itself


@pytest.mark.parametrize("groups", [None, "copies"])
@pytest.mark.parametrize(
    "scorer",
    [
        MahalanobisScorer(normalise=True, shrinkage="oas"),
        MahalanobisScorer(shrinkage=0.1, relative=True),
        MahalanobisScorer(),  # Ledoit and Wolf need rows: it is fitted to those of the other folds
        NeighbourScorer(2),
        NeighbourScorer(1, normalise=True),
    ],
    ids=lambda scorer: f"{type(scorer).__name__}-{scorer.settings().get('shrinkage', scorer.settings().get('k'))}",
)
def test_scores_are_those_of_a_scorer_that_has_never_seen_the_fold(scorer, groups):
    z, y = made_data(n=50, k=3)
    members = None
    if groups:
        z, y, members = torch.cat([z, z]), torch.cat([y, y]), torch.arange(50).repeat(2)
    folds = assign_folds(y, groups=members)
    result = cross_fit(fitted(z, y), [(OUTPUTS, scorer.fit(z, y))], FeatureSet(z, y), folds)
    for fold in range(FOLDS):
        here, rest = folds == fold, folds != fold
        naive = type(scorer)(**scorer.settings()).fit(z[rest], y[rest]).unknown_score(z[here])
        torch.testing.assert_close(result.scores[here, 1], naive, rtol=1e-8, atol=1e-10)


def test_an_example_is_neither_its_own_neighbour_nor_that_of_its_copy():
    z, y = made_data(n=60, k=3)
    z, y = torch.cat([z, z]), torch.cat([y, y])
    head, scorer = fitted(z, y), NeighbourScorer(1).fit(z)
    apart = cross_fit(head, [(OUTPUTS, scorer)], FeatureSet(z, y), assign_folds(y, groups=torch.arange(60).repeat(2)))
    assert apart.scores[:, 1].min() > 1e-3
    torch.testing.assert_close(apart.scores[:60], apart.scores[60:])
    beside = cross_fit(head, [(OUTPUTS, scorer)], FeatureSet(z, y), assign_folds(y))  # copies in other folds are found
    assert beside.scores[:, 1].min() == 0


def test_a_class_whose_examples_are_all_in_one_fold_is_scored_without_it():
    z, y = made_data(n=60, k=2)
    z, y = torch.cat([z, z[:1] + 20]), torch.cat([y, torch.tensor([2])])
    scorers = [MahalanobisScorer(shrinkage="oas").fit(z, y), NeighbourScorer(1).fit(z, y)]
    result = cross_fit(fitted(z, y), [(OUTPUTS, each) for each in scorers], FeatureSet(z, y), assign_folds(y))
    assert result.scores.isfinite().all()
    assert result.nearest[-1] != 2
    assert (result.scores[-1] > result.scores[:-1].quantile(0.9, dim=0)).all()


def test_outliers_are_made_from_each_fold_and_follow_from_the_seed():
    z, y = made_data(n=60, k=3)
    head, folds = fitted(z, y), assign_folds(y)
    torch.manual_seed(3)
    first = cross_fit(head, [], FeatureSet(z, y), folds, ("mean", "columns"), seed=1)
    state = torch.random.get_rng_state()
    again = cross_fit(head, [], FeatureSet(z, y), folds, ("mean", "columns"), seed=1)
    assert torch.equal(first.outlier_distances, again.outlier_distances)
    assert first.outlier_distances.shape[1] == 3
    assert len(first.outlier_distances) > 20
    assert torch.equal(torch.random.get_rng_state(), state)


def test_neighbours_are_searched_among_a_bounded_number_of_rows(monkeypatch):
    assert torch.equal(reference_rows(7), torch.arange(7))
    monkeypatch.setattr("openradial.fitting.cross.REFERENCES", 5)
    kept = reference_rows(40, seed=1)
    assert len(kept) == len(kept.unique()) == 5
    assert torch.equal(kept, kept.sort().values)
    assert torch.equal(kept, reference_rows(40, seed=1))
    z, y = made_data(n=40, k=3)
    folds = assign_folds(y)
    scorer = NeighbourScorer(1).fit(z[kept])
    result = cross_fit(fitted(z, y), [(OUTPUTS, scorer)], FeatureSet(z, y), folds, seed=1)
    for i in range(40):
        rest = kept[folds[kept] != folds[i]]
        nearest = torch.cdist(z[i : i + 1], z[rest]).min()
        torch.testing.assert_close(result.scores[i, 1], nearest)


def test_of_many_examples_only_some_are_in_folds(monkeypatch):
    monkeypatch.setattr("openradial.fitting.cross.MOST", 50)
    y = torch.arange(200) % 4
    groups = torch.arange(200) // 2
    folds = assign_folds(y, 5, groups)
    assert 40 <= int((folds >= 0).sum()) <= 60
    assert torch.equal(folds[::2], folds[1::2])
    assert folds[folds >= 0].bincount().max() <= 12
    z = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) + 3 * torch.eye(4)[y][:, :3]
    head = ClosedFormRadialHead(4, 3, alpha=1.0).fit(z, y)
    result = cross_fit(head, [(OUTPUTS, NeighbourScorer(1))], FeatureSet(z, y), folds)
    assert torch.equal(result.rows, (folds >= 0).nonzero().squeeze(1))
    assert torch.equal(result.labels, y[result.rows])
    for at in (0, 7):
        row = int(result.rows[at])
        others = folds != folds[row]
        fresh = ClosedFormRadialHead(4, 3, alpha=1.0).fit(z[others], y[others])
        torch.testing.assert_close(result.scores[at, 0].float(), fresh.unknown_score(z[row : row + 1])[0])
        near = NeighbourScorer(1).fit(z[others]).unknown_score(z[row : row + 1])[0]
        torch.testing.assert_close(result.scores[at, 1].float(), near)


def test_the_last_score_is_that_of_the_middle_features_without_the_fold():
    z, y = made_data(n=70, k=3)
    middle, folds = torch.from_numpy(np.random.default_rng(1).normal(size=(70, 2))), assign_folds(y)
    scorer = MahalanobisScorer(shrinkage="oas")
    result = cross_fit(fitted(z, y), [("middle", scorer)], FeatureSet(z, y, layers={"middle": middle}), folds)
    for fold in range(FOLDS):
        here, rest = folds == fold, folds != fold
        naive = MahalanobisScorer(shrinkage="oas").fit(middle[rest]).unknown_score(middle[here])
        np.testing.assert_allclose(result.scores[here, 1], naive, rtol=1e-8)


def test_features_of_a_middle_layer_are_kept_apart():
    x, y = torch.arange(33.0).view(3, 11), torch.tensor([0, 1, 0])
    known = FeatureSet.of(build("features", 11, num_middle=8), [(x[:2], y[:2]), (x[2:], y[2:])])
    assert torch.equal(known.z, x[:, :3])
    assert torch.equal(known.layers["middle"], x[:, 3:4])
    assert torch.equal(known.layers["bands"], x[:, 4:])
    assert torch.equal(known.y, y)
    assert FeatureSet.of(build("features", 11), [(x, y)]).layers == {}


def test_folds_in_several_threads_have_the_numbers_of_one():
    y = torch.arange(120) % 3
    z = torch.randn(120, 12) + 2 * torch.nn.functional.one_hot(y, 12)
    head, scorers = fitted(z, y), [(OUTPUTS, MahalanobisScorer(shrinkage="oas")), (OUTPUTS, NeighbourScorer(1))]
    results = []
    for threads in (1, 3):
        with limited_threads(threads):
            results.append(cross_fit(head, scorers, FeatureSet(z, y), assign_folds(y), ("mean", "columns"), seed=1))
            assert torch.get_num_threads() == threads
    for name, one in vars(results[0]).items():
        assert torch.equal(one, getattr(results[1], name)), name
    assert len(results[0].outlier_distances)


def test_masks_of_folds_may_overlap():
    y = torch.arange(60) % 3
    z = torch.randn(60, 4) + 3 * torch.nn.functional.one_hot(y, 4)
    head, masks = fitted(z, y), [torch.arange(60) < 20, torch.arange(60) % 2 == 0]
    both = cross_fit(head, [(OUTPUTS, NeighbourScorer(1))], FeatureSet(z, y), masks)
    for fold, mask in enumerate(masks):
        alone = cross_fit(head, [(OUTPUTS, NeighbourScorer(1))], FeatureSet(z, y), mask.long() - 1)
        assert torch.equal(both.rows[both.folds == fold], alone.rows)
        assert torch.equal(both.scores[both.folds == fold], alone.scores)


@pytest.mark.parametrize("length", [1.0, 1.5], ids=["unit", "other"])
def test_distances_of_rows_of_unit_length_need_no_other_statistics_than_the_head(length, monkeypatch):
    z, y = made_data(n=60, k=3)
    z = length * torch.nn.functional.normalize(z).float()
    scorer, folds = MahalanobisScorer(normalise=True, shrinkage="oas").fit(z, y), assign_folds(y)
    known = FeatureSet(z, y)
    result = cross_fit(fitted(z, y), [(OUTPUTS, scorer)], known, folds)
    assert bool(known._statistics) == (length != 1)
    for fold in range(FOLDS):
        naive = MahalanobisScorer(normalise=True, shrinkage="oas").fit(z[folds != fold], y[folds != fold])
        torch.testing.assert_close(
            result.scores[folds == fold, 1], naive.unknown_score(z[folds == fold]).double(), rtol=1e-4, atol=1e-6
        )
