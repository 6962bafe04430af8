"""RadialClassifier: the radial layer as a scikit-learn estimator."""

from collections.abc import Sequence
from pathlib import Path
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

from openradial.classifier import Decisions, OpenClassifier
from openradial.conformal import Rejector
from openradial.data.examples import Examples
from openradial.errors import OptionError, check_choice, check_count
from openradial.estimator import closed_form, gradient
from openradial.estimator.bundles import estimator_state, to_model
from openradial.estimator.gradient import Factory, inference_copy, private_random_numbers
from openradial.estimator.labels import Classes, as_classes, as_examples, check_classes, open_world, with_unknown
from openradial.estimator.rows import ROWS, GroupedExamples, Seen, as_batches, as_rows, complete, row_weights, scaled
from openradial.fitting import calibrate, closed_world_beta
from openradial.fitting.options import FitOptions
from openradial.fitting.preparation import is_cross
from openradial.heads import ClosedFormRadialHead, RadialHead
from openradial.models.features import Features
from openradial.recipe import ClassWeightName, LossName, MethodName, Recipe
from openradial.training import Record
from openradial.training.settings import OptimiserName, ScheduleName

ROWS_TAKEN = {"dtype": [np.float64, np.float32], "accept_sparse": "csr", "ensure_all_finite": "allow-nan"}


class RadialClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Hidden layers, or random features, and a radial layer as a scikit-learn classifier that may answer "unknown".

    Each row is mapped to a point ``o``; class k has the prototype ``scale * e_k``. The nearest prototype is the
    predicted class, and its distance is the unknown score. A part of the training data is held out (in closed form,
    each row is scored without its fold instead), the distance to the nearest training row counts too, and a row that is
    more unknown than known rows is predicted as -1, or as ``"unknown"`` where labels are strings. With
    ``false_reject_rate=None`` no row is rejected.

    The method decides which parameters count: ``hidden``, ``module``, ``loss``, ``outliers`` and those from
    ``max_epochs`` on, except ``random_state``, are for ``"gradient"`` alone, ``random_features`` for ``"closed-form"``.

    Args:
        hidden: widths of the hidden layers.
        method: ``"gradient"`` trains a network; ``"closed-form"`` solves the head on random features of the columns,
            see :class:`~openradial.heads.ClosedFormRadialHead`.
        random_features: their number; 0 takes the columns as they are; ``"auto"`` follows from the number of rows.
        module: instead of ``hidden``, a network with one output per class or a function ``(num_features, num_classes)``
            that makes one. A network is copied and starts with the weights it has.
        beta: how fast probabilities fall with the distance; it changes no label. A number; ``"safe"``, see
            :func:`openradial.functional.safe_beta`; or ``"fit"``, fitted to the held-out part.
        scale: distance of the prototypes to the origin.
        loss: ``"squared"``, the squared distance to the prototype of the label, ``"distance"`` or ``"rescaled"``.
        outliers: weight of outliers, made from two rows of different classes each, whose outputs are pulled to the
            origin (see :func:`openradial.training.make_outliers`); 0 for none.
        class_weight: None, ``"balanced"``, its root ``"sqrt"``, a dict with a weight for each label, or in closed
            form ``"auto"``: the better of None and ``"balanced"`` by the leave-one-out macro error.
        standardise: scale every column to mean 0 and standard deviation 1 first.
        false_reject_rate: the share of known rows that may be rejected; None rejects no row. A rate of 0.05 needs 19
            held-out rows, or 22 rows in closed form.
        neighbours: where rows may be rejected, also use the distance to the nearest training row, in the first hidden
            layer, or in closed form between columns. Up to 10,000 training rows are kept for it. It is not used with a
            ``module``, with a network without hidden layers, or with fewer than about 60 held-out rows.
        calibration: ``"split"`` holds a part out; ``"cross"``, in closed form, scores each row without its fold;
            ``"auto"`` is cross up to 20,000 rows in closed form.
        calibration_fraction: share of each class that is held out for ``false_reject_rate`` and ``beta="fit"``.
        max_epochs: passes over the data.
        batch_size: rows per step.
        learning_rate: that of the optimiser, at its start.
        optimiser: ``"adam"``, ``"adamw"``, ``"muon"``, ``"rmsprop"`` or ``"sgd"``.
        schedule: how the learning rate falls: ``"cosine"``, ``"linear"``, ``"step"`` or ``"constant"``.
        weight_decay: that of the optimiser.
        early_stopping: hold a part out, stop when its loss no longer falls, and keep the best weights.
        validation_fraction: share of each class that is held out for that.
        patience: epochs without a lower loss before training stops.
        random_state: a number for reproducible results; a ``RandomState``; or None.
        device: ``"cpu"``, ``"cuda"`` or ``"mps"``.
        verbose: show progress bars, in a terminal and with rich installed.

    After ``fit`` there are ``classes_``, ``network_``, ``head_`` (a :class:`~openradial.heads.RadialHead`),
    ``means_`` of the columns, ``scaler_``, ``history_`` (a record per epoch; none in closed form) and
    ``classifier_``, the :class:`~openradial.OpenClassifier` that predicts, with its scorers, combination and rejector.

    >>> X, y = [[0.0], [0.1], [1.0], [1.1]], ["low", "low", "high", "high"]
    >>> RadialClassifier((10,), learning_rate=0.01, random_state=0, false_reject_rate=None).fit(X, y).predict([[0.05]])
    array(['low'], dtype='<U4')
    """

    classes_: Classes
    network_: nn.Module
    head_: RadialHead
    means_: NDArray[np.float64]
    scaler_: StandardScaler | None
    history_: list[Record]
    classifier_: OpenClassifier
    _seen: Seen

    def __init__(
        self,
        hidden: Sequence[int] = (100, 100),
        *,
        method: MethodName = "gradient",
        random_features: int | Literal["auto"] = "auto",
        module: nn.Module | Factory | None = None,
        beta: float | Literal["safe", "fit"] = "safe",
        scale: float = 1.0,
        loss: LossName = "squared",
        outliers: float = 0.3,
        class_weight: dict[Any, float] | ClassWeightName | None = None,
        standardise: bool = True,
        false_reject_rate: float | None = 0.05,
        neighbours: bool = True,
        calibration: Literal["auto", "split", "cross"] = "auto",
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
        self.method = method
        self.random_features = random_features
        self.module = module
        self.beta = beta
        self.scale = scale
        self.loss = loss
        self.outliers = outliers
        self.class_weight = class_weight
        self.standardise = standardise
        self.false_reject_rate = false_reject_rate
        self.neighbours = neighbours
        self.calibration = calibration
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Train a new network, or solve a new head, on rows ``(n, d)`` and their labels ``(n,)``.

        NaN counts as the mean of its column in these rows. A sparse matrix becomes dense. No split separates identical
        rows, or rows of one of the ``groups``, ``(n,)``, such as those of one patient.

        ``sample_weight``, ``(n,)``, is how much each row counts in the solution in closed form; 0 leaves it out. The
        scaling, the folds and the calibration treat all other rows alike.
        """
        is_closed = self._is_closed_form()
        for name in ("network_", "classifier_", "_seen"):
            self.__dict__.pop(name, None)
        X, y, weights, kept = self._validated(X, y, sample_weight, reset=True)
        if weights is not None and np.shape(groups) == kept.shape:
            groups = np.asarray(groups)[kept]
        self.classes_ = check_classes(np.unique(y), rejects=self.false_reject_rate is not None)
        seed = self._draw_seed(restart=True)
        rows = GroupedExamples.of(as_examples(X, y, self.classes_), groups, weights)
        known, held_out, validation = self._divided(rows, seed)
        self.history_ = []
        if is_closed:
            closed_form.solve_rows(self, known, is_cross=held_out is None)
        else:
            check_count("max_epochs", self.max_epochs)
            patience = self.patience if self.early_stopping else None
            settings = gradient.make_settings(self, self.max_epochs, self.schedule, patience)
            gradient.train_rows(self, known.examples, validation, settings)
        return self if held_out is None else self._calibrate(held_out)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train one more epoch on these rows, or in closed form add them. The first call must name all classes.

        Columns are standardised as at the first call, so its rows should be typical ones. In closed form, number and
        width of the random features are also those of the first call; the result is that of one fit on all rows with
        them. With ``"gradient"`` the optimiser restarts at each call, with the full learning rate. Nothing is held out,
        and an earlier calibration no longer holds: call :meth:`calibrate` before rows are to be rejected.
        """
        is_closed, begins = self._is_closed_form(), not hasattr(self, "network_")
        if not begins and is_closed != isinstance(self.head_, ClosedFormRadialHead):
            raise OptionError(f"this classifier was fitted with another method than {self.method!r}; call fit first")
        if (begins or not is_closed) and isinstance(self.class_weight, str):
            needs = f"class_weight={self.class_weight!r} needs all labels at once"
            raise OptionError(f"{needs}; give partial_fit a dict of weights")
        X, y, weights, _ = self._validated(X, y, sample_weight, reset=begins)
        named = as_classes(classes, None if begins else self.classes_)
        if begins:
            self.classes_ = check_classes(named, rejects=self.false_reject_rate is not None)
            self.history_ = []
        known = as_examples(X, y, self.classes_)
        self._draw_seed(restart=begins)
        if is_closed:
            closed_form.add_rows(self, known, weights)
        else:
            gradient.train_rows(self, known, None, gradient.make_settings(self, epochs=1))
        return self

    def calibrate(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Calibrate the rejection, and ``beta`` if it is ``"fit"``, on rows that were not used for training.

        ``fit`` does this with the part that it holds out. A new calibration replaces the earlier one. Neighbours are
        searched among the rows that were trained on while ``false_reject_rate`` was set; a third of the rows given here
        then serves to combine the two distances, the others to calibrate the combined score.
        """
        check_is_fitted(self, "network_")
        X, y, *_ = self._validated(X, y, None, reset=False)
        if self.false_reject_rate is None and self.beta != "fit":
            raise OptionError("there is nothing to calibrate: set false_reject_rate, or beta='fit'")
        return self._calibrate(GroupedExamples.of(as_examples(X, y, self.classes_), groups))

    def predict(self, X: Any, false_reject_rate: float | None = None) -> Classes:
        """Return the label of the nearest prototype, or -1 (``"unknown"`` for strings) where the row is rejected.

        After a calibration, another ``false_reject_rate`` than the estimator's may be given.
        """
        rate = self.false_reject_rate if false_reject_rate is None else false_reject_rate
        decisions = self._decide(X, rate)
        indices = decisions.nearest if rate is None else decisions.labels
        labels: Classes = (self.classes_ if rate is None else with_unknown(self.classes_))[indices.numpy()]
        return labels

    def predict_proba(self, X: Any) -> NDArray[Any]:
        r"""Return probabilities of the classes, ``(n, k)``.

        Where no row is rejected, each is taken to belong to a class and sums to 1:
        :math:`p_k = e^{-\beta d_k} / \sum_j e^{-\beta d_j}`. With a ``false_reject_rate`` a row may belong to none of
        them: :math:`p_k = e^{-\beta d_k}`, or less where the row would sum to more than 1. The rest to 1 is the
        probability of "none of these", which far from all prototypes is nearly 1. Neighbours do not count here.
        """
        log_probs = self._decide(X).log_probs
        probs = log_probs.softmax(-1) if self.false_reject_rate is None else open_world(log_probs)
        return probs.numpy()

    def decision_function(self, X: Any) -> NDArray[Any]:
        r"""Return log-probabilities :math:`-\beta d_k`, ``(n, k)``; with two classes their difference, ``(n,)``."""
        log_probs = self._decide(X).log_probs
        return (log_probs[:, 1] - log_probs[:, 0] if len(self.classes_) == 2 else log_probs).numpy()

    def unknown_score(self, X: Any) -> NDArray[Any]:
        """Return how unknown each row is, ``(n,)``; larger is more unknown.

        It is the distance to the nearest prototype. After a calibration with ``neighbours`` it is the sum of the
        logarithms of that distance and of the one to the nearest training row, each standardised on held-out known
        rows: about 0 for a typical known row, and no longer a distance.
        """
        return self._decide(X).unknown_score.numpy()

    def to_bundle(self, path: Path | str, *, overwrite: bool = False) -> Path:
        """Save the fitted estimator as a bundle, which can be predicted, evaluated, exported and served."""
        check_is_fitted(self, "network_")
        rejector = None if self.false_reject_rate is None else self._rejector()
        return to_model(self, rejector).save(path, overwrite=overwrite)

    @classmethod
    def from_bundle(cls, path: Path | str) -> Self:
        """Load an estimator from a bundle of a table of numbers with a fully connected radial network, or closed form.

        It predicts as the bundle does. In closed form :meth:`partial_fit` goes on. A bundle of a network holds no
        training rows, so an estimator with neighbours can neither be trained further nor calibrated again before
        ``set_params(neighbours=False)``.
        """
        params, state = estimator_state(path)
        estimator = cls(**params)
        estimator.__dict__.update(state)
        estimator._draw_seed(restart=True)
        return estimator

    @property
    def beta_(self) -> float:
        """The beta of the probabilities."""
        return float(self.head_.layer.beta)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def _validated(self, X: Any, y: Any, sample_weight: Any, *, reset: bool) -> tuple[Any, Classes, Tensor | None, Any]:
        """Return rows, labels and weights without those of weight 0, and which are kept."""
        if sample_weight is not None and self.method != "closed-form":
            hint = "with method='gradient' use class_weight, or repeat rows"
            raise OptionError(f"sample_weight is for method='closed-form'; {hint}")
        X, y = validate_data(self, X, y, reset=reset, **ROWS_TAKEN)
        weights, kept = row_weights(sample_weight, X)
        X, y = X[kept], y[kept]
        check_classification_targets(y)
        X, self.means_ = complete(X, None if reset else self.means_)
        return X, y, weights, kept

    def _rejector(self) -> Rejector:
        if self.classifier_.rejector is None:
            raise OptionError(
                "rows can be rejected only after a calibration: fit with a false_reject_rate, call calibrate with "
                "known rows that were not trained on, or reject no row with false_reject_rate=None"
            )
        return self.classifier_.rejector

    def _draw_seed(self, *, restart: bool) -> int:
        """Return the next seed that follows from ``random_state``, or the first one."""
        if restart:
            self._random = check_random_state(self.random_state)
        self._seed = int(self._random.randint(np.iinfo(np.int32).max))
        return self._seed

    def _is_closed_form(self) -> bool:
        check_choice("method", self.method, ("gradient", "closed-form"))
        self._fit_options()
        return self.method == "closed-form"

    def _fit_options(self) -> FitOptions:
        return FitOptions("rows", method=self.method, calibration=self.calibration)

    def _divided(
        self, known: GroupedExamples, seed: int
    ) -> tuple[GroupedExamples, GroupedExamples | None, Examples | None]:
        """Return examples for training, calibration and validation."""
        rest, held_out, validation = known, None, None
        calibrates = self.false_reject_rate is not None or self.beta == "fit"
        if calibrates and not is_cross(self._fit_options(), self.method, len(known.examples)):
            rest, held_out = rest.hold_out("calibration_fraction", self.calibration_fraction, seed)
        if held_out is not None and self.false_reject_rate is not None:
            held_out.check_enough(known, self.calibration_fraction, self.false_reject_rate)  # before the training
        if self.early_stopping and self.method == "gradient":
            rest, validation = rest.hold_out("validation_fraction", self.validation_fraction, seed)
        return rest, held_out, None if validation is None else validation.examples

    def _recipe(self, net: nn.Module, rows: int = 1) -> Recipe:
        if not isinstance(self.neighbours, bool | np.bool_):
            raise OptionError(f"neighbours must be True or False, got {self.neighbours!r}; it is the one nearest row")
        has_neighbours = self.false_reject_rate is not None and bool(self.neighbours)
        if isinstance(net, Features):
            return closed_form.make_recipe(self, rows, has_neighbours)
        return gradient.make_recipe(self, net, has_neighbours)

    def _remember(self, recipe: Recipe, rows: Tensor) -> None:
        """Keep some of the rows that were trained on, if neighbours are searched among them."""
        if recipe.layers:
            seen = Seen.of(rows, self._seed)
            self._seen = self._seen.joined(seen) if hasattr(self, "_seen") else seen

    def _calibrate(self, held_out: GroupedExamples) -> Self:
        recipe = self._recipe(self.network_)
        has_neighbours = bool(recipe.layers) and hasattr(self, "_seen")
        is_closed = isinstance(self.head_, ClosedFormRadialHead)
        net = inference_copy(self.network_, "cpu" if has_neighbours or is_closed else self.device)

        def batches(part: Examples) -> list[tuple[Tensor, Tensor]]:
            return as_batches(scaled(part, self.scaler_).inputs, part.labels, net)

        if self.false_reject_rate is None:
            self.head_.layer.beta = closed_world_beta(net, self.head_, batches(held_out.examples))
            return self
        check_classes(self.classes_, rejects=True)
        for_scores, for_rejector, seen = None, held_out.examples, torch.empty(0)
        if has_neighbours:
            for_scores, for_rejector = held_out.split_for_scores(self.false_reject_rate, self._seed)
            seen = self._seen.rows
        with private_random_numbers("cpu" if is_closed else self.device):
            self.classifier_ = calibrate(
                net,
                self.head_,
                recipe,
                self.false_reject_rate,
                train=as_batches(seen, torch.zeros(len(seen), dtype=torch.int64), net),
                combination=None if for_scores is None else batches(for_scores),
                calibration=batches(for_rejector),
            )
        return self

    def _decide(self, X: Any, rate: float | None = None) -> Decisions:
        """Return decisions on the CPU, computed chunk by chunk; raise where a rate is given and cannot be kept."""
        check_is_fitted(self, "network_")
        X, _ = complete(validate_data(self, X, reset=False, **ROWS_TAKEN), self.means_)
        rows = as_rows(X, self.scaler_)
        if rate is not None:
            self._rejector()
        model = self.classifier_
        parts = [model.decide(x.to(model.device, model.dtype), rate) for x in torch.split(rows, ROWS)]
        columns = [None if column[0] is None else torch.cat(column).cpu() for column in zip(*parts, strict=True)]
        return Decisions(*columns)  # type: ignore[arg-type]
