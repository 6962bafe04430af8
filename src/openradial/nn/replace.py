"""Give a network that somebody else wrote a radial head."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from openradial.errors import HeadError, check_choice
from openradial.functional.norms import MetricName
from openradial.functional.probabilities import Cutoff
from openradial.nn.layers import RadialLinear
from openradial.prototypes import Prototypes

USUAL_NAMES = ("fc", "classifier", "head", "heads", "_fc", "last_linear", "linear", "logits", "output")
WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule", "ScriptModule")
NORMALISERS = (nn.Softmax, nn.LogSoftmax, nn.Softmax2d)
HARMLESS = (nn.Identity, nn.Flatten, nn.Unflatten)
POOLS = (nn.AdaptiveAvgPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AvgPool1d)


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

    The classifier is the affine layer at the end; softmax modules after it are taken out. It is found by its place and
    name, or by watching one forward pass of ``example`` (an input, or a tuple of inputs), or it is named by ``name``.

    Args:
        model: any module that ends in an ``nn.Linear`` or a 1x1 convolution.
        num_classes: number of known classes.
        name: path of the classifier, for instance ``"classifier.6"``.
        example: an input batch to run through the model once, without gradients.
        returns: what the model gives afterwards: ``"log_probs"`` (train with ``nn.NLLLoss``) or ``"outputs"`` (train with
            :class:`RadialLoss`).

    The other arguments are those of :class:`RadialLinear`.

    >>> model = replace_head(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 10), nn.Softmax(-1)), 3)
    >>> model(torch.zeros(2, 4)).shape, model[3]
    (torch.Size([2, 3]), Identity())
    """
    check_choice("returns", returns, ("log_probs", "outputs"))
    _refuse_wrappers(model)
    if name is not None:
        found, followers = _by_name(model, name), []
    elif example is not None:
        found, followers = _by_running(model, example)
    else:
        found, followers = _by_place(model)
    old = _part(model, found)
    _check_usable(old, found, returns)
    inputs = old.affine.in_features if isinstance(old, RadialLinear) else _inputs(old)
    like = next(old.parameters())
    has_bias = (old.affine if isinstance(old, RadialLinear) else old).bias is not None
    new: nn.Module = RadialLinear(
        inputs,
        num_classes,
        beta,
        scale,
        bias=has_bias,
        cutoff=cutoff,
        metric=metric,
        axis_scale=axis_scale,
        prototypes=prototypes,
        device=like.device,
        dtype=like.dtype,
    )
    new.layer.to(like.device)
    if returns == "outputs":
        outputs = new.affine.out_features
        new = new.affine if isinstance(old, (nn.Linear, RadialLinear)) else _convolution_like(old, outputs)
    for follower in followers:
        _set_part(model, follower, nn.Identity())
    return _set_part(model, found, new.train(old.training))


