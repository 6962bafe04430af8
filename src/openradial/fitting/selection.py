"""Fit in closed form and by gradient training; keep the model with the higher accuracy on held-out known examples."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from openradial.classifier import OpenClassifier
from openradial.data.inputs import ImageInputs
from openradial.data.progress import current
from openradial.data.sources import DataSource
from openradial.errors import OptionError
from openradial.fitting.options import FitOptions
from openradial.fitting.preparation import PreparedData
from openradial.fitting.report import decide
from openradial.models import names
from openradial.models.features import Features

OnStart = Callable[..., None] | None


def fit_best(
    fit: Callable[..., OpenClassifier], source: DataSource, options: FitOptions, on_start: OnStart = None
) -> OpenClassifier:
    """Fit with both methods on the same examples, and return the model that classifies other known examples better.

    These other examples also set the scales of the combination, but neither the threshold nor the report uses them. If
    closed form is better, it is fitted again on all examples, unless ``calibration="split"`` asks for held-out ones.
    With ``finetune``, gradient training starts from the encoder of photographs and the solution in closed form.
    """
    what, kind = ("finetune", "photographs in files") if options.finetune else ("method='best'", "tables")
    if source.kind != ("images" if options.finetune else "table") or (options.finetune and not source.image_statistics):
        raise OptionError(f"{what} is for {kind}, and {source.name} holds {source.kind}; leave it out")
    weight = None if options.class_weight == "auto" else options.class_weight
    given: dict[str, Any] = {"method": "gradient", "encoder": "auto", "calibration": "auto", "random_features": None}
    trained = replace(options, **given, class_weight=weight, finetune=False)
    solved = _values(options) | {"method": "closed-form", "training": {}, "model": "auto", "model_options": {}}
    only_trained = {"outliers": None, "flip": None, "shift": None, "cutout": 0, "mixup": None, "label_smoothing": None}
    solved |= {"finetune": False, "augment": None, **only_trained}
    parts: list[PreparedData] = []

    def keep_parts(prepared: PreparedData, settings: Any) -> None:
        if on_start is not None:
            on_start(prepared, settings)
        parts.append(prepared)
        if prepared.combination is None and len(parts) <= 2:
            count = sum(prepared.counts().values())
            raise OptionError(
                f"{what} compares two models on held-out examples, and {count:,} are too few; add examples"
            )

    began = time.monotonic()

    def time_left() -> dict[str, float]:
        left = 0.0 if options.time_limit is None else options.time_limit - (time.monotonic() - began) / 60
        return {} if options.time_limit is None else {"time_limit": max(left, 1e-3)}

    run, may_repeat = current(), options.calibration != "split"
    run.scope = "before training"  # which takes longer, and is not known yet
    fitted = {"closed-form": fit(source, **solved | {"calibration": "split"} | time_left(), on_start=keep_parts)}
    run.scope = "in all"
    run.begin(0, later=may_repeat * (time.monotonic() - began))
    if options.finetune:  # train the encoder of the model in closed form, on inputs of the same size
        name, inputs = str(fitted["closed-form"].network[1].get("encoder")), fitted["closed-form"].preprocessing
        if name not in names() or not isinstance(inputs, ImageInputs):
            message = f"finetune trains networks of openradial, and the encoder {name} is none"
            raise OptionError(f"{message}; choose another one")
        given = {"model": name, "size": inputs.size, "encoder": "auto", "views": "one"}
        trained = replace(trained, **given, weights="imagenet", reset="closed-form")
    fitted["gradient"] = fit(source, **_values(trained) | time_left(), on_start=keep_parts)
    accuracy = {method: _accuracy(model, part) for (method, model), part in zip(fitted.items(), parts, strict=True)}
    assert torch.equal(*(part.combination.labels for part in parts))  # type: ignore[union-attr]
    best = max(accuracy, key=accuracy.__getitem__)  # closed form wins a tie: it is faster
    model = fitted[best]
    if best == "closed-form" and may_repeat:
        model = fit(source, **solved | time_left())
    shown = {"closed-form": "frozen", "gradient": "fine-tuned"} if options.finetune else {name: name for name in fitted}
    shares = ", ".join(f"{shown[method]} {100 * accuracy[method]:.1f} %" for method in accuracy)
    chosen = f"the {shown[best]} encoder is kept" if options.finetune else f"method {best} is chosen"
    count = len(parts[0].combination.labels)  # type: ignore[union-attr]
    note = f"{chosen} by the accuracy on {count:,} held-out known examples: {shares}"
    model.report = replace(model.report, notes=(*model.report.notes, note))
    model.metadata["notes"] = list(model.report.notes)
    return model


def _values(options: FitOptions) -> dict[str, Any]:
    """Return the options as arguments of fit for data that are open already."""
    return {name: value for name, value in options.as_dict().items() if name not in ("data", "label")}


def _accuracy(model: OpenClassifier, prepared: PreparedData) -> float:
    assert prepared.combination is not None
    if prepared.method == "closed-form":  # its inputs are features already
        features = Features(prepared.num_features, num_middle=getattr(model.net, "num_middle", 0))
        model = model.replace(net=features)
    decided = decide(model, prepared.batches(prepared.combination, 256))
    return float((decided.nearest == decided.labels).double().mean())
