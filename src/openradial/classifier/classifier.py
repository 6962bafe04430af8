"""OpenClassifier: inputs to a class or "unknown". A network with its head, scorers and calibrated decision."""

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from openradial.classifier.predictions import Predictions
from openradial.conformal import Rejector
from openradial.data.inputs import Inputs, TensorInputs
from openradial.data.inputs.base import in_parts
from openradial.encoders import Encoder, encode
from openradial.encoders.encoding import BATCH
from openradial.encoders.networks import NETWORKS, MixedEncoder
from openradial.errors import HeadError, OptionError
from openradial.heads import Head, HeadOutput, RadialHead
from openradial.heads.sums import check_names
from openradial.models.features import Features
from openradial.nn import hidden_layers
from openradial.scorers import Combination, Scorer
from openradial.scorers.base import at_least_float32

INPUTS, OUTPUTS = "inputs", "outputs"
ENCODED = 8  # batches of an encoder that are encoded together


class Decisions(NamedTuple):
    """The result for a batch of tensors; label -1 is unknown."""

    labels: Tensor  # (b,)
    nearest: Tensor  # (b,) the most probable class, also where the input is rejected
    log_probs: Tensor  # (b, k)
    distances: Tensor | None  # (b, k) to the prototypes, for heads that have them
    unknown_score: Tensor  # (b,) larger is more unknown
    p_values: Tensor | None  # (b,) with a rejector


