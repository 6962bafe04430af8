"""The weight of an example of each class."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from openradial.errors import OptionError, check_choice, check_positive

ClassWeight = Literal["balanced", "sqrt", "auto"] | Sequence[float] | None


def checked_class_weight(
    class_weight: ClassWeight, num_classes: int
) -> Literal["balanced", "sqrt", "auto"] | tuple[float, ...] | None:
    """Return class weights as they are kept; raise unless there is a positive number for each class."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        check_choice("class_weight", class_weight, ("balanced", "sqrt", "auto"))
        return class_weight
    given = class_weight.tolist() if hasattr(class_weight, "tolist") else class_weight  # of an array or a tensor
    if not isinstance(given, Sequence) or len(given) != num_classes:
        came = len(given) if isinstance(given, Sequence) else type(class_weight).__name__
        raise OptionError(f"class_weight must be None, 'balanced', 'sqrt', 'auto' or {num_classes} numbers, got {came}")
    for weight in given:
        check_positive("class_weight", weight)
    return tuple(map(float, given))


def given_weights(class_weight: ClassWeight) -> Tensor | None:
    """Return weights that are given as numbers, ``(k,)``."""
    is_rule = class_weight is None or isinstance(class_weight, str)
    return None if is_rule else torch.tensor(class_weight, dtype=torch.float64)


def weights_to_try(class_weight: ClassWeight, counts: Tensor) -> list[Tensor | None]:
    """Return the weights to choose from, for classes with so many examples, ``(k,)``."""
    if class_weight == "auto":
        return [None, balanced_weights(counts)]
    return [balanced_weights(counts, class_weight) if isinstance(class_weight, str) else given_weights(class_weight)]


def balanced_weights(counts: Tensor, rule: object = "balanced") -> Tensor:
    """Return weights with which every class counts alike, ``(k,)``, or their roots; 1 for a class without examples."""
    weights = counts.sum() / ((counts > 0).sum() * counts.clamp_min(1).double())
    return torch.where(counts > 0, weights.sqrt() if rule == "sqrt" else weights, 1.0)
