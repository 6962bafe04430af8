"""The choice between closed form and gradient training."""

import numpy as np
import pytest

import openradial
from openradial.errors import OptionError
from openradial.fitting import selection


def blobs(rows=240, seed=0):
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, rows)
    return 3 * np.eye(3)[y] + random.normal(size=(rows, 3)), y


def fit(**options):
    return openradial.fit(blobs(), method="best", false_reject_rate=0.1, show_progress=False, **options)


def test_a_tie_or_a_better_closed_form_is_fitted_again_on_all_examples():
    model = fit(epochs=1)
    assert model.network == ("features", {})
    assert model.report.examples["train"] == 240
    assert "method closed-form is chosen by the accuracy on" in model.report.notes[-1]
    assert model.metadata["notes"][-1] == model.report.notes[-1]


def test_split_calibration_keeps_the_model_that_was_compared():
    model = fit(epochs=1, calibration="split")
    assert model.report.examples["train"] < 240
    assert model.report.guarantee.startswith("split conformal")


def test_the_more_accurate_method_wins(monkeypatch):
    shares = iter([0.8, 0.9])
    monkeypatch.setattr(selection, "_accuracy", lambda model, prepared: next(shares))
    model = fit(
        epochs=1, random_features=30, class_weight="auto"
    )  # what only one of them takes is left out for the other
    assert model.network[0] == "mlp"
    assert "method gradient is chosen" in model.report.notes[-1]
    assert "closed-form 80.0 %, gradient 90.0 %" in model.report.notes[-1]


def test_the_model_is_saved(tmp_path):
    fit(epochs=1, out=tmp_path / "model")
    assert "is chosen by" in openradial.load(tmp_path / "model").metadata["notes"][-1]


def test_only_tables_with_enough_rows_are_compared():
    x, y = blobs(15)
    with pytest.raises(OptionError, match="needs a table with about 10 rows per class"):
        openradial.fit((x, y), method="best", false_reject_rate=0.3)
    with pytest.raises(OptionError, match="holds 1,007 images"):
        openradial.fit("digits", method="best")
