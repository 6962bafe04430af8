"""A radial head on features, solved in closed form: examples and classes are added and removed by arithmetic."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from openradial.errors import DataError, HeadError, OptionError, check_choice, check_count, check_positive
from openradial.heads.class_weight import ClassWeight, checked_class_weight, given_weights, weights_to_try
from openradial.heads.radial import RadialHead, RadialScore
from openradial.heads.random_features import RandomFeatures, median_distance
from openradial.heads.ridge import Affine, Casts, RidgePath, alphas, best_alpha, solve
from openradial.heads.sums import ClassSums, RowHashes, check_tensors, class_names
from openradial.nn import RadialLayer
from openradial.scorers.base import Scorer, at_least_float32, check_features, check_rows, draw_rows
from openradial.scorers.statistics import ClassStatistics, checked_sample_weight

AT_ONCE = 2**22  # numbers of expanded features in memory at a time: 32 MB
MOST = 5_000  # examples whose leave-one-out macro error is compared
SEARCHED = 1_000  # examples with whose leave-one-out error alpha is chosen
WIDTHS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4)  # of random features, in median distances of two examples
PILOT_FEATURES, PILOT_EXAMPLES = 256, 1_500  # with which the width is chosen


class ClosedFormRadialHead(RadialHead):
    r"""A radial head on features z: its outputs :math:`o = W z + b` minimise the squared radial loss.

    On fixed features the squared distance to the prototypes is ridge regression, whose solution needs only sums over
    the examples. So :meth:`partial_fit` streams data, :meth:`merge` joins heads of other processes, :meth:`remove`
    takes examples out, and classes are added and dropped; the result is always that of a fresh fit. The sums are
    float64 whatever the input. W is solved when it is needed.

    Args:
        classes: the number of classes, or their names.
        num_features: the size of z.
        beta: how fast the probability falls with the distance.
        scale: distance of the prototypes to the origin.
        alpha: the ridge penalty, as in scikit-learn's ``Ridge``. ``"auto"`` chooses it by the leave-one-out error in
            :meth:`fit`; after :meth:`partial_fit` alone, by generalised cross-validation, which needs no examples.
        class_weight: None; ``"balanced"``, ``n / (k * n_k)`` in :meth:`fit`; its root ``"sqrt"``; one per class; or
            ``"auto"``, which takes the better of None and ``"balanced"`` by the leave-one-out macro error.
        random_features: number of random Fourier features of z that replace z; 0 for none.
        width: of the Gaussian kernel that they approximate; ``"auto"`` chooses it by the leave-one-out error in
            :meth:`fit`.
        seed: for the random features.
        score: see :class:`RadialHead`.
        squares: replace z by its squares, divided by their length: those of features that are square roots.

    >>> z = torch.tensor([[0.0, 0.1], [0.1, 0.0], [1.0, 0.9], [0.9, 1.0]])
    >>> head = ClosedFormRadialHead(["cat", "dog"], 2, alpha=0.01).partial_fit(z, torch.tensor([0, 0, 1, 1]))
    >>> head.predict(torch.tensor([[0.2, 0.1], [0.8, 0.7]]))
    tensor([0, 1])
    >>> head.add_class("bird", torch.tensor([[5.0, 0.0], [5.1, 0.0]])).predict(torch.tensor([[4.0, 0.0]]))
    tensor([2])
    """

    fitted: ClassVar[tuple[str, ...]] = ("weight", "bias")
    weight: Tensor | None  # (k, d) float64, None while it is not solved
    bias: Tensor | None  # (k,)
    fitted_alpha: float | None  # of the current solution
    features: RandomFeatures | None
    _cast: Casts

    def __init__(
        self,
        classes: int | Sequence[str],
        num_features: int,
        beta: float = 1.0,
        scale: float = 1.0,
        *,
        alpha: float | Literal["auto"] = "auto",
        class_weight: ClassWeight = None,
        random_features: int = 0,
        width: float | Literal["auto"] = "auto",
        seed: int = 0,
        score: RadialScore = "distance",
        squares: bool = False,
    ) -> None:
        names = class_names(classes)
        super().__init__(len(names), beta, scale, score=score, loss="squared")
        check_count("num_features", num_features)
        check_count("random_features", random_features, least=0)
        check_count("seed", seed, least=0)
        for name, value in (("alpha", alpha), ("width", width)):
            if isinstance(value, str):
                check_choice(name, value, ("auto",))
            else:
                check_positive(name, value)
        self.alpha, self.width = (value if isinstance(value, str) else float(value) for value in (alpha, width))
        self.scale, self.class_weight = float(scale), checked_class_weight(class_weight, len(names))
        self.num_features, self.random_features, self.seed = int(num_features), int(random_features), int(seed)
        self.squares, self.features = squares, None  # the map to random features
        self.sums = ClassSums.empty(names, self.random_features or self.num_features)
        self.reset()

    def reset(self) -> Self:
        """Forget all examples and everything that was chosen from them."""
        is_given = self.random_features and not isinstance(self.width, str)
        self.features = self._draw(float(self.width)) if is_given else None
        self._kept_alpha = None if isinstance(self.alpha, str) else self.alpha
        weights = given_weights(self.class_weight)
        return self._set(ClassSums.empty(self.classes, self.sums.statistics.num_features, weights))

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.sums.classes

    @property
    def counts(self) -> Tensor:
        """Number of examples of each class, ``(k,)``."""
        return self.sums.statistics.counts

    @property
    def num_outputs(self) -> int:
        """Number of features per input: this head takes features."""
        return self.num_features

    @property
    def is_fitted(self) -> bool:
        return self._num_examples > 0

    def fit(self, z: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Self:
        """Fit to these examples alone, ``(n, d), (n,)``, and choose what is ``"auto"``.

        ``sample_weight``, ``(n,)``, are positive; a weight of 2 has the solution of the example twice, for one alpha.
        Where alpha or a width is chosen, an example is left out as a whole.
        """
        z, y = self._examples(z, y)
        sample_weight = None if sample_weight is None else checked_sample_weight(sample_weight, len(z))
        trials = weights_to_try(self.class_weight, torch.bincount(y, sample_weight, minlength=self.num_classes))
        heads = [self._fitted(z, y, weights, sample_weight) for weights in trials]
        best = heads[0] if len(heads) == 1 else min(heads, key=lambda head: head.macro_error(z, y, sample_weight))
        self.features, self._kept_alpha = best.features, best._kept_alpha
        self._set(best.sums)
        self.weight, self.bias, self.fitted_alpha = best.weight, best.bias, best.fitted_alpha
        return self

    def partial_fit(self, z: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Self:
        """Add examples, ``(n, d), (n,)``."""
        self._check_weights_are_chosen()
        return self._set(self.sums + self.sums_of(z, y, sample_weight))

    def remove(self, z: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Self:
        """Take out examples that were added before, with the same labels and weights."""
        return self._set(self.sums - self.sums_of(z, y, sample_weight))

    def merge(self, other: "ClosedFormRadialHead") -> Self:
        """Add the examples of another head: classes of the same name are joined, others are appended."""
        if not isinstance(other, ClosedFormRadialHead):
            raise OptionError(f"a closed-form head is merged with another one, got {type(other).__name__}")
        for name in ("num_features", "random_features", "scale", "squares"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise OptionError(f"heads must have the same {name} to be merged, got {mine} and {theirs}")
        if self.random_features and not RandomFeatures.same(self.features, other.features):
            raise OptionError("heads must have the same random features to be merged: give both one width and seed")
        return self._set(self.sums + other.sums)

    def add_class(self, name: str, z: Tensor, *, weight: float = 1.0) -> Self:
        """Append a class with its examples, ``(n, d)``, each of this weight."""
        self._check_weights_are_chosen()
        if name in self.classes:
            raise OptionError(f"there is a class {name!r} already; add examples to it with partial_fit")
        check_positive("weight", weight)
        self._check(z)
        has_weights = self.sums.class_weight is not None or weight != 1
        weights = torch.tensor([weight], dtype=torch.float64) if has_weights else None
        new = ClassSums.empty((name,), self.sums.statistics.num_features, weights)
        return self._set(self.sums + self._sums(*self._examples(z, torch.zeros(len(z), dtype=torch.int64)), new))

    def drop_class(self, name: str, z: Tensor) -> Self:
        """Remove a class; ``z`` are its examples, ``(n, d)``, as they were added."""
        k = self.sums.index(name)
        self._check(z)
        if self.num_classes == 1:
            raise OptionError(f"{name!r} is the only class; a head needs at least one")
        if len(z) != self.counts[k]:
            raise OptionError(f"all {int(self.counts[k])} examples of {name!r} are needed to drop it, got {len(z)}")
        left = self.sums - self.sums_of(z, torch.full((len(z),), k)) if len(z) else self.sums
        return self._set(left.aligned((*self.classes[:k], *self.classes[k + 1 :])))

    def rename_class(self, old: str, new: str) -> Self:
        """Give a class another name."""
        self.sums = self.sums.renamed(old, new)
        return self

    def outputs(self, z: Tensor) -> Tensor:
        """Return the outputs, ``(b, d) -> (b, k)``."""
        return self._outputs(z)

    def solve(self) -> Self:
        """Compute W and b from the sums; nothing happens if they are up to date."""
        if self.weight is None and self.is_fitted:
            if torch.compiler.is_compiling():
                raise HeadError("a head is solved before it is exported or compiled: call solve() first")
            alpha, statistics = self._kept_alpha, self.sums.statistics
            if alpha is None:  # no example is at hand
                path = RidgePath.of(statistics)
                alpha = min(alphas(statistics), key=path.generalised_cross_validation)
            self.weight, self.bias = solve(statistics, alpha, self.scale)
            self.fitted_alpha = alpha
        return self

    @torch.no_grad()
    def leave_one_out(self, z: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Return the outputs of added examples under the head without each of them, ``(n, d), (n,) -> (n, k)``."""
        z, y = self._examples(z, y)
        self._check_fitted()
        self.sums.hashes.check_contains(RowHashes.of(z, y, self.num_classes))
        if self._num_examples == 1:
            raise OptionError("leave-one-out needs at least two examples, got one: nothing is left without it")
        path, alpha = RidgePath.of(self.sums.statistics), float(self.fitted_alpha or 0)
        parts = [
            path.leave_one_out(path.project(self.expand(rows)), labels, alpha, self._weights_of(labels, weights))
            for rows, labels, weights in self._chunks(z, y, sample_weight)
        ]
        return self.scale * torch.cat(parts)

    def macro_error(self, z: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> float:
        """Return the leave-one-out error rate of added examples, averaged over the classes."""
        z, y, weights = self._sample(*self._examples(z, y), sample_weight, MOST)
        wrong = (self.leave_one_out(z, y, weights).argmax(1) != y).double()
        wrong, counts = wrong if weights is None else wrong * weights, torch.bincount(y, weights)
        return float((torch.bincount(y, weights=wrong) / counts)[counts > 0].mean())

    def expand(self, z: Tensor) -> Tensor:
        """Return the features that W multiplies, in float64: z, its squares, or random features."""
        self._check(z)
        if self.random_features and self.features is None:
            raise OptionError("the width of the random features is chosen by fit; call fit first, or give a number")
        return self._mapped(z.double())

    def _mapped(self, z: Tensor) -> Tensor:
        z = torch.nn.functional.normalize(z.square()) if self.squares else z
        return z if self.features is None else self.features(z)

    def sums_of(self, z: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> ClassSums:
        """Return the sums over examples that this head would add."""
        return self._sums(*self._examples(z, y), self.sums, sample_weight)

    def without(self, part: ClassSums) -> Self:
        """Return a head with the same settings and choices for all examples but those of ``part``."""
        self._check_fitted()
        made = type(self)(**self.settings())
        made.features, made._kept_alpha = self.features, self.fitted_alpha
        return made._set(self.sums - part)

    def settings(self) -> dict[str, Any]:
        return Scorer.settings(self) | {"classes": list(self.classes), "beta": self.layer.beta}

    def tensors(self) -> dict[str, Tensor]:
        """Return the solution, the sums and the random features; nothing before the fit."""
        if not self.is_fitted:
            return {}
        self.solve()
        alpha = torch.tensor([self.fitted_alpha, self._kept_alpha is not None], dtype=torch.float64)
        made = {"weight": self.weight, "bias": self.bias, "alpha": alpha}
        made |= {f"sums.{name}": value for name, value in self.sums.tensors().items()}
        if self.features is not None:
            made |= {f"features.{name}": value for name, value in self.features.state_dict().items()}
        return made  # type: ignore[return-value]

    def restore(self, tensors: Mapping[str, Tensor]) -> Self:
        if not tensors:
            return self.reset()
        k, d = self.sums.statistics.means.shape
        shapes = {"weight": (k, d), "bias": (k,), "alpha": (2,)}
        if self.random_features:
            shapes |= {"features.frequencies": (self.num_features, d), "features.phases": (d,), "features.width": ()}
        check_tensors(f"a {type(self).__name__}", shapes, tensors)
        given = {name.removeprefix("sums."): value for name, value in tensors.items() if name.startswith("sums.")}
        self._set(self.sums.restored(given))
        if self.random_features:
            parts = (tensors[f"features.{name}"] for name in ("frequencies", "phases", "width"))
            self.features = RandomFeatures(*parts)
        alpha, is_kept = tensors["alpha"].tolist()
        self.fitted_alpha, self._kept_alpha = alpha, alpha if is_kept else None
        self.weight, self.bias = tensors["weight"], tensors["bias"]
        return self

    @classmethod
    def from_parts(cls, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        return cls(**settings).restore(tensors)

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, num_features={self.num_features}, alpha={self.fitted_alpha}"

    def _fitted(self, z: Tensor, y: Tensor, weights: Tensor | None, sample_weight: Tensor | None) -> Self:
        """Return a head of the same settings, fitted to these examples with these class weights."""
        made = type(self)(**self.settings())
        made.sums, near = replace(made.sums, class_weight=weights), None
        if self.random_features and (made.features is None or made._kept_alpha is None):
            width, near = made._choose_width(z, y, sample_weight)
            made.features = self._draw(width)
        made._set(made.sums_of(z, y, sample_weight))
        if made._kept_alpha is None:
            made._kept_alpha = made._best_alpha(z, y, near, sample_weight)[1]
        return made.solve()

    @torch.no_grad()
    def _best_alpha(
        self, z: Tensor, y: Tensor, near: float | None = None, sample_weight: Tensor | None = None
    ) -> tuple[float, float]:
        """Return the smallest leave-one-out error, and its alpha."""
        is_all, (z, y, sampled) = len(z) <= SEARCHED, self._sample(z, y, sample_weight, SEARCHED)
        statistics, weights = self.sums.statistics, self._weights_of(y, sampled)
        return best_alpha(statistics, self.expand(z), y, weights, is_all=is_all, near=near)

    def _choose_width(self, z: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> tuple[float, float]:
        """Return the width with the smallest leave-one-out error of fewer features and examples, and its alpha."""
        z, y, weights = self._sample(z, y, sample_weight, PILOT_EXAMPLES)
        typical, few = median_distance(self._mapped(z), self.seed), min(PILOT_FEATURES, self.random_features)
        trials = []
        for width in [factor * typical for factor in WIDTHS] if isinstance(self.width, str) else [self.width]:
            made: dict[str, Any] = {"random_features": few, "width": width, "seed": self.seed, "squares": self.squares}
            pilot = ClosedFormRadialHead(self.classes, self.num_features, **made)
            pilot.sums = replace(pilot.sums, class_weight=self.sums.class_weight)
            pilot._set(pilot.sums_of(z, y, weights))
            trials.append((*pilot._best_alpha(z, y, sample_weight=weights), width))
        _, alpha, width = min(trials)
        return width, alpha

    def _draw(self, width: float) -> RandomFeatures:
        return RandomFeatures.draw(self.num_features, self.random_features, width, self.seed)

    def _sums(self, z: Tensor, y: Tensor, like: ClassSums, sample_weight: Tensor | None = None) -> ClassSums:
        """Return the sums over checked examples, for the classes of other sums and with their weights."""
        k = len(like.classes)
        parts = (
            ClassStatistics.of(self.expand(rows), labels, k, like.class_weight, weights)
            for rows, labels, weights in self._chunks(z, y, sample_weight)
        )
        statistics = sum(parts, next(parts))
        return replace(like, statistics=statistics, hashes=RowHashes.of(z, y, k))

    def _outputs(self, o: Tensor, y: Tensor | None = None) -> Tensor:
        """Map features to outputs, in their precision and at least float32."""
        self._check(o, y)
        self._check_fitted()
        z = self._mapped(at_least_float32(o))
        weight, bias = Affine(self.weight, self.bias).to(z, self._cast)  # type: ignore[arg-type]
        return torch.addmm(bias, z, weight.T)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to a device; W stays float64, as outputs have the dtype of the features."""
        self._cast = {}
        super()._apply(lambda tensor: tensor.to(fn(tensor.new_empty(0)).device), recurse)  # type: ignore[no-untyped-call]
        return self

    def _check_fitted(self) -> None:
        super()._check_fitted()
        self.solve()

    def _check(self, o: Tensor, y: Tensor | None = None) -> None:
        check_rows("features", o, self.num_features)
        super()._check(o, y)

    def _examples(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return examples to learn from, checked, on the CPU."""
        self._check(z, y)
        check_features(z)
        return z.detach().cpu(), y.detach().cpu().long()

    def _chunks(self, z: Tensor, y: Tensor, weights: Tensor | None) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        rows = max(1, AT_ONCE // self.sums.statistics.num_features)
        parts = repeat(None) if weights is None else torch.split(checked_sample_weight(weights, len(z)), rows)
        return zip(torch.split(z, rows), torch.split(y, rows), parts, strict=False)

    def _sample(self, z: Tensor, y: Tensor, weights: Tensor | None, most: int) -> tuple[Tensor, Tensor, Tensor | None]:
        order = draw_rows(len(z), most, self.seed) if len(z) > most else slice(None)
        return z[order], y[order], None if weights is None else weights[order]

    def _weights_of(self, y: Tensor, sample_weight: Tensor | None) -> Tensor | None:
        """Return the weight of each example."""
        weights = None if self.sums.class_weight is None else self.sums.class_weight[y]
        return weights if sample_weight is None else sample_weight * (1.0 if weights is None else weights)

    def _check_weights_are_chosen(self) -> None:
        if isinstance(self.class_weight, str) and self.sums.class_weight is None and not self.is_fitted:
            raise OptionError(f"class_weight={self.class_weight!r} needs all labels at once: call fit, or give numbers")

    def _set(self, sums: ClassSums) -> Self:
        """Take other sums; W is solved again when it is needed."""
        if not sums.statistics.scatter.diagonal().isfinite().all():  # no product is above the larger square
            raise DataError("the squares of the features are too large for float64; scale the features first")
        self.sums, self.num_classes, self._num_examples = sums, len(sums.classes), int(sums.statistics.counts.sum())
        if isinstance(self.class_weight, tuple) and sums.class_weight is not None:
            self.class_weight = tuple(sums.class_weight.tolist())
        if self.layer.num_classes != self.num_classes:
            self.layer = RadialLayer(self.num_classes, self.layer.beta, self.scale)
        self.weight = self.bias = None
        self.fitted_alpha = None
        self._cast = {}
        return self
