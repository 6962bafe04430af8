"""Choose between closed form and gradient training by the accuracy on held-out known examples."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from openradial.classifier import OpenClassifier
from openradial.data.sources import DataSource
from openradial.errors import OptionError
from openradial.fitting.options import FitOptions
from openradial.fitting.preparation import PreparedData, prepare
from openradial.fitting.report import decide


def fit_best(fit: Callable[..., OpenClassifier], source: DataSource, options: FitOptions) -> OpenClassifier:
    """Fit with both methods on the same examples, and return the model that classifies other known examples better.

    These other examples also set the scales of the combination, but neither the threshold nor the report uses them. If
    closed form is better, it is fitted again on all examples, unless ``calibration="split"`` asks for held-out ones.
    """
    weight = None if options.class_weight == "auto" else options.class_weight
    trained = replace(options, method="gradient", calibration="auto", random_features=None, class_weight=weight)
    prepared = prepare(trained, source)
    if prepared.combination is None or source.kind != "table":
        raise OptionError(
            f"method='best' needs a table with about 10 rows per class to compare with, and {source.name} holds "
            f"{len(prepared.train):,} {source.kind}; use method='closed-form' or 'gradient'"
        )
    solved = _values(options) | {"method": "closed-form", "training": {}, "model": "auto", "model_options": {}}
    solved["outliers"] = None
    models = {
        "closed-form": fit(source, **solved | {"calibration": "split"}),
        "gradient": fit(source, **_values(trained)),
    }
    accuracy = {method: _accuracy(model, prepared) for method, model in models.items()}
    best = max(accuracy, key=accuracy.__getitem__)  # closed form wins a tie: it is faster
    model = models[best]
    if best == "closed-form" and options.calibration != "split":
        model = fit(source, **solved)
    shares = ", ".join(f"{method} {100 * accuracy[method]:.1f} %" for method in accuracy)
    note = f"method {best} is chosen by the accuracy on {len(prepared.combination):,} held-out known examples: {shares}"
    model.report = replace(model.report, notes=(*model.report.notes, note))
    model.metadata["notes"] = list(model.report.notes)
    return model


def _values(options: FitOptions) -> dict[str, Any]:
    """Return the options as arguments of fit for data that are open already."""
    return {name: value for name, value in options.as_dict().items() if name not in ("data", "label")}


def _accuracy(model: OpenClassifier, prepared: PreparedData) -> float:
    assert prepared.combination is not None
    decided = decide(model, prepared.batches(prepared.combination, 256))
    return float((decided.nearest == decided.labels).double().mean())
