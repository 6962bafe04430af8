"""Cross-fitting: scores of known examples under a classifier that has not seen them, without a held-out part.

Examples are divided into folds, up to 5,000 of them. For each fold, the sums over its examples are subtracted, the head
is solved again, and the fold is scored; Mahalanobis distances work alike, and neighbours are searched among the other
examples. So every example trains the final classifier, and those in folds have scores as new inputs would get them.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import torch
from torch import Tensor, nn

from openradial.data.progress import current
from openradial.fitting.calibration import LabelledBatches
from openradial.heads import ClosedFormRadialHead
from openradial.heads.radial import projection
from openradial.nn import hidden_layers
from openradial.recipe import FAR_LAYERS, OUTPUTS, REFERENCES, Recipe
from openradial.scorers import MahalanobisScorer, NeighbourScorer, Scorer
from openradial.scorers.base import draw_rows, unit_length
from openradial.scorers.statistics import ClassStatistics
from openradial.training import limited_threads, make_outliers

FOLDS = 10
MOST = 5_000  # examples in folds: a rate of 5 % is then known to about ± 0.6 %
OUTSIDE = -1  # the fold of other examples, which every fit has
ONE_THREAD_BELOW = 1e9  # products of numbers in a fit
ROUNDING = 1e-6  # of lengths in float32
WIDE = 1_000  # features beyond which solving again takes long


@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Features ``(n, d)``, labels ``(n,)``, the group of each example, which no fold separates, and its weight.

    ``layers`` are features of other layers of an encoder by name, ``(n, e)``, see ``FAR_LAYERS`` of the recipe.
    """

    z: Tensor
    y: Tensor
    groups: Tensor | None = None
    weights: Tensor | None = None  # of the examples in the solution of the head; nothing else uses them
    layers: Mapping[str, Tensor] = field(default_factory=dict)
    workers: int | None = None  # threads that score folds; None for those of torch
    _statistics: dict[tuple[str, bool], ClassStatistics] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    @torch.no_grad()
    def of(cls, net: nn.Module, batches: LabelledBatches, groups: Tensor | None = None) -> Self:
        """Compute the features of all examples."""
        net.eval()
        names = [name for name in FAR_LAYERS if hasattr(net, name)]
        parts = ((*hidden_layers(net, x, (OUTPUTS, *names)).values(), y) for x, y in batches)
        z, *others, y = (torch.cat(column) for column in zip(*parts, strict=True))
        return cls(z, y, groups, layers=dict(zip(names, others, strict=True)))

    def rows(self, layer: str, normalise: bool = False) -> tuple[Tensor, Tensor]:
        """Return the features of a layer, of length 1 if asked, and labels: another layer has one class."""
        z, y = (self.layers[layer], 0 * self.y) if layer in self.layers else (self.z, self.y)
        return unit_length(z) if normalise else z, y

    def statistics(self, layer: str, normalise: bool) -> ClassStatistics:
        """Return the statistics of :meth:`rows`, which are computed once."""
        if (key := (layer, normalise)) not in self._statistics:
            self._statistics[key] = ClassStatistics.of(*self.rows(*key), int(self.y.max()) + 1)
        return self._statistics[key]

    def statistics_beside(self, head: ClosedFormRadialHead, layer: str, normalise: bool) -> ClassStatistics:
        """Return :meth:`statistics`, or those of a head that is fitted to these examples where they are the same."""
        is_plain = not head.squares and head.features is None
        is_plain = is_plain and head.sums.class_weight is None and self.weights is None
        if is_plain and layer not in self.layers and (self._has_unit_length or not normalise):
            return head.sums.statistics
        return self.statistics(layer, normalise)

    @cached_property
    def _has_unit_length(self) -> bool:
        return bool((torch.linalg.vector_norm(self.z, dim=1, dtype=torch.float64) - 1).abs().max() < ROUNDING)

    def threads(self, recipe: Recipe) -> int:
        """Return the number of threads for a fit: one for small data, where others wait more than they compute."""
        width = recipe.random_features or self.z.shape[1]
        return 1 if len(self.z) * width**2 < ONE_THREAD_BELOW else torch.get_num_threads()


@dataclass(frozen=True)
class OutOfFold:
    """Results for the examples in folds, each under the classifier that was fitted without its fold."""

    rows: Tensor  # (n,) which examples they are, ascending
    folds: Tensor  # (n,) the fold of each of them
    labels: Tensor  # (n,)
    nearest: Tensor  # (n,)
    distances: Tensor  # (n, k) to the prototypes
    scores: Tensor  # (n, m) of the head and of each other scorer
    projections: Tensor  # (n,) of the outputs, see openradial.heads.RadialHead
    outlier_distances: Tensor  # (o, k) of outliers made from the examples of each fold


