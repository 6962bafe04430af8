"""RadialClassifier: the radial layer as a scikit-learn estimator."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from sklearn.utils import check_random_state  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
from torch import Tensor, nn

from openradial.classifier import Answer, OpenClassifier
from openradial.conformal import Rejector
from openradial.data.examples import Examples
from openradial.errors import OptionError, check_choice, check_count
from openradial.estimator.labels import (
    Classes,
    as_classes,
    as_examples,
    as_labels,
    check_classes,
    check_same,
    class_weights,
    with_unknown,
)
from openradial.estimator.network import (
    Answering,
    Factory,
    check_network,
    make_network,
    make_objective,
    own_random_numbers,
    train,
)
from openradial.estimator.probabilities import closed_world, open_world, true_beta
from openradial.estimator.rejection import Seen, calibrated, check_neighbours, has_hidden_layer
from openradial.estimator.rows import as_rows, check_enough, fit_scaler, held_out, scaled
from openradial.functional import safe_beta
from openradial.functional.norms import MetricName
from openradial.heads import RadialHead
from openradial.nn import RadialLoss
from openradial.scorers import Combination, Scorer
from openradial.training import Record, Settings
from openradial.training.settings import OptimiserName, ScheduleName

Data = Any  # an array, a list or a data frame: scikit-learn takes what NumPy can
Numbers = NDArray[np.floating[Any]]
FLOATS = [np.float64, np.float32]
CALIBRATION = ("rejector_", "scorers_", "combination_")
METRICS: dict[str, MetricName] = {"distance": "euclidean", "squared": "squared_euclidean"}


class RadialClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Hidden layers and a radial layer as a scikit-learn classifier that may answer "unknown".

    A network maps each row to a point ``o``; class k has the prototype ``scale * e_k``. The nearest prototype is the
    answer, and its distance says how unknown the row is. With ``false_reject_rate`` set, a part of the training data
    is held out, the distance to the nearest training row counts too, and a row that is more unknown than known rows
    are is answered with -1, or with ``"unknown"`` where labels are strings.

    Args:
        hidden: widths of the hidden layers.
        module: instead of ``hidden``, a network with one output per class or a function ``(num_features, num_classes)``
            that makes one. A network is copied and starts with the weights it has.
        beta: how fast probabilities fall with the distance; it changes no label. A number; ``"safe"``, see
            :func:`openradial.functional.safe_beta`; or ``"fit"``, found on the part that is held out.
        scale: distance of the prototypes to the origin.
        loss: ``"squared"``, the squared distance to the prototype of the label, or ``"distance"``, as in the paper.
        outliers: how much outliers count that are made from each batch, of two rows of different classes each, and
            whose outputs are pulled to the origin (see :mod:`openradial.training.outliers`); 0 for none.
        class_weight: None, ``"balanced"``, or a dict that says how much each label counts.
        standardise: bring every column to mean 0 and deviation 1 first.
        false_reject_rate: None, and no row is rejected; or the share of known rows that may be.
        neighbours: where rows may be rejected, let the distance to the nearest training row count too, in the first
            hidden layer. Up to 10,000 training rows are kept for it. A ``module`` or a network without hidden layers
            does without, and so do fewer than about 60 rows that are held out.
        calibration_fraction: share of each class that is held out for ``false_reject_rate`` and ``beta="fit"``.
        max_epochs: how often the network sees the data.
        batch_size: rows per step.
        learning_rate: that of the optimiser, at its start.
        optimiser: ``"adam"``, ``"adamw"``, ``"rmsprop"`` or ``"sgd"``.
        schedule: how the learning rate falls: ``"cosine"``, ``"linear"``, ``"step"`` or ``"constant"``.
        weight_decay: that of the optimiser.
        early_stopping: hold a part out, stop when its loss no longer falls, and keep the best weights.
        validation_fraction: share of each class that is held out for that.
        patience: how many epochs may pass without a lower loss.
        random_state: a number, for the same result every time; a ``RandomState``; or None.
        device: ``"cpu"``, ``"cuda"`` or ``"mps"``.
        verbose: show progress bars, in a terminal and with rich installed.

    After ``fit`` there are ``classes_``, ``network_``, ``head_`` (a :class:`~openradial.heads.RadialHead`),
    ``scaler_``, ``history_`` (a record per epoch) and, where rows may be rejected, ``rejector_`` (a
    :class:`~openradial.conformal.Rejector`). Where neighbours count too, ``scorers_`` has the two scores by the layer
    that they look at, and ``combination_`` (a :class:`~openradial.scorers.Combination`) makes them one.

    >>> X, y = [[0.0], [0.1], [1.0], [1.1]], ["low", "low", "high", "high"]
    >>> RadialClassifier((10,), learning_rate=0.01, random_state=0).fit(X, y).predict([[0.05], [1.05]])
    array(['low', 'high'], dtype='<U4')
    """

    classes_: Classes
    network_: nn.Module
    head_: RadialHead
    scaler_: StandardScaler | None
    scorers_: dict[str, Scorer]
    combination_: Combination
    rejector_: Rejector
    history_: list[Record]
    _seen: Seen

    def __init__(
        self,
        hidden: Sequence[int] = (100, 100),
        *,
        module: nn.Module | Factory | None = None,
        beta: float | Literal["safe", "fit"] = "safe",
        scale: float = 1.0,
        loss: Literal["distance", "squared"] = "squared",
        outliers: float = 0.3,
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        standardise: bool = True,
        false_reject_rate: float | None = None,
        neighbours: bool = True,
        calibration_fraction: float = 0.2,
        max_epochs: int = 100,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        optimiser: OptimiserName = "adam",
        schedule: ScheduleName = "cosine",
        weight_decay: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.hidden = hidden
        self.module = module
        self.beta = beta
        self.scale = scale
        self.loss = loss
        self.outliers = outliers
        self.class_weight = class_weight
        self.standardise = standardise
        self.false_reject_rate = false_reject_rate
        self.neighbours = neighbours
        self.calibration_fraction = calibration_fraction
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.optimiser = optimiser
        self.schedule = schedule
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Data, y: Data) -> Self:
        """Train a new network on rows ``(n, d)`` and their labels ``(n,)``."""
        self._forget("network_", "_seen", *CALIBRATION)
        X, y = self._validated(X, y, reset=True)
        self._set_classes(np.unique(y))
        check_count("max_epochs", self.max_epochs)
        seed = self._draw_seed(anew=True)
        known, held, watched = self._divided(as_examples(X, y, self.classes_), seed)
        settings = self._settings(seed, self.max_epochs, self.schedule, self.patience if self.early_stopping else None)
        self.history_ = []
        self._train(known, watched, settings)
        return self if held is None else self._calibrate(held)

    def partial_fit(self, X: Data, y: Data, classes: Data | None = None) -> Self:
        """Train one more epoch, on these rows. The first call must name all classes.

        Columns are standardised as at the first call, so its rows should be typical ones. The optimiser starts anew at
        each call, with the full learning rate. Nothing is held out, and since the network changes, an earlier
        calibration no longer holds: call :meth:`calibrate` before rows are to be rejected.
        """
        if self.class_weight == "balanced":
            raise OptionError("class_weight='balanced' needs all labels at once; give partial_fit a dict of weights")
        begins = not hasattr(self, "network_")
        self._forget(*CALIBRATION)
        X, y = self._validated(X, y, reset=begins)
        if begins:
            self._set_classes(as_classes(classes))
            self.history_ = []
        elif classes is not None:
            check_same(as_classes(classes), self.classes_)
        known = as_examples(X, y, self.classes_)
        self._train(known, None, self._settings(self._draw_seed(anew=begins), 1, "constant", None))
        return self

    def calibrate(self, X: Data, y: Data) -> Self:
        """Learn how far away known rows lie, from rows that were not trained on, and ``beta`` if it is ``"fit"``.

        ``fit`` does this with the part that it holds out. What is learnt replaces what was learnt before. Neighbours
        are looked for among the rows that were trained on while ``false_reject_rate`` was set; a third of the rows
        given here then serves to combine the two distances, and the others to find out how large they are together.
        """
        check_is_fitted(self, "network_")
        X, y = self._validated(X, y, reset=False)
        if self.false_reject_rate is None and self.beta != "fit":
            raise OptionError("there is nothing to calibrate: set false_reject_rate, or beta='fit'")
        return self._calibrate(as_examples(X, y, self.classes_))

    def predict(self, X: Data, false_reject_rate: float | None = None) -> Classes:
        """The label of the nearest prototype, or -1 (``"unknown"`` for strings) where the row is rejected.

        Where there is a calibration, another ``false_reject_rate`` than the estimator's may be given; None stands for
        the estimator's own.
        """
        x = self._rows(X)
        rate = self.false_reject_rate if false_reject_rate is None else false_reject_rate
        if rate is None:
            return as_labels(self.head_.predict(self._answering().outputs(x)), self.classes_)
        if not hasattr(self, "rejector_"):
            raise OptionError(
                "rows can be rejected only after a calibration: set false_reject_rate and fit, "
                "or call calibrate with known rows that were not trained on"
            )
        decided = [answer.labels.cpu() for answer in self._answers(x, rate)]
        return as_labels(torch.cat(decided), with_unknown(self.classes_))

    def predict_proba(self, X: Data) -> Numbers:
        r"""Probabilities of the classes, ``(n, k)``.

        Where no row is rejected, each is taken to belong to a class and sums to 1:
        :math:`p_k = e^{-\beta d_k} / \sum_j e^{-\beta d_j}`. With a ``false_reject_rate`` a row may belong to none of
        them: :math:`p_k = e^{-\beta d_k}`, or less where the row would sum to more than 1. What it then lacks to 1 is
        the probability of "none of these", which far from all prototypes is nearly everything. Neighbours do not
        count here.
        """
        log_probs = self._log_probs(X)
        probs = closed_world(log_probs) if self.false_reject_rate is None else open_world(log_probs)
        return _array(probs)

    def decision_function(self, X: Data) -> Numbers:
        r"""Log-probabilities :math:`-\beta d_k`, ``(n, k)``; of two classes the second's less the first's, ``(n,)``."""
        log_probs = self._log_probs(X)
        return _array(log_probs[:, 1] - log_probs[:, 0] if len(self.classes_) == 2 else log_probs)

    def unknown_score(self, X: Data) -> Numbers:
        """How unknown each row is, ``(n,)``; larger is more unknown.

        It is the distance to the nearest prototype. After a calibration with ``neighbours`` it is the sum of the
        logarithms of that distance and of the one to the nearest training row, each less its mean and divided by its
        deviation on held-out known rows: about 0 for a typical known row, and no longer a distance.
        """
        return _array(torch.cat([answer.unknown_score.cpu() for answer in self._answers(self._rows(X))]))

    @property
    def beta_(self) -> float:
        """The beta of the probabilities."""
        return float(self.head_.layer.beta)

    def _validated(self, X: Data, y: Data, *, reset: bool) -> tuple[NDArray[Any], Classes]:
        X, y = validate_data(self, X, y, dtype=FLOATS, reset=reset)
        check_classification_targets(y)
        return X, y

    def _forget(self, *names: str) -> None:
        for name in names:
            if hasattr(self, name):
                delattr(self, name)

    def _set_classes(self, classes: Classes) -> None:
        check_classes(classes, rejects=self.false_reject_rate is not None)
        self.classes_ = classes

    def _draw_seed(self, *, anew: bool) -> int:
        """The next seed that follows from ``random_state``, or the first one."""
        if anew:
            self._random = check_random_state(self.random_state)
        self._seed = int(self._random.randint(np.iinfo(np.int32).max))
        return self._seed

    def _divided(self, known: Examples, seed: int) -> tuple[Examples, Examples | None, Examples | None]:
        """Examples to train on, to calibrate with and to watch."""
        held, watched, rows = None, None, len(known)
        if self.false_reject_rate is not None or self.beta == "fit":
            known, held = held_out(known, "calibration_fraction", self.calibration_fraction, seed)
        if held is not None and self.false_reject_rate is not None:
            check_enough(held, rows, self.calibration_fraction, self.false_reject_rate)  # before the training
        if self.early_stopping:
            known, watched = held_out(known, "validation_fraction", self.validation_fraction, seed)
        return known, held, watched

    def _settings(self, seed: int, epochs: int, schedule: ScheduleName, patience: int | None) -> Settings:
        values: dict[str, Any] = {
            "epochs": epochs,
            "batch_size": self.batch_size,
            "optimiser": self.optimiser,
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "schedule": schedule,
            "patience": patience,
            "seed": seed,
        }
        # a search over parameters gives NumPy's numbers
        return Settings(**{name: v.item() if isinstance(v, np.generic) else v for name, v in values.items()})

    def _train(self, known: Examples, watched: Examples | None, settings: Settings) -> None:
        check_neighbours(self.neighbours)
        with own_random_numbers(self.device):
            torch.manual_seed(settings.seed)
            network = self.network_ if hasattr(self, "network_") else self._new_network(known)
            known = scaled(known, self.scaler_)
            history = train(
                network,
                make_objective(self._loss(known.labels), self.outliers),
                known,
                None if watched is None else scaled(watched, self.scaler_),
                settings,
                device=self.device,
                show_progress=bool(self.verbose),
            )
        self.history_ += history.records
        self.network_ = network
        if self._looks_for_neighbours():
            seen = Seen.of(known.inputs, settings.seed)
            self._seen = self._seen.joined(seen) if hasattr(self, "_seen") else seen

    def _new_network(self, known: Examples) -> nn.Module:
        """A network with its first weights, and the scaler and the head that go with it."""
        k = len(self.classes_)
        if isinstance(self.beta, str):
            check_choice("beta", self.beta, ("safe", "fit"))
        X = known.inputs.numpy()
        beta = safe_beta(k, self.scale) if isinstance(self.beta, str) else self.beta
        self.head_ = RadialHead(k, beta, self.scale, loss=self.loss)
        self.scaler_ = fit_scaler(X) if self.standardise else None
        network = make_network(self.module, self.hidden, X.shape[1], k)
        check_network(network, as_rows(X[:2], self.scaler_), k)
        return network

    def _loss(self, y: Tensor) -> RadialLoss:
        # without beta, which only scales it: so beta can be chosen when the network is trained
        weight = class_weights(self.class_weight, self.classes_, y)
        return RadialLoss(scale=self.scale, weight=weight, metric=METRICS[self.loss])

    def _looks_for_neighbours(self) -> bool:
        return self.false_reject_rate is not None and bool(self.neighbours) and has_hidden_layer(self.network_)

    def _calibrate(self, held: Examples) -> Self:
        held, answering = scaled(held, self.scaler_), self._answering()
        if self.beta == "fit":
            is_open = self.false_reject_rate is not None
            distances = self.head_.layer.distances(answering.outputs(held.inputs))
            self.head_.layer.beta = true_beta(distances, held.labels, is_open=is_open)
        if self.false_reject_rate is not None:
            check_classes(self.classes_, rejects=True)
            seen = getattr(self, "_seen", None) if self._looks_for_neighbours() else None
            self._keep(calibrated(answering, self.head_, self.false_reject_rate, seen, held, self._seed))
        return self

    def _keep(self, model: OpenClassifier) -> None:
        self._forget(*CALIBRATION)
        assert model.rejector is not None
        self.rejector_ = model.rejector
        if model.combination is not None:
            pairs = zip(model.places, model.scorers, strict=True)
            self.scorers_ = {place: scorer for place, scorer in pairs if isinstance(scorer, Scorer)}
            self.combination_ = model.combination

    def _rows(self, X: Data) -> Tensor:
        check_is_fitted(self, "network_")
        return as_rows(validate_data(self, X, dtype=FLOATS, reset=False), self.scaler_)

    def _answering(self) -> Answering:
        is_on_cpu = hasattr(self, "scorers_") or self._looks_for_neighbours()  # neighbours are looked for there
        return Answering(self.network_, "cpu" if is_on_cpu else self.device)

    def _log_probs(self, X: Data) -> Tensor:
        x = self._rows(X)
        log_probs: Tensor = self.head_(self._answering().outputs(x))
        return log_probs

    def _answers(self, x: Tensor, rate: float | None = None) -> list[Answer]:
        answering = self._answering()
        parts = {name: getattr(self, f"{name}_", None) for name in ("scorers", "combination", "rejector")}
        model = OpenClassifier(answering.net, self.head_, **parts)
        return [model.answer(rows, rate) for rows in answering.parts(x)]


def _array(values: Tensor) -> Numbers:
    array: Numbers = values.numpy()
    return array
