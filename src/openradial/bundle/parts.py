"""The parts of a classifier as JSON values and tensors by name, and back; each part by its own record."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from openradial import models
from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.errors import BundleError, OpenRadialError, OptionError
from openradial.heads import Head
from openradial.heads.files import HEADS, make_head
from openradial.scorers import Combination, Scorer

NOT_OPTIONS = ("name", "num_classes", "weights", "reset")  # of build: they would read other files
RATES = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # whose thresholds are written down for people

Record = dict[str, Any]
Tensors = Mapping[str, Tensor]


def scorer_record(scorer: Scorer) -> Record:
    """Kind and settings of a head, a scorer or a combination."""
    name = type(scorer).__name__
    if HEADS.get(name) is not type(scorer):
        raise OptionError(f"a bundle holds heads and scorers of openradial.heads, got {name}")
    if not scorer.is_fitted:
        raise OptionError(f"all parts of a bundle must be fitted, and {name} is not; see OpenClassifier.fit_scorers")
    return {"kind": name, "settings": scorer.settings()}


def classifier_records(classifier: OpenClassifier) -> Record:
    """Head, scorers, combination and decision."""
    scorers = zip(classifier.places, classifier.scorers, strict=True)
    merge, rejector = classifier.combination, classifier.rejector
    return {
        "head": scorer_record(classifier.head),
        "scorers": [{"place": place, **scorer_record(scorer)} for place, scorer in scorers],  # type: ignore[arg-type]
        "combination": None if merge is None else scorer_record(merge),
        "decision": None if rejector is None else decision_record(rejector),
    }


def decision_record(rejector: Rejector) -> Record:
    """Settings of a rejector, and its thresholds at usual rates; its scores are tensors."""
    if not rejector.is_fitted:
        raise OptionError("the rejector of a bundle must be calibrated; see OpenClassifier.calibrate")
    quantiles = {f"{rate:g}": found for rate in RATES if (found := _thresholds(rejector, rate)) is not None}
    return {"kind": "Rejector", "settings": rejector.settings(), "quantiles": quantiles}


def _thresholds(rejector: Rejector, rate: float) -> Any:
    """The largest accepted score, or that of each class; None where the calibration is too small for the rate."""
    try:
        if rejector.per_class:
            return {str(name): value for name, value in rejector.thresholds(rate).items()}
        return rejector.threshold(rate)
    except OptionError:
        return None


def classifier_tensors(classifier: OpenClassifier) -> dict[str, Tensor]:
    """All tensors of a classifier, by part and name."""
    parts: dict[str, Tensors] = {"network": classifier.net.state_dict(), "head": classifier.head.tensors()}
    for place, scorer in enumerate(classifier.scorers):
        parts[f"scorers.{place}"] = scorer.tensors()  # type: ignore[operator]
    if classifier.combination is not None:
        parts["combination"] = classifier.combination.tensors()
    if classifier.rejector is not None:
        parts["rejector"] = classifier.rejector.tensors()
    return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def make_classifier(record: Record, tensors: Tensors) -> OpenClassifier:
    """The classifier that gave these records and tensors."""
    left = dict(tensors)
    head = _scorer(record["head"], _taken(left, "head"))
    if not isinstance(head, Head):
        raise BundleError(f"the head must say which class, and a {record['head']['kind']} does not")
    scorers = {
        str(each["place"]): _scorer(each, _taken(left, f"scorers.{place}"))
        for place, each in enumerate(record["scorers"])
    }
    merge = None if record["combination"] is None else _scorer(record["combination"], _taken(left, "combination"))
    if not (merge is None or isinstance(merge, Combination)):
        raise BundleError(f"the combination must be a Combination, and is a {type(merge).__name__}")
    rejector = None if record["decision"] is None else Rejector.from_tensors(_taken(left, "rejector"))
    net = make_network(record["network"], head.num_outputs, _taken(left, "network"))
    if left:
        raise BundleError(f"the weights hold {next(iter(left))!r}, which belongs to no part of the bundle")
    return OpenClassifier(net, head, scorers=scorers, combination=merge, rejector=rejector)


def _scorer(record: Record, tensors: Tensors) -> Scorer:
    made = make_head(record["kind"], record["settings"], tensors)
    if not made.is_fitted:
        raise BundleError(f"the {record['kind']} of the bundle lacks what it has learned")
    return made


def make_network(record: Record, outputs: int, tensors: Tensors) -> nn.Module:
    """The network by its name, with these weights as they are, in their own precision."""
    strange = next((name for name in NOT_OPTIONS if name in record["options"]), None)
    if strange is not None:
        raise BundleError(f"options are those of the network, whose weights are in the bundle, and {strange!r} is none")
    with torch.random.fork_rng(devices=[]):  # first weights are drawn, and thrown away
        net = models.build(record["name"], outputs, **record["options"])
    check_weights(net, tensors)
    net.load_state_dict(dict(tensors), assign=True)
    return net


def check_weights(net: nn.Module, tensors: Tensors) -> None:
    """Raise unless the tensors are those of the network, by name and shape."""
    wanted = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    came = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in [*wanted, *came]:
        if wanted.get(name) != came.get(name):
            raise BundleError(
                f"the weights do not fit the {type(net).__name__}: {name!r} {_shape('is', came.get(name))} and "
                f"{_shape('should be', wanted.get(name))}"
            )


def _shape(verb: str, shape: tuple[int, ...] | None) -> str:
    return f"{verb} {shape}" if shape is not None else "is missing" if verb == "is" else "should not be there"


def _taken(left: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors of one part, taken out of those that are left."""
    names = [name for name in left if name.startswith(f"{part}.")]
    return {name.removeprefix(f"{part}."): left.pop(name) for name in names}


def explained(error: Exception) -> str:
    """An error in one line."""
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, OpenRadialError) else f"{type(error).__name__}: {text}"