class OpenClassifier(nn.Module):
    """A classifier that answers a class or "unknown".

    ``scorers`` are the unknown scores that count, by the layer of the network that each one reads (see
    :func:`openradial.nn.hidden_layers`); without scorers the score of the head counts. Several need a ``combination``.
    The ``rejector`` turns the score into a decision; without it nothing is rejected.

    Known data have three uses, and no example may serve twice: :meth:`fit_scorers` takes the training data,
    :meth:`fit_combination` and :meth:`calibrate` take held-out data.

    >>> from openradial.heads import RadialHead
    >>> model = OpenClassifier(nn.Identity(), RadialHead(2), rejector=Rejector(0.2), classes=("cat", "dog"))
    >>> known = torch.tensor([[1.0, 0.1], [0.2, 1.0], [1.0, 0.3], [0.0, 0.6]])
    >>> model.calibrate([known]).predict(torch.tensor([[1.0, 0.0], [5.0, 5.0]])).names
    ['cat', 'unknown']

    Args:
        net: the network; ``net(x)`` are outputs ``(b, k)``.
        head: how outputs become log-probabilities and an unknown score.
        scorers: unknown scores by layer; as pairs ``(layer, scorer)`` where several read the same layer.
        combination: how several scores become one.
        far_axis: a score such as :class:`~openradial.scorers.NormScorer` that drives one more axis of the outputs, on
            which no prototype lies, so that no class is probable far from the training data; for a radial head.
        far_layer: what that score reads.
        rejector: the calibrated decision.
        classes: names of the classes in the order of the outputs; by default "0", "1", ...
        preprocessing: how raw inputs become tensors; without it, only tensors can be predicted.
        network: name and options that :func:`openradial.models.build` takes; needed to save the model.
        metadata: other JSON values that are saved with the model: training settings, data, measured rates.
        versions: of the libraries that the model was made with.
    """

    def __init__(
        self,
        net: nn.Module,
        head: Head,
        *,
        scorers: Mapping[str, Scorer] | Sequence[tuple[str, Scorer]] | None = None,
        combination: Combination | None = None,
        far_axis: Scorer | None = None,
        far_layer: str = INPUTS,
        rejector: Rejector | None = None,
        classes: Sequence[str] | None = None,
        preprocessing: Inputs | None = None,
        network: tuple[str, Mapping[str, Any]] = ("", {}),
        metadata: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        pairs = list(scorers.items() if isinstance(scorers, Mapping) else scorers or ())
        self.layers = tuple(layer for layer, _ in pairs)
        if len(self.layers) > 1 and combination is None:
            raise OptionError(f"{len(self.layers)} scores need a combination that makes one of them, got none")
        if len(self.layers) < 2 and combination is not None:
            raise OptionError(f"a combination needs at least two scores, got {len(self.layers)}")
        if far_axis is not None and not isinstance(head, RadialHead):
            raise OptionError(f"a far axis needs a radial head, got {type(head).__name__}; leave it out")
        self.net, self.head, self.combination, self.rejector = net, head, combination, rejector
        self.far_axis, self.far_layer = far_axis, far_layer
        self.scorers = nn.ModuleList(scorer for _, scorer in pairs)
        self._is_head = [scorer is head for _, scorer in pairs]  # which torch.export cannot tell
        self.classes = tuple(map(str, range(head.num_classes)) if classes is None else classes)
        self._check_classes()
        self.preprocessing: Inputs = TensorInputs() if preprocessing is None else preprocessing
        self.network, self.metadata = network, dict(metadata or {})
        self.versions = dict(library_versions() if versions is None else versions)
        self.report: Any = None  # after openradial.fit: a FitReport
        self.eval()  # the network has been trained

    def predict(self, inputs: Any, false_reject_rate: float | None = None) -> Predictions:
        """Return one :class:`~openradial.classifier.Prediction` per input, in bounded memory.

        Args:
            inputs: what the model was fitted on, one or many: paths or arrays of images, rows as dicts, texts, arrays;
                the path of a table or of a folder of images; or a tensor of prepared inputs.
            false_reject_rate: share of known inputs that may be called unknown, in place of the calibrated rate.
        """
        check_rate_has_rejector(false_reject_rate, self.rejector is not None)
        if any(module.training for module in self.modules()):  # faster than eval() for each request
            self.eval()
        if isinstance(inputs, Tensor):
            self.preprocessing.check(inputs)
        model, batches = self._read(inputs)
        parts = [self._predictions(model.decide(x, false_reject_rate)) for x in batches if len(x)]
        return Predictions.concatenate(parts or [self._predictions(self._no_decisions())])

    @torch.no_grad()
    def decide(self, x: Tensor, false_reject_rate: float | None = None) -> Decisions:
        """Return labels and scores of a batch of network inputs, ``(b, ...)``: outputs and distances computed once."""
        (layers,) = self._hidden_layers([x])
        result = self._compute(layers)
        scores = self._combined_score(layers, result)
        labels, p_values = result.labels, None
        if self.rejector is not None:
            labels = self.rejector.decide(scores, result.labels, false_reject_rate)
            p_values = self.rejector.p_values(scores, result.labels if self.rejector.per_class else None)
        return Decisions(labels, result.labels, result.log_probs, result.distances, scores, p_values)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the network, ``(b, ...) -> (b, k)``."""
        o: Tensor = self.net(x)
        return o

    def fit_scorers(self, inputs: Iterable[Tensor], labels: Tensor, *, fits_head: bool = True) -> Self:
        """Fit the head and the scorers to the training data: batches of inputs, and the labels of all of them."""
        parts = list(self._hidden_layers(inputs))
        layers = {name: _joined([part[name] for part in parts]) for name in (OUTPUTS, *self.layers)}
        if fits_head:
            self.head.fit(layers[OUTPUTS], labels)
        for layer, scorer in self.layer_scorers():
            if scorer is not self.head:
                scorer.fit(layers[layer], labels)
        return self

    def fit_combination(self, inputs: Iterable[Tensor]) -> Self:
        """Fit the combination to held-out known inputs."""
        if self.combination is not None:
            self.combination.fit(self.layer_scores(inputs))
        return self

    @torch.no_grad()
    def calibrate(self, inputs: Iterable[Tensor]) -> Self:
        """Calibrate the rejector on other held-out known inputs."""
        if self.rejector is None:
            raise HeadError("there is no rejector to calibrate: pass one, as in rejector=Rejector(0.05)")
        scores, labels = [], []
        for layers in self._hidden_layers(inputs):
            result = self._compute(layers)
            scores.append(self._combined_score(layers, result))
            labels.append(result.labels)
        self.rejector.fit(_joined(scores), _joined(labels) if self.rejector.per_class else None)
        return self

    @torch.no_grad()
    def layer_scores(self, inputs: Iterable[Tensor]) -> Tensor:
        """Return the score of each scorer before they are combined, ``(n, m)``."""
        return _joined([self._scores(layers, self._compute(layers)) for layers in self._hidden_layers(inputs)])

    def layer_scorers(self) -> list[tuple[str, Scorer]]:
        """Return the scorers, each with the layer that it reads."""
        return [(layer, s) for layer, s in zip(self.layers, self.scorers, strict=True) if isinstance(s, Scorer)]

    def replace(self, **changes: Any) -> Self:
        """Return a classifier with the same parts and some arguments of the constructor replaced."""
        values = {name: getattr(self, name) for name in signature(OpenClassifier).parameters}
        values["scorers"] = self.layer_scorers()
        return type(self)(**values | changes)

    def save(self, path: Path | str, *, overwrite: bool = False) -> Path:
        """Write the model to a folder as a bundle; see :func:`openradial.bundle.save`."""
        from openradial import bundle

        return bundle.save(self, path, overwrite=overwrite)

    def evaluate(
        self, known: Any, novel: Any = (), *, label: str | None = None, false_reject_rate: float | None = None
    ) -> Any:
        """Measure the model on known and novel data: folders, tables or data sets, as ``openradial.fit`` takes them.

        ``novel`` is one or a list of them. See :func:`openradial.evaluation.evaluate`.
        """
        from openradial import evaluation

        paths = [novel] if isinstance(novel, str | Path) else novel
        samples = [evaluation.novel_sample(self, str(each), label) for each in paths]
        return evaluation.evaluate(self, evaluation.known_sample(self, str(known), label), samples, false_reject_rate)

    def export(self, path: Path | str, *, to: Literal["onnx", "torch"] | None = None, check: Any = None) -> Any:
        """Write the model as one file for another runtime; see :func:`openradial.export.export`."""
        from openradial import export

        return export.export(self, path, to, check)

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next((tensor.device for tensor in self.net.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the network."""
        kinds = (tensor.dtype for tensor in self.net.parameters() if tensor.is_floating_point())
        return next(kinds, torch.float32)

    @property
    def num_parameters(self) -> int:
        """How many parameters the network has."""
        return sum(parameter.numel() for parameter in self.net.parameters())

    def _check_classes(self) -> None:
        """Raise unless every class has a name of its own and can be decided on: better now than in a prediction."""
        classes, rejector = self.classes, self.rejector
        if len(classes) != self.head.num_classes:
            expected = f"{self.head.num_classes} classes but {len(classes)} names"
            raise OptionError(f"classes must name every class of the head: {expected}")
        check_names(classes)
        if rejector is None or not rejector.per_class or not rejector.is_fitted:
            return
        left = [name for k, name in enumerate(classes) if k not in (rejector.classes or ())]
        if left:
            raise OptionError(
                f"a rejector with per_class=True must be calibrated for every class, and {left[0]!r} "
                f"({len(left)} in all) was never predicted; calibrate with more data, or use per_class=False"
            )

    def _predictions(self, result: Decisions) -> Predictions:
        if result.distances is not None:  # those of the nearest class alone
            result = result._replace(distances=result.distances.gather(1, result.nearest[:, None])[:, 0])
        # NumPy has no bfloat16
        columns = (None if column is None else at_least_float32(column).cpu().numpy() for column in result)
        return Predictions.from_arrays(self.classes, *columns)  # type: ignore[arg-type]

    def _no_decisions(self) -> Decisions:
        """Return the decisions on an empty batch: networks cannot compute one, heads need a row."""
        one = self.head.compute(torch.zeros(1, self.head.num_outputs, device=self.device))
        p_values = None if self.rejector is None else torch.empty(1)
        columns = (one.labels, one.labels, one.log_probs, one.distances, one.unknown_score, p_values)
        return Decisions(*(column if column is None else column[:0] for column in columns))  # type: ignore[arg-type]

    def _read(self, inputs: Any) -> tuple[Self, Iterator[Tensor]]:
        """Return this classifier and the inputs of its network; with a frozen encoder, the one of features and these.

        They are encoded as in :func:`openradial.fit`. No cache is used: the weights may have been changed.
        """
        net, raw, kind = self.net, self.preprocessing.expand(inputs), self.preprocessing.kind
        is_one = isinstance(raw, Tensor) and len(raw) == 1  # as the service often has it, which must be fast
        layers = {*self.layers, OUTPUTS if self.far_axis is None else self.far_layer}
        is_encoder = isinstance(net, NETWORKS) and kind in BATCH and layers <= {OUTPUTS, "middle", "bands"}
        if is_one or not is_encoder or (self.device.type, self.dtype) != ("cpu", torch.float32):
            return self, map(self._network_inputs, self.preprocessing.batches(inputs))
        encoder, rows = Encoder("", net, self.preprocessing, "", ""), ENCODED * BATCH[kind]
        features = Features(encoder.num_features + encoder.num_middle, num_middle=encoder.num_middle)
        parts = torch.split(raw, rows) if isinstance(raw, Tensor) else in_parts(self.preprocessing.items(raw), rows)
        return self.replace(net=features), (encode(encoder, part, quiet=True)[0] for part in parts)

    def _network_inputs(self, x: Tensor) -> Tensor:
        """Return prepared inputs transformed, on the device and in the precision of the network."""
        z = self.preprocessing.transform(x.to(self.device))
        return z.to(self.dtype) if z.is_floating_point() and not isinstance(self.net, MixedEncoder) else z

    def _compute(self, layers: Mapping[str, Tensor]) -> HeadOutput:
        if self.far_axis is None:
            return self.head.compute(layers[OUTPUTS])
        assert isinstance(self.head, RadialHead)
        return self.head.compute(layers[OUTPUTS], self.far_axis.unknown_score(layers[self.far_layer]))

    def _combined_score(self, layers: Mapping[str, Tensor], result: HeadOutput) -> Tensor:
        if not self.layers:
            return result.unknown_score
        scores = self._scores(layers, result)
        return scores[:, 0] if self.combination is None else self.combination.unknown_score(scores)

    def _scores(self, layers: Mapping[str, Tensor], result: HeadOutput) -> Tensor:
        scores = [
            result.unknown_score if is_head else scorer.unknown_score(layers[layer])
            for is_head, (layer, scorer) in zip(self._is_head, self.layer_scorers(), strict=True)
        ]
        return torch.stack(scores, 1)  # (b, m)

    @torch.no_grad()
    def _hidden_layers(self, inputs: Iterable[Tensor]) -> Iterator[dict[str, Tensor]]:
        far = () if self.far_axis is None else (self.far_layer,)
        for x in inputs:
            yield hidden_layers(self.net, x, (OUTPUTS, *self.layers, *far))


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that compute a prediction."""
    return {
        "openradial": version("openradial"),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def check_rate_has_rejector(false_reject_rate: float | None, has_rejector: bool) -> None:
    """Raise if a rate is given and nothing can keep it."""
    if false_reject_rate is not None and not has_rejector:
        raise OptionError(
            f"false_reject_rate={false_reject_rate!r} needs a rejector, and this model has none: it calls nothing "
            "unknown; calibrate one and save it again"
        )


def _joined(parts: list[Tensor]) -> Tensor:
    if not parts:
        raise OptionError("known data are needed to learn from, got no batch")
    return torch.cat(parts)
