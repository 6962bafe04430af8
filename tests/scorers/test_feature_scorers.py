"""What all density models keep to. A new model is one more line of MAKERS, or of OF_DIRECTIONS."""

import json

import pytest
import torch

from openradial.errors import DTypeError, HeadError, ShapeError
from openradial.heads import load_head, save_head
from openradial.scorers import MahalanobisScorer, MixtureScorer, NormScorer, ParzenScorer
from tests.scorers.feature_data import data

MAKERS = {
    "parzen": lambda: ParzenScorer(),
    "parzen, given": lambda: ParzenScorer(0.7),
    "parzen, subset": lambda: ParzenScorer(centres=20, seed=3),
    "mixture": lambda: MixtureScorer(2),
    "mixture, diag": lambda: MixtureScorer(3, "diag", seed=1),
    "norm": lambda: NormScorer(),
    "mahalanobis": lambda: MahalanobisScorer(),
    "mahalanobis, relative": lambda: MahalanobisScorer(relative=True, shrinkage=0.1),
}
OF_DIRECTIONS = {
    "mahalanobis++": lambda: MahalanobisScorer(normalise=True),
    "mahalanobis++, relative": lambda: MahalanobisScorer(normalise=True, relative=True, shrinkage="oas"),
}
every_model = pytest.mark.parametrize("make", (MAKERS | OF_DIRECTIONS).values(), ids=MAKERS | OF_DIRECTIONS)
every_model_of_positions = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@every_model_of_positions
def test_known_data_is_less_unknown_than_what_is_far_away(make):
    z, y, _ = data()
    model = make().fit(z, y)
    far = model.unknown_score(torch.tensor([[40.0, -40.0, 40.0], [4000.0, -4000.0, 4000.0]]).double())
    assert model.unknown_score(z).max() < far[0] < far[1]
    assert far.isfinite().all()


@every_model
def test_a_score_depends_on_its_row_alone(make):
    z, y, x = data()
    model = make().fit(z, y)
    together = model.unknown_score(x)
    alone = torch.cat([model.unknown_score(row.unsqueeze(0)) for row in x])
    torch.testing.assert_close(alone, together, rtol=1e-12, atol=1e-12)
    x[2, 0], x[4, 1] = torch.nan, -torch.inf
    scores = model.unknown_score(x)
    assert scores[2].isnan()
    assert scores[4].isposinf()
    torch.testing.assert_close(scores[[0, 1, 3, 5, 6]], together[[0, 1, 3, 5, 6]], rtol=1e-12, atol=1e-12)


@every_model_of_positions
def test_a_row_too_far_away_for_float64_scores_infinity(make):
    z, y, x = data()
    model = make().fit(z, y)
    together = model.unknown_score(x)
    x[5] = 1e300
    scores = model.unknown_score(x)
    assert scores[5].isposinf()
    torch.testing.assert_close(scores[:5], together[:5], rtol=1e-12, atol=1e-12)


@every_model
def test_small_parts_give_the_same_scores(make, monkeypatch):
    z, y, x = data()
    model = make().fit(z, y)
    together = model.unknown_score(x)
    monkeypatch.setattr("openradial.scorers.base.AT_ONCE", 100)
    torch.testing.assert_close(model.unknown_score(x), together, rtol=1e-12, atol=1e-12)


@every_model
def test_a_score_has_the_precision_of_its_row_and_at_least_float32(make):
    z, y, x = data()
    model = make().fit(z, y)
    exact = model.unknown_score(x)
    assert exact.dtype == torch.float64
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        scores = model.unknown_score(x.to(dtype))
        assert scores.dtype == torch.float32
        torch.testing.assert_close(scores, model.unknown_score(x.to(dtype).double()).float())
    torch.testing.assert_close(model.float().unknown_score(x), exact, rtol=1e-4, atol=1e-4)


@every_model_of_positions
def test_features_far_from_zero_score_like_those_around_it(make):
    z, y, x = data()
    torch.testing.assert_close(
        make().fit(z + 1e4, y).unknown_score(x + 1e4), make().fit(z, y).unknown_score(x), rtol=1e-3, atol=1e-3
    )


@every_model
def test_a_saved_model_is_the_same_to_the_last_bit(make, tmp_path):
    z, y, x = data()
    model = make().fit(z, y)
    save_head(model, tmp_path / "head")
    loaded = load_head(tmp_path / "head")
    assert loaded.settings() == model.settings() == json.loads(json.dumps(model.settings()))
    assert all(torch.equal(value, loaded.tensors()[name]) for name, value in model.tensors().items())
    assert torch.equal(loaded.unknown_score(x), model.unknown_score(x))


@every_model
def test_the_same_seed_gives_the_same_model(make):
    z, y, x = data()
    assert torch.equal(make().fit(z, y).unknown_score(x), make().fit(z, y).unknown_score(x))


@every_model
def test_known_data_is_not_changed_and_not_kept(make):
    z, y, x = data()
    before = z.clone()
    model = make().fit(z, y)
    assert torch.equal(z, before)
    expected = model.unknown_score(x)
    z.zero_()
    assert torch.equal(model.unknown_score(x), expected)


@every_model
def test_an_empty_batch_has_no_scores(make):
    z, y, x = data()
    assert make().fit(z, y).unknown_score(x[:0]).shape == (0,)


@every_model
def test_rows_that_do_not_fit_are_refused(make):
    z, y, x = data()
    model = make()
    with pytest.raises(HeadError, match=f"^{type(model).__name__} must be fitted first"):
        model.unknown_score(x)
    model.fit(z, y)
    with pytest.raises(ShapeError, match=r"^features must have the shape \(b, 3\), got \(7, 2\)$"):
        model.unknown_score(x[:, :2])
    with pytest.raises(DTypeError, match=r"^features must be floating point, got torch\.int64"):
        model.unknown_score(x.long())


@every_model
def test_known_data_that_teaches_nothing_is_refused(make):
    z, y, _ = data()
    with pytest.raises(ShapeError, match=r"^features must hold at least one example to learn from, got none$"):
        make().fit(z[:0], y[:0])
    with pytest.raises(ShapeError, match=r"^features must have the shape \(b, d\), got \(3,\)$"):
        make().fit(z[0], y[:1])
    z[3, 1] = torch.nan
    with pytest.raises(
        ShapeError, match=r"^features must be finite, got nan or infinity in 1 rows, the first is row 3$"
    ):
        make().fit(z, y)


@every_model
def test_the_gradient_of_the_score_is_that_of_finite_differences(make):
    z, y, x = data(b=3)
    model = make().fit(z, y)
    assert torch.autograd.gradcheck(model.unknown_score, (x / 4).requires_grad_())
