"""Replace the classifier of any network."""

from typing import Any

from torch import Tensor, nn

from openradial.errors import HeadError, check_count
from openradial.nn.layers import RadialLinear, as_prototypes
from openradial.nn.prototypes import Prototypes
from openradial.nn.search import (
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
    *,
    name: str | None = None,
    example: Any = None,
    prototypes: Prototypes | Tensor | None = None,
) -> nn.Module:
    """Replace the classifier of ``model`` so that it returns outputs for a radial loss, in place; return the model.

    The classifier is the affine layer that makes the result; softmax modules after it are removed. It is found by
    tracing ``forward`` or, where that is not possible, by position and name; by observing one forward pass of
    ``example``; or it is named by ``name``. The new layer has new parameters, trainable also in a frozen network: make
    the optimiser afterwards. Train with :class:`RadialLoss`; :class:`RadialLayer` computes probabilities from outputs.

    Args:
        model: any module that ends in an ``nn.Linear`` or a 1x1 convolution.
        num_classes: number of known classes.
        name: path of the classifier, for instance ``"classifier.6"``.
        example: an input batch, a tuple of positional or a dict of keyword arguments, to run through the model once,
            in evaluation mode and without gradients.
        prototypes: those of the loss, if they need another number of outputs than classes.

    A :class:`~openradial.errors.HeadError` leaves the model as it was.

    >>> import torch
    >>> model = replace_head(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 10), nn.Softmax(-1)), 3)
    >>> model(torch.zeros(2, 4)).shape, model[3]
    (torch.Size([2, 3]), Identity())
    """
    check_count("num_classes", num_classes)
    points = as_prototypes(prototypes, num_classes=num_classes)
    _refuse_wrappers(model)
    if name is not None:
        classifier = named_classifier(model, name)
    elif example is not None:
        classifier = classifier_that_ran(model, example)
    else:
        classifier = find_classifier(model)
    old = part(model, classifier.name)
    new = _affine_like(old, classifier.name, num_classes if points is None else points.num_outputs)
    for softmax in classifier.softmaxes:
        _put(model, part(model, softmax), nn.Identity())
    return _put(model, old, new.train(old.training))


def _refuse_wrappers(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise HeadError(f"expected an nn.Module, got {type(model).__name__}; pass the network itself")
    kinds = [kind.__name__ for kind in type(model).__mro__]
    if wrapper := next((kind for kind in kinds if kind in WRAPPERS), None):
        raise HeadError(f"the model is wrapped in {wrapper}; replace the head first and wrap the model afterwards")


def _affine_like(module: nn.Module, name: str, outputs: int) -> nn.Module:
    """Return a new affine layer of the same kind with that many outputs, or raise if there is none."""
    where = repr(name) if name else "the model itself"
    if not is_affine(module):
        raise HeadError(
            f"{where} is a {type(module).__name__}, expected nn.Linear or a 1x1 nn.Conv2d; pass another name=, "
            f"its affine layers are: {affine_names(module, name)}"
        )
    if isinstance(module, nn.LazyLinear | nn.LazyConv2d):
        raise HeadError(f"{where} is lazy and does not know its inputs yet; run one batch through the model first")
    old = module.affine if isinstance(module, RadialLinear) else module
    assert isinstance(old, (nn.Linear, nn.Conv2d))
    bias, device, dtype = old.bias is not None, old.weight.device, old.weight.dtype
    if isinstance(old, nn.Linear):
        return nn.Linear(old.in_features, outputs, bias, device, dtype)
    return nn.Conv2d(
        old.in_channels,
        outputs,
        kernel_size=1,
        stride=(old.stride[0], old.stride[1]),
        padding=old.padding if isinstance(old.padding, str) else (old.padding[0], old.padding[1]),
        bias=bias,
        device=device,
        dtype=dtype,
    )


def _put(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """Put ``new`` wherever ``old`` is: a layer may have several names."""
    if model is old:
        return new
    names = [(parent, name) for parent in model.modules() for name, child in parent._modules.items() if child is old]
    for parent, name in names:
        setattr(parent, name, new)
    return model