def assign_folds(y: Tensor, count: int = FOLDS, groups: Tensor | None = None, seed: int = 0) -> Tensor:
    """Divide examples with labels ``(n,)`` into folds of about the same classes, ``(n,)``; groups stay together.

    Of more than 5,000 examples some are in no fold: -1.

    >>> assign_folds(torch.tensor([0, 0, 1, 1]), 2).bincount()
    tensor([2, 2])
    """
    members = torch.arange(len(y)) if groups is None else torch.unique(groups, return_inverse=True)[1]
    num_groups = int(members.max()) + 1
    first = torch.full((num_groups,), len(y)).scatter_reduce(0, members, torch.arange(len(y)), "amin")
    order = torch.randperm(num_groups, generator=torch.Generator().manual_seed(seed))
    order = order[y[first[order]].argsort(stable=True)]  # by class, at random within a class
    parts = max(1, round(len(y) / MOST))  # every so many groups, one is in a fold
    index = torch.arange(num_groups)
    folds = torch.empty(num_groups, dtype=torch.int64)
    folds[order] = torch.where(index % parts == 0, index // parts % min(count, num_groups), OUTSIDE)
    return folds[members]


@torch.no_grad()
def cross_fit(
    head: ClosedFormRadialHead,
    scorers: Sequence[tuple[str, Scorer]],
    known: FeatureSet,
    folds: Tensor | Sequence[Tensor],
    outliers: Sequence[str] = (),
    seed: int = 0,
) -> OutOfFold:
    """Score examples under the head, which was fitted on all of them, and scorers of layers without their fold.

    ``folds`` has the fold of each example, or a mask ``(n,)`` per fold; these may overlap.
    ``outliers`` are kinds of outliers to make from each fold, see :func:`openradial.training.make_outliers`.
    """
    z, y, weights = known.z, known.y, known.weights
    others = [_without(head, scorer, layer, known, seed) for layer, scorer in scorers]
    masks = [folds == fold for fold in range(int(folds.max()) + 1)] if isinstance(folds, Tensor) else folds
    made = [z[:0] for _ in masks]
    for fold, here in enumerate(masks if outliers else ()):  # one after the other: they share the random numbers
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + fold)
            made[fold] = make_outliers(z[here], y[here], outliers)

    @torch.no_grad()  # each thread has its own mode
    def score_fold(fold: int) -> tuple[Tensor, ...]:
        here = masks[fold]
        rows = here.nonzero().squeeze(1)
        x, labels = z[rows], y[rows]
        without = head.without(head.sums_of(x, labels, None if weights is None else weights[rows]))
        o = without.outputs(x)
        result = without.compute_from(o)
        assert result.distances is not None
        columns = [result.unknown_score, *(score(here, without.sums.statistics) for score in others)]
        scores = torch.stack([each.double() for each in columns], 1)
        projections = projection(o.double(), head.scale)
        far = without.distances(made[fold])
        return rows, torch.full_like(rows, fold), result.labels, result.distances, scores, projections, far

    workers = known.workers or torch.get_num_threads()  # a fold each uses cores better than all of them for one fold
    with limited_threads(1), ThreadPoolExecutor(workers) as pool:
        parts, size = [], (z.shape[1], head.sums.statistics.num_features)
        has_search = any(isinstance(scorer, NeighbourScorer) for _, scorer in scorers)
        for part in (map if workers == 1 else pool.map)(score_fold, range(len(masks))):
            parts.append(part)
            current().advance(work_of(len(part[0]), *size, references=has_search * min(len(z), REFERENCES)))
    rows, *columns, outside = (torch.cat(column) for column in zip(*parts, strict=True))
    back = rows.argsort(stable=True)
    rows, folds, nearest, distances, scores, projections = rows[back], *(column[back] for column in columns)
    return OutOfFold(rows, folds, y[rows], nearest, distances, scores, projections, outside)


def _without(
    head: ClosedFormRadialHead, scorer: Scorer, layer: str, known: FeatureSet, seed: int
) -> Callable[[Tensor, ClassStatistics], Tensor]:
    """Return what scores the examples of a mask by the scorer without them; it takes the head's statistics, too."""
    settings, kind, z = scorer.settings(), type(scorer), known.rows(layer)[0]
    if isinstance(scorer, MahalanobisScorer) and scorer.shrinkage != "ledoit-wolf":
        total = known.statistics_beside(head, layer, scorer.normalise)
        is_same = total is head.sums.statistics
        rows, y = known.rows(layer, scorer.normalise and not is_same)

        def without(here: Tensor, rest: ClassStatistics) -> Tensor:
            rest = rest if is_same else total - ClassStatistics.of(rows[here], y[here], total.num_classes)
            return MahalanobisScorer(**settings).fit_statistics(rest, once=True).unknown_score(z[here])

        return without
    kept = reference_rows(len(z), seed) if isinstance(scorer, NeighbourScorer) else torch.arange(len(z))
    if isinstance(scorer, NeighbourScorer) and not scorer.relative:
        search = NeighbourScorer(**settings).fit(z[kept])
        return lambda here, _: search.unknown_score(z[here], here[kept])

    def score(here: Tensor, _: ClassStatistics) -> Tensor:
        rest = kept[~here[kept]]
        return kind(**settings).fit(z[rest], known.y[rest]).unknown_score(z[here])

    return score


def work_of(rows: float, d: int, width: int, *, references: int = 0, solutions: int = 1) -> float:
    """Return about how many multiplications sums, solutions of the head and scores of rows of d features take."""
    return rows * (width**2 + d**2 + references * d) + solutions * width**3 + 3 * d**3


def reference_rows(count: int, seed: int = 0) -> Tensor:
    """Return which of the examples neighbours are searched among: all, or as many as the recipe keeps."""
    return draw_rows(count, REFERENCES, seed).sort().values