def _refuse_wrappers(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise HeadError(f"expected an nn.Module, got {type(model).__name__}; pass the network itself")
    kinds = {kind.__name__ for kind in type(model).__mro__}
    if found := kinds.intersection(WRAPPERS):
        raise HeadError(f"the model is wrapped in {found.pop()}; replace the head first and wrap the model afterwards")


def _by_name(model: nn.Module, name: str) -> str:
    try:
        model.get_submodule(name)
    except AttributeError:
        raise HeadError(f"the model has no part named {name!r}; its affine layers are: {_affine_names(model)}") from None
    return name


def _by_place(model: nn.Module) -> tuple[str, list[str]]:
    """The last part with parameters, unless a part with a usual name contradicts."""
    leaves = _leaves(model)
    last = max((i for i, (_, m) in enumerate(leaves) if any(True for _ in m.parameters())), default=-1)
    if last < 0:
        raise HeadError("the model has no parameters, so it has no classifier to replace; add a linear layer at its end")
    found, module = leaves[last]
    named = _by_usual_name(model)
    if named is not None and named != found:
        raise HeadError(
            f"the classifier may be {named!r} (by its name) or {found!r} (by its place); say which with name=, or pass "
            "example=, an input to run through the model"
        )
    if not _is_affine(module):
        raise HeadError(
            f"the last part with parameters is {found!r}, a {type(module).__name__} and no affine layer; pass name= (one of "
            f"{_affine_names(model)}) or example=, an input to run through the model"
        )
    return found, _check_followers(found, leaves[last + 1 :])


def _by_usual_name(model: nn.Module) -> str | None:
    """The affine layer at the end of the one child with a usual name."""
    ends = []
    for usual in USUAL_NAMES:
        child = getattr(model, usual, None)
        if isinstance(child, nn.Module):
            affine = [leaf for leaf, m in _leaves(child, usual) if _is_affine(m)]
            ends += affine[-1:]
    return ends[0] if len(ends) == 1 else None


def _by_running(model: nn.Module, example: Any) -> tuple[str, list[str]]:
    """The affine layer that ran last, with what ran after it."""
    ran: list[tuple[str, nn.Module, Any]] = []
    hooks = [
        m.register_forward_hook(lambda m, _, result, n=n: ran.append((n, m, result))) for n, m in _leaves(model)
    ]
    was_training = model.training
    try:
        with torch.no_grad():
            result = model.eval()(*(example if isinstance(example, tuple) else (example,)))
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    last = max((i for i, (_, m, _) in enumerate(ran) if _is_affine(m)), default=-1)
    if last < 0:
        raise HeadError("no affine layer ran on the example, so there is no classifier to replace; pass name=")
    if sum(n == ran[last][0] for n, _, _ in ran) > 1:
        raise HeadError(f"{ran[last][0]!r} ran more than once on the example, so it is no classifier; pass name=")
    followers = _check_followers(ran[last][0], [(n, m) for n, m, _ in ran[last + 1 :]])
    end = ran[-1][2]
    if isinstance(result, Tensor) and isinstance(end, Tensor) and not _same_numbers(result, end):
        raise HeadError(
            f"after {ran[-1][0]!r} the model's forward still computes something (a softmax?), but a radial layer needs the "
            "affine outputs; take that out, or pass name= if it does no harm"
        )
    return ran[last][0], followers


def _same_numbers(a: Tensor, b: Tensor) -> bool:
    return a.numel() == b.numel() and bool(torch.equal(a.reshape(-1), b.reshape(-1)))


def _check_followers(found: str, after: list[tuple[str, nn.Module]]) -> list[str]:
    """Names of the softmax modules to take out; anything else that changes numbers is refused."""
    for name, module in after:
        if not isinstance(module, NORMALISERS + HARMLESS + POOLS):
            raise HeadError(
                f"after the classifier {found!r} comes {name!r}, a {type(module).__name__}, but a radial layer needs the affine "
                "outputs as they are; take it out, or pass name= if another layer is the classifier"
            )
    return [name for name, module in after if isinstance(module, NORMALISERS)]


def _check_usable(module: nn.Module, name: str, returns: str) -> None:
    where = repr(name) if name else "the model itself"
    if not (_is_affine(module) or isinstance(module, RadialLinear)):
        raise HeadError(f"{where} is a {type(module).__name__}, expected nn.Linear or a 1x1 nn.Conv2d; pass another name=")
    if isinstance(module, nn.LazyLinear | nn.LazyConv2d):
        raise HeadError(f"{where} is lazy and does not know its inputs yet; run one batch through the model first")
    if isinstance(module, nn.Conv2d) and returns == "log_probs":
        raise HeadError(
            f"{where} is a convolution whose outputs are pooled later, so log-probabilities cannot be made in its place; "
            "pass returns='outputs' and train with RadialLoss"
        )


def _leaves(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """Parts without parts, in the order of registration; attention and our own head count as one part."""
    if isinstance(module, (nn.MultiheadAttention, RadialLinear)) or not any(True for _ in module.children()):
        return [(prefix, module)]
    named = ((f"{prefix}.{n}" if prefix else n, m) for n, m in module.named_children())
    return [leaf for n, m in named for leaf in _leaves(m, n)]


def _is_affine(module: nn.Module) -> bool:
    if isinstance(module, nn.Conv2d):
        return set(module.kernel_size) == {1} and module.groups == 1
    return isinstance(module, (nn.Linear, RadialLinear))


def _affine_names(model: nn.Module) -> str:
    return ", ".join(repr(n) for n, m in _leaves(model) if _is_affine(m)) or "none"


def _inputs(module: nn.Module) -> int:
    return module.in_channels if isinstance(module, nn.Conv2d) else int(module.in_features)  # type: ignore[arg-type]


def _convolution_like(old: nn.Module, outputs: int) -> nn.Conv2d:
    assert isinstance(old, nn.Conv2d)
    like = old.weight
    return nn.Conv2d(old.in_channels, outputs, 1, old.stride, bias=old.bias is not None, device=like.device, dtype=like.dtype)


def _part(model: nn.Module, name: str) -> nn.Module:
    return model.get_submodule(name) if name else model


def _set_part(model: nn.Module, name: str, new: nn.Module) -> nn.Module:
    if not name:
        return new
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, new)
    return model
