"""The parts of a classifier as JSON values and named tensors, and back."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from openradial import encoders, models
from openradial.bundle.record import BundleRecord, NetworkRecord
from openradial.classifier import OpenClassifier
from openradial.classifier.classifier import INPUTS
from openradial.conformal import Rejector
from openradial.errors import BundleError, OptionError
from openradial.heads import Head
from openradial.heads.files import HEADS, make_head
from openradial.scorers import Combination, Scorer

NOT_OPTIONS = ("name", "num_classes", "weights", "reset")  # of build: they would read other files
RATES = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # whose thresholds are listed in the record
THE_HEAD = "head"  # kind of a scorer that is the head itself
SIZES = ("num_classes", "num_features", "num_outputs", "random_features")  # settings that allocate

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
    merge, rejector, far = model.combination, model.rejector, model.far_axis
    return {
        "head": scorer_record(model.head),
        "scorers": [
            {"layer": layer, **({"kind": THE_HEAD} if scorer is model.head else scorer_record(scorer))}
            for layer, scorer in model.layer_scorers()
        ],
        "combination": None if merge is None else scorer_record(merge),
        "far_axis": None if far is None else {"layer": model.far_layer, **scorer_record(far)},
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
    parts |= {"far_axis": model.far_axis, "rejector": model.rejector}
    tensors = {"network": model.net.state_dict()}
    tensors |= {name: part.tensors() for name, part in parts.items() if part is not None}
    return {f"{part}.{name}": tensor for part, named in tensors.items() for name, tensor in named.items()}


def make_classifier(record: BundleRecord, tensors: Tensors) -> OpenClassifier:
    """Return the classifier with these records and tensors."""
    left, make = dict(tensors), partial(_scorer, len(record.classes))
    head = make(record.head, _take(left, "head"))
    if not isinstance(head, Head):
        raise BundleError(f"the head must classify, and a {record.head['kind']} does not")
    scorers = [
        (str(each["layer"]), head if each["kind"] == THE_HEAD else make(each, _take(left, f"scorers.{index}")))
        for index, each in enumerate(record.scorers)
    ]
    merge = None if record.combination is None else make(record.combination, _take(left, "combination"))
    if not (merge is None or isinstance(merge, Combination)):
        raise BundleError(f"the combination must be a Combination, and is a {type(merge).__name__}")
    far = None if record.far_axis is None else make(record.far_axis, _take(left, "far_axis"))
    rejector = None if record.decision is None else Rejector.from_tensors(_take(left, "rejector"))
    net = make_network(record.network, head.num_outputs, _take(left, "network"))
    if left:
        raise BundleError(f"the weights hold {next(iter(left))!r}, which belongs to no part of the bundle")
    return OpenClassifier(
        net,
        head,
        scorers=scorers,
        combination=merge,
        far_axis=far,
        far_layer=INPUTS if record.far_axis is None else record.far_axis["layer"],
        rejector=rejector,
        classes=record.classes,
        network=(record.network["name"], record.network["options"]),
        metadata=record.metadata,
        versions=record.versions,
    )


def _scorer(classes: int, record: Mapping[str, Any], tensors: Tensors) -> Scorer:
    largest = max([1024, classes, *(size for tensor in tensors.values() for size in tensor.shape)])
    for name, value in record["settings"].items():
        if name in SIZES and isinstance(value, int) and value > largest:  # before it is allocated
            sizes = f"{name}={value}, and its tensors have at most {largest}"
            raise BundleError(f"the settings do not fit the weights: the {record['kind']} has {sizes}")
    scorer = make_head(record["kind"], record["settings"], tensors)
    if not scorer.is_fitted:
        raise BundleError(f"the {record['kind']} of the bundle lacks its fitted tensors")
    return scorer


def make_network(record: NetworkRecord, outputs: int, tensors: Tensors) -> nn.Module:
    """Return the network by its name, with these weights in their own precision."""
    if (wrong := next((name for name in NOT_OPTIONS if name in record["options"]), None)) is not None:
        raise BundleError(
            f"options are those of the network, whose weights are in the bundle, and {wrong!r} is not one"
        )
    name, options = record["name"], record["options"]
    # nothing is allocated before shapes are compared; code from outside builds its network as it likes
    is_external = name == "encoder" and ":" in str(options.get("encoder"))  # its weights are not in the bundle
    device = nullcontext() if is_external or ":" in name else torch.device("meta")
    limit = nullcontext() if is_external else _at_most(2 * len(tensors) + 100)
    with torch.random.fork_rng(devices=[]), _NoInitialValues(), limit, device:
        net = encoders.build(options) if name == "encoder" else models.build(name, outputs, **options)
    expected, actual = (
        {name: f"{tuple(t.shape)}{'' if t.is_floating_point() else f' of {t.dtype}'}" for name, t in state.items()}
        for state in (net.state_dict(), tensors)
    )
    for name in [*expected, *actual]:
        if expected.get(name) != actual.get(name):
            differ = f"{name!r} should be {expected.get(name, 'missing')} and is {actual.get(name, 'missing')}"
            raise BundleError(f"the weights do not fit the {type(net).__name__}: {differ}")
    net.load_state_dict(dict(tensors), assign=True)
    return net


class _NoInitialValues(TorchFunctionMode):
    """Draw no initial values of tensors without memory: this would take seconds to import what they do not need."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.init.normal_ and kwargs["tensor"].is_meta:
            return kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def _at_most(most: int) -> Iterator[None]:
    """Stop the construction of a network with more parameters than the bundle can hold."""
    counter, thread = count(1), threading.get_ident()

    def check(*registered: Any) -> None:
        if threading.get_ident() == thread and next(counter) > most:
            raise BundleError("the network has more layers than the bundle has weights for")

    hook = register_module_parameter_registration_hook(check)
    try:
        yield
    finally:
        hook.remove()


def _take(left: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """Remove the tensors of one part from those that are left, and return them."""
    names = [name for name in left if name.startswith(f"{part}.")]
    return {name.removeprefix(f"{part}."): left.pop(name) for name in names}
