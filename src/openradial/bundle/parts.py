"""The parts of a classifier as JSON values and named tensors, and back."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from openradial import encoders, models
from openradial.bundle.record import BundleRecord, NetworkRecord
from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.errors import BundleError, OptionError
from openradial.heads import Head
from openradial.heads.files import HEADS, make_head
from openradial.scorers import Combination, Scorer

NOT_OPTIONS = ("name", "num_classes", "weights", "reset")  # of build: they would read other files
RATES = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # whose thresholds are listed in the record
THE_HEAD = "head"  # kind of a scorer that is the head itself

JsonDict = dict[str, Any]
Tensors = Mapping[str, Tensor]


def scorer_record(scorer: Scorer) -> JsonDict:
    """Return kind and settings of a head, a scorer or a combination."""
    name = type(scorer).__name__
    if HEADS.get(name) is not type(scorer):
        raise OptionError(f"a bundle holds heads and scorers of openradial, got {name}")
    if not scorer.is_fitted:
        raise OptionError(f"all parts of a bundle must be fitted, and {name} is not; see OpenClassifier.fit_scorers")
    return {"kind": name, "settings": scorer.settings()}


def classifier_records(model: OpenClassifier) -> JsonDict:
    """Return head, scorers, combination and decision."""
    merge, rejector = model.combination, model.rejector
    return {
        "head": scorer_record(model.head),
        "scorers": [
            {"layer": layer, **({"kind": THE_HEAD} if scorer is model.head else scorer_record(scorer))}
            for layer, scorer in model.layer_scorers()
        ],
        "combination": None if merge is None else scorer_record(merge),
        "decision": None if rejector is None else decision_record(rejector),
    }


def decision_record(rejector: Rejector) -> JsonDict:
    """Return the settings of a rejector and its thresholds at usual rates; its scores are tensors."""
    if not rejector.is_fitted:
        raise OptionError("the rejector of a bundle must be calibrated; see OpenClassifier.calibrate")
    thresholds: JsonDict = {}
    for rate in RATES:
        with suppress(OptionError):  # the calibration is too small for the rate
            thresholds[f"{rate:g}"] = (
                {str(name): value for name, value in rejector.thresholds(rate).items()}
                if rejector.per_class
                else rejector.threshold(rate)
            )
    return {"kind": "Rejector", "settings": rejector.settings(), "thresholds": thresholds}


def classifier_tensors(model: OpenClassifier) -> dict[str, Tensor]:
    """Return all tensors of a classifier, by part and name."""
    scorers = [scorer for _, scorer in model.layer_scorers()]
    parts: dict[str, Scorer | Rejector | None] = {"head": model.head, "combination": model.combination}
    parts |= {f"scorers.{index}": scorer for index, scorer in enumerate(scorers) if scorer is not model.head}
    parts["rejector"] = model.rejector
    tensors = {"network": model.net.state_dict()}
    tensors |= {name: part.tensors() for name, part in parts.items() if part is not None}
    return {f"{part}.{name}": tensor for part, named in tensors.items() for name, tensor in named.items()}


def make_classifier(record: BundleRecord, tensors: Tensors) -> OpenClassifier:
    """Return the classifier with these records and tensors."""
    left = dict(tensors)
    head = _scorer(record.head, _take(left, "head"))
    if not isinstance(head, Head):
        raise BundleError(f"the head must classify, and a {record.head['kind']} does not")
    scorers = [
        (str(each["layer"]), head if each["kind"] == THE_HEAD else _scorer(each, _take(left, f"scorers.{index}")))
        for index, each in enumerate(record.scorers)
    ]
    merge = None if record.combination is None else _scorer(record.combination, _take(left, "combination"))
    if not (merge is None or isinstance(merge, Combination)):
        raise BundleError(f"the combination must be a Combination, and is a {type(merge).__name__}")
    rejector = None if record.decision is None else Rejector.from_tensors(_take(left, "rejector"))
    net = make_network(record.network, head.num_outputs, _take(left, "network"))
    if left:
        raise BundleError(f"the weights hold {next(iter(left))!r}, which belongs to no part of the bundle")
    return OpenClassifier(
        net,
        head,
        scorers=scorers,
        combination=merge,
        rejector=rejector,
        classes=record.classes,
        network=(record.network["name"], record.network["options"]),
        metadata=record.metadata,
        versions=record.versions,
    )


def _scorer(record: Mapping[str, Any], tensors: Tensors) -> Scorer:
    scorer = make_head(record["kind"], record["settings"], tensors)
    if not scorer.is_fitted:
        raise BundleError(f"the {record['kind']} of the bundle lacks its fitted tensors")
    return scorer


def make_network(record: NetworkRecord, outputs: int, tensors: Tensors) -> nn.Module:
    """Return the network by its name, with these weights in their own precision."""
    wrong = next((name for name in NOT_OPTIONS if name in record["options"]), None)
    if wrong is not None:
        raise BundleError(
            f"options are those of the network, whose weights are in the bundle, and {wrong!r} is not one"
        )
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn and discarded
        if record["name"] == "encoder":
            net = encoders.build(record["options"])
        else:
            net = models.build(record["name"], outputs, **record["options"])
    expected = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    actual = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in [*expected, *actual]:
        if expected.get(name) != actual.get(name):
            raise BundleError(
                f"the weights do not fit the {type(net).__name__}: {name!r} should be "
                f"{expected.get(name, 'missing')} and is {actual.get(name, 'missing')}"
            )
    net.load_state_dict(dict(tensors), assign=True)
    return net


def _take(left: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """Remove the tensors of one part from those that are left, and return them."""
    names = [name for name in left if name.startswith(f"{part}.")]
    return {name.removeprefix(f"{part}."): left.pop(name) for name in names}
