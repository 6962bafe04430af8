"""A trained open-world classifier with everything that a prediction needs."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.bundle.inputs import Inputs
from openradial.bundle.predictions import Predictions
from openradial.classifier import Answer, OpenClassifier
from openradial.errors import OptionError
from openradial.heads import Head, RadialHead
from openradial.scorers.base import at_least_float32


def library_versions() -> dict[str, str]:
    """The versions of what computes a prediction."""
    return {
        "openradial": version("openradial"),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


@dataclass(frozen=True, eq=False)
class Bundle:
    """What :func:`openradial.bundle.save` writes.

    Args:
        classifier: network, head, scorers, combination and rejector, all of them fitted.
        network: the name that :func:`openradial.models.build` takes, with ``options``; it makes the network again.
        classes: names of the known classes, in the order of the outputs.
        preprocessing: how raw inputs become tensors.
        facts: what else should be known of it, as JSON can hold it: training, data, asked and measured rates.
        versions: of the libraries that it was made with.
    """

    classifier: OpenClassifier
    network: str
    options: Mapping[str, Any]
    classes: tuple[str, ...]
    preprocessing: Inputs
    facts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=library_versions)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))
        _check_classes(self.classes, self.classifier.head)
        _check_rejector(self.classifier, self.classes)

    def prepare(self, raw: Any) -> Tensor:
        """Raw things as inputs such as :class:`openradial.data.Examples` holds; a broken one raises a DataError."""
        return self.preprocessing.ready(raw)

    def predict(self, raw: Any, false_reject_rate: float | None = None) -> Predictions:
        """What is said of raw things, or of prepared inputs where a tensor is given; in bounded memory.

        Another rate than the one that was calibrated for may be asked for.
        """
        check_rejector(false_reject_rate, self.classifier.rejector is not None)
        if isinstance(raw, Tensor):
            self.preprocessing.check(raw)
        self.classifier.eval()
        parts = [self._part(chunk, false_reject_rate) for chunk in self.preprocessing.chunks(raw)]
        return Predictions.joined(parts) if parts else self._none()

    def _part(self, raw: Any, false_reject_rate: float | None) -> Predictions:
        x = self.preprocessing.ready(raw)
        if not len(x):
            return self._none()
        answer = self.classifier.answer(self._network_inputs(x), false_reject_rate)
        distance = nearest_distance(self.classifier.head, answer)
        return Predictions.of(
            self.classes,
            labels=answer.labels.cpu().numpy(),
            nearest=answer.nearest.cpu().numpy(),
            log_probs=_array(answer.log_probs),
            distance=None if distance is None else _array(distance),
            unknown_score=_array(answer.unknown_score),
            p_values=None if answer.p_values is None else _array(answer.p_values),
        )

    def _network_inputs(self, x: Tensor) -> Tensor:
        """Prepared inputs transformed, where the network is and as precise as it is."""
        z = self.preprocessing.transform(x.to(self.device))
        return z.to(self.dtype) if z.is_floating_point() else z

    def _none(self) -> Predictions:
        """The predictions of no input."""
        places, numbers = np.empty(0, np.int64), np.empty(0, np.float32)
        return Predictions.of(
            self.classes,
            labels=places,
            nearest=places,
            log_probs=np.empty((0, len(self.classes)), np.float32),
            distance=numbers if isinstance(self.classifier.head, RadialHead) else None,
            unknown_score=numbers,
            p_values=None if self.classifier.rejector is None else np.empty(0),
        )

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next((tensor.device for tensor in self.classifier.net.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        """How precise the network is."""
        kinds = (tensor.dtype for tensor in self.classifier.net.parameters() if tensor.is_floating_point())
        return next(kinds, torch.float32)

    @property
    def parameters(self) -> int:
        """How many numbers the network has learned."""
        return sum(parameter.numel() for parameter in self.classifier.net.parameters())


def nearest_distance(head: Head, answer: Answer) -> Tensor | None:
    """Distance to the nearest class, ``(b,)``, where log-probabilities are minus beta times distances."""
    if not isinstance(head, RadialHead):
        return None
    own = answer.log_probs.gather(1, answer.nearest[:, None]).squeeze(1)
    return -own / head.layer.beta


def check_rejector(false_reject_rate: float | None, has_rejector: bool) -> None:
    """Raise where a rate is asked for that nothing can keep."""
    if false_reject_rate is not None and not has_rejector:
        raise OptionError(
            f"false_reject_rate={false_reject_rate!r} needs a rejector, and this model has none: it calls nothing "
            "unknown; calibrate one and save it again"
        )


def _array(values: Tensor) -> NDArray[Any]:
    """An array of float32 at least: NumPy has no bfloat16."""
    return at_least_float32(values).cpu().numpy()


def _check_classes(classes: tuple[str, ...], head: Head) -> None:
    if len(classes) != head.num_classes:
        raise OptionError(
            f"classes must name every class of the head: {head.num_classes} classes but {len(classes)} names"
        )
    wrong = next((name for name in classes if not isinstance(name, str)), None)
    if wrong is not None:
        raise OptionError(f"class names must be strings, got {wrong!r}; write them with str")
    if len(set(classes)) < len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise OptionError(f"class names must differ, got {twice!r} twice")


def _check_rejector(classifier: OpenClassifier, classes: tuple[str, ...]) -> None:
    """Raise where the rejector could not decide on some class: better now than in the middle of a prediction."""
    rejector = classifier.rejector
    if rejector is None or not rejector.per_class or not rejector.is_fitted:
        return
    left = [name for place, name in enumerate(classes) if place not in (rejector.classes or ())]
    if left:
        raise OptionError(
            f"a rejector with per_class=True must be calibrated for every class, and {left[0]!r} "
            f"({len(left)} in all) was never predicted; calibrate with more data, or use per_class=False"
        )
