"""Give a network that somebody else wrote a radial head."""

from typing import Any, Literal

from torch import Tensor, nn

from openradial.errors import HeadError, check_choice
from openradial.functional.norms import MetricName
from openradial.functional.probabilities import Cutoff
from openradial.nn.layers import RadialLinear
from openradial.nn.prototypes import Prototypes
from openradial.nn.search import (
    Classifier,
    affine_names,
    classifier_that_ran,
    find_classifier,
    is_affine,
    named_classifier,
    part,
)

WRAPPERS = (
    "DataParallel",
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    "FSDPModule",
    "OptimizedModule",
    "ScriptModule",
)


def replace_head(
    model: nn.Module,
    num_classes: int,
    beta: float = 1.0,
    scale: float = 1.0,
    *,
    name: str | None = None,
    example: Any = None,
    returns: Literal["log_probs", "outputs"] = "log_probs",
    cutoff: Cutoff = None,
    metric: MetricName = "euclidean",
    axis_scale: Tensor | None = None,
    prototypes: Prototypes | Tensor | None = None,
) -> nn.Module:
    """Replace the classifier of ``model`` by a radial one, in place, and return the model.

    The classifier is the affine layer that makes the result; softmax modules after it are taken out. It is found by
    tracing ``forward`` or, where that is not possible, by its place and name; by watching one forward pass of
    ``example``; or it is named by ``name``. Make the optimiser afterwards: the new head has new parameters, trainable
    also in a frozen network.

    Args:
        model: any module that ends in an ``nn.Linear`` or a 1x1 convolution.
        num_classes: number of known classes.
        name: path of the classifier, for instance ``"classifier.6"``.
        example: an input batch, a tuple of positional or a dict of keyword arguments, to run through the model once,
            in evaluation mode and without gradients.
        returns: what the model gives afterwards: ``"log_probs"`` (train with ``nn.NLLLoss``) or ``"outputs"`` (train
            with :class:`RadialLoss`).

    The other arguments are those of :class:`RadialLinear`. A :class:`~openradial.errors.HeadError` leaves the model as
    it was.

    >>> import torch
    >>> model = replace_head(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 10), nn.Softmax(-1)), 3)
    >>> model(torch.zeros(2, 4)).shape, model[3]
    (torch.Size([2, 3]), Identity())
    """
    check_choice("returns", returns, ("log_probs", "outputs"))
    _refuse_wrappers(model)
    if name is not None:
        found = named_classifier(model, name)
    elif example is not None:
        found = classifier_that_ran(model, example)
    else:
        found = find_classifier(model)
    old = part(model, found.name)
    _check_usable(old, found, returns)
    affine = old.affine if isinstance(old, RadialLinear) else old
    assert isinstance(affine, (nn.Linear, nn.Conv2d))
    head = RadialLinear(
        affine.in_channels if isinstance(affine, nn.Conv2d) else affine.in_features,
        num_classes,
        beta,
        scale,
        bias=affine.bias is not None,
        cutoff=cutoff,
        metric=metric,
        axis_scale=axis_scale,
        prototypes=prototypes,
        device=affine.weight.device,
        dtype=affine.weight.dtype,
    )
    new = head if returns == "log_probs" else _affine_like(affine, head)
    for softmax in found.softmaxes:
        _put(model, part(model, softmax), nn.Identity())
    return _put(model, old, new.train(old.training))


def _refuse_wrappers(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise HeadError(f"expected an nn.Module, got {type(model).__name__}; pass the network itself")
    kinds = [kind.__name__ for kind in type(model).__mro__]
    if wrapper := next((kind for kind in kinds if kind in WRAPPERS), None):
        raise HeadError(f"the model is wrapped in {wrapper}; replace the head first and wrap the model afterwards")


def _check_usable(module: nn.Module, found: Classifier, returns: str) -> None:
    where = repr(found.name) if found.name else "the model itself"
    if not is_affine(module):
        raise HeadError(
            f"{where} is a {type(module).__name__}, expected nn.Linear or a 1x1 nn.Conv2d; pass another name=, "
            f"its affine layers are: {affine_names(module, found.name)}"
        )
    if isinstance(module, nn.LazyLinear | nn.LazyConv2d):
        raise HeadError(f"{where} is lazy and does not know its inputs yet; run one batch through the model first")
    if returns == "log_probs" and (found.pooled or isinstance(module, nn.Conv2d)):
        raise HeadError(
            f"the outputs of {where} are pooled or rearranged later, so log-probabilities cannot be made in its place; "
            "pass returns='outputs' and train with RadialLoss"
        )


def _affine_like(old: nn.Linear | nn.Conv2d, head: RadialLinear) -> nn.Module:
    """A layer to the outputs of ``head``, of the kind of the old one."""
    if isinstance(old, nn.Linear):
        return head.affine
    return nn.Conv2d(
        old.in_channels,
        head.affine.out_features,
        kernel_size=1,
        stride=(old.stride[0], old.stride[1]),
        padding=old.padding if isinstance(old.padding, str) else (old.padding[0], old.padding[1]),
        bias=old.bias is not None,
        device=old.weight.device,
        dtype=old.weight.dtype,
    )


def _put(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """Put ``new`` in every place of ``old``: a layer may be known by several names."""
    if model is old:
        return new
    places = [(parent, name) for parent in model.modules() for name, child in parent._modules.items() if child is old]
    for parent, name in places:
        setattr(parent, name, new)
    return model
