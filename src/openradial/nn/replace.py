"""Replace the classifier of any network: find it, or raise with the reason why it cannot be found."""

import copy
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from openradial.errors import HeadError, check_count
from openradial.nn.hidden import evaluating
from openradial.nn.layers import RadialLinear, as_prototypes
from openradial.nn.prototypes import Prototypes

WRAPPERS = ("DataParallel", "FSDPModule", "OptimizedModule", "ScriptModule")  # how the names of such classes end
USUAL_NAMES = ("fc", "classifier", "head", "heads", "_fc", "last_linear", "linear", "logits", "output")
NORMALISERS = (nn.Softmax, nn.LogSoftmax, nn.Softmax2d)
HARMLESS = (nn.Identity, nn.Flatten, nn.Unflatten)
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
POOLS = (nn.AdaptiveAvgPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AvgPool1d)
RESHAPES = {"flatten", "squeeze", "unsqueeze", "view", "reshape", "contiguous", "getitem", "float", "to", "type_as"}
POOLINGS = {"mean", "adaptive_avg_pool2d", "avg_pool2d", "adaptive_avg_pool1d", "avg_pool1d"}


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
    if not isinstance(model, nn.Module):
        raise HeadError(f"expected an nn.Module, got {type(model).__name__}; pass the network itself")
    kinds = [kind.__name__ for kind in type(model).__mro__]
    if wrapper := next((kind for kind in kinds if kind.endswith(WRAPPERS)), None):
        raise HeadError(f"the model is wrapped in {wrapper}; replace the head first and wrap the model afterwards")
    if name is not None:
        classifier = _named_classifier(model, name)
    elif example is not None:
        classifier = _classifier_that_ran(model, example)
    else:
        classifier = _find_classifier(model)
    old = model.get_submodule(classifier.name)
    new = _affine_like(old, classifier.name, num_classes if points is None else points.num_outputs)
    for softmax in classifier.softmaxes:
        _put(model, model.get_submodule(softmax), nn.Identity())
    return _put(model, old, new.train(old.training))


def _affine_like(module: nn.Module, name: str, outputs: int) -> nn.Module:
    """Return a new affine layer of the same kind with that many outputs, or raise if there is none."""
    where = repr(name) if name else "the model itself"
    if not _is_affine(module):
        message = f"{where} is a {type(module).__name__}, expected nn.Linear or a 1x1 nn.Conv2d"
        raise HeadError(f"{message}; pass another name=, its affine layers are: {_affine_names(module, name)}")
    if isinstance(module, nn.LazyLinear | nn.LazyConv2d):
        raise HeadError(f"{where} is lazy and does not know its inputs yet; run one batch through the model first")
    old = module.affine if isinstance(module, RadialLinear) else module
    assert isinstance(old, (nn.Linear, nn.Conv2d))
    options: dict[str, Any] = {"bias": old.bias is not None, "device": old.weight.device, "dtype": old.weight.dtype}
    if isinstance(old, nn.Linear):
        return nn.Linear(old.in_features, outputs, **options)
    return nn.Conv2d(old.in_channels, outputs, 1, old.stride, old.padding, **options)  # type: ignore[arg-type]


def _put(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """Put ``new`` wherever ``old`` is: a layer may have several names."""
    if model is old:
        return new
    names = [(parent, name) for parent in model.modules() for name, child in parent._modules.items() if child is old]
    for parent, name in names:
        setattr(parent, name, new)
    return model


class Classifier(NamedTuple):
    """The name of the classifier, and of the softmax modules after it."""

    name: str
    softmaxes: tuple[str, ...] = ()


def _find_classifier(model: nn.Module) -> Classifier:
    """Follow the computation back from its result if ``torch.fx`` can trace it, else go by position and name."""
    if _is_affine(model):
        return Classifier("")
    if not _has_parameters(model):
        raise HeadError(
            "the model has no parameters, so it has no classifier to replace; add a linear layer at its end"
        )
    graph = _trace(model)
    return _by_position(model) if graph is None else _by_flow(model, graph)


def _named_classifier(model: nn.Module, name: str) -> Classifier:
    """Return the layer that the user names, with the softmax modules that certainly follow it."""
    try:
        model.get_submodule(name)
    except AttributeError:
        raise HeadError(
            f"the model has no layer named {name!r}; its affine layers are: {_affine_names(model)}"
        ) from None
    try:
        classifier = _find_classifier(model)
    except HeadError:  # the user knows better
        return Classifier(name)
    return classifier if classifier.name == name else Classifier(name)


def _trace(model: nn.Module) -> fx.Graph | None:
    """Return the computation as a graph, None if it depends on values. Trace a copy: forward may store things."""
    optional = {
        name: parameter.default
        for name, parameter in inspect.signature(model.forward).parameters.items()
        if parameter.default is not parameter.empty
    }
    try:
        clone = copy.deepcopy(model, {id(p): p for p in model.parameters()})
        with torch.random.fork_rng(devices=[]):
            return _Tracer().trace(clone, optional)
    except Exception:
        return None


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _is_affine(m) or super().is_leaf_module(m, module_qualified_name)


def _by_flow(model: nn.Module, graph: fx.Graph) -> Classifier:
    """Return the affine layer that makes the result, or one tensor of it."""
    *_, end = graph.nodes
    classifiers: dict[str, Classifier] = {}
    problems: list[HeadError] = []
    for node in _result_nodes(end):
        try:
            one = _follow_back(model, node, graph)
        except HeadError as problem:
            problems.append(problem)
        else:
            # a model may return both its outputs and their softmax: then the softmax stays
            classifiers[one.name] = min(classifiers.get(one.name, one), one, key=lambda each: len(each.softmaxes))
    if not classifiers:
        raise problems[0] if problems else HeadError("the model returns no tensor, so it has no classifier; pass name=")
    name = next(iter(classifiers)) if len(classifiers) == 1 else _by_usual_name(model)
    if name not in classifiers:
        names = ", ".join(map(repr, classifiers))
        raise HeadError(f"the model returns the results of several affine layers, {names}; choose one with name=")
    return classifiers[name]


def _result_nodes(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the tensors in a result: a tensor, or a tuple, dict or dataclass of them."""
    for inner in node.all_input_nodes:
        if inner.op == "call_function" and inspect.isclass(inner.target):
            yield from _result_nodes(inner)
        else:
            yield inner


def _follow_back(model: nn.Module, node: fx.Node, graph: fx.Graph) -> Classifier:
    softmaxes, refused = [], None
    while not (node.op == "call_module" and _is_affine(model.get_submodule(str(node.target)))):
        if not node.all_input_nodes:
            names = _affine_names(model)
            raise HeadError(
                f"no affine layer lies between the model's input and its result; pass name= (one of {names})"
            )
        if node.op == "call_module":
            name, module = str(node.target), model.get_submodule(str(node.target))
            if _has_parameters(module):
                raise _no_affine(model, name, module)
            if isinstance(module, NORMALISERS) and _calls(graph, name) == 1:
                softmaxes.append(name)
            elif not isinstance(module, HARMLESS + POOLS):
                refused = f"{name!r}, a {type(module).__name__}"
        else:
            operation = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "?")
            if operation not in RESHAPES | POOLINGS:
                refused = f"{operation!r}, a computation in forward"
        node = node.all_input_nodes[0]
    name = str(node.target)
    if refused:
        raise _followed(name, refused)
    if _calls(graph, name) > 1:
        raise HeadError(f"{name!r} runs more than once in forward, so it is not a classifier; pass name=")
    return Classifier(name, tuple(softmaxes))


def _calls(graph: fx.Graph, name: str) -> int:
    return sum(node.op == "call_module" and node.target == name for node in graph.nodes)


def _by_position(model: nn.Module) -> Classifier:
    """Return the last layer with parameters, unless a layer with a usual name contradicts."""
    parts = _leaves(model)
    last = max(i for i, (_, m) in enumerate(parts) if _has_parameters(m))
    classifier, module = parts[last]
    named = _by_usual_name(model)
    if named is not None and named != classifier:
        message = f"the classifier may be {named!r} (by its name) or {classifier!r} (by its position)"
        raise HeadError(f"{message}; choose with name=, or pass example=, an input to run through the model")
    if not _is_affine(module):
        raise _no_affine(model, classifier, module)
    parent = classifier.rpartition(".")[0]
    in_sequence = isinstance(model.get_submodule(parent), nn.Sequential)
    softmaxes = []
    for name, after in parts[last + 1 :]:
        if isinstance(after, NORMALISERS) and in_sequence and name.rpartition(".")[0] == parent:
            softmaxes.append(name)
        elif not isinstance(after, HARMLESS + POOLS + DROPOUTS):
            raise HeadError(
                f"{name!r}, a {type(after).__name__}, is registered after the classifier {classifier!r} and may change "
                f"its outputs; pass example=, an input to run through the model, or name={classifier!r} if it does not"
            )
    return Classifier(classifier, tuple(softmaxes))


def _by_usual_name(model: nn.Module) -> str | None:
    """Return the affine layer at the end of the one child with a usual name."""
    ends = []
    for usual in USUAL_NAMES:
        child = getattr(model, usual, None)
        if isinstance(child, nn.Module):
            ends += [leaf for leaf, m in _leaves(child, usual) if _is_affine(m)][-1:]
    return ends[0] if len(ends) == 1 else None


def _classifier_that_ran(model: nn.Module, example: Any) -> Classifier:
    """Return the affine layer that ran last on an example, with what ran after it."""
    ran, result = _run(model, example)
    last = max((i for i, (_, m, _) in enumerate(ran) if _is_affine(m)), default=-1)
    if last < 0:
        raise HeadError("no affine layer ran on the example, so there is no classifier to replace; pass name=")
    classifier = ran[last][0]
    times = [name for name, _, _ in ran]
    if times.count(classifier) > 1:
        raise HeadError(f"{classifier!r} ran more than once on the example, so it is not a classifier; pass name=")
    softmaxes = []
    for name, after, _ in ran[last + 1 :]:
        if isinstance(after, NORMALISERS) and times.count(name) == 1:
            softmaxes.append(name)
        elif not isinstance(after, HARMLESS + POOLS):
            raise _followed(classifier, f"{name!r}, a {type(after).__name__}")
    if not any(_same_numbers(tensor, ran[-1][2]) for tensor in _tensors(result)):
        raise HeadError(
            f"after {ran[-1][0]!r} the model's forward still computes something (a softmax?), but a radial layer needs "
            "the affine outputs; remove it, or pass name= if it does no harm"
        )
    return Classifier(classifier, tuple(softmaxes))


def _run(model: nn.Module, example: Any) -> tuple[list[tuple[str, nn.Module, Any]], Any]:
    """Run a forward pass in evaluation mode that leaves no trace; return the leaves with their results, and its own."""
    ran: list[tuple[str, nn.Module, Any]] = []
    args, kwargs = (example, {}) if isinstance(example, tuple) else ((example,), {})
    if isinstance(example, Mapping):
        args, kwargs = (), dict(example)
    hooks = [
        m.register_forward_hook(lambda m, _, result, name=name: ran.append((name, m, result)))
        for name, m in _leaves(model)
    ]
    try:
        with evaluating(model), torch.no_grad():
            return ran, model(*args, **kwargs)
    except Exception as error:
        raise HeadError(
            f"the example does not run through the model ({type(error).__name__}: {error}); pass an input batch as "
            "forward takes it: a tensor, a tuple of positional or a dict of keyword arguments"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        yield from _tensors(list(result.values()))
    elif isinstance(result, (tuple, list)):
        yield from (tensor for value in result for tensor in _tensors(value))
    elif is_dataclass(result):
        yield from _tensors([getattr(result, field.name) for field in fields(result)])


def _same_numbers(a: Tensor, b: Any) -> bool:
    if not isinstance(b, Tensor) or a.numel() != b.numel():
        return False
    a, b = a.reshape(-1), b.reshape(-1)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _followed(classifier: str, what: str) -> HeadError:
    return HeadError(
        f"after the classifier {classifier!r} comes {what}, but a radial layer needs the affine outputs as they are; "
        "remove it, or pass name= if it does no harm or another layer is the classifier"
    )


def _no_affine(model: nn.Module, name: str, module: nn.Module) -> HeadError:
    return HeadError(
        f"the last layer with parameters is {name!r}, a {type(module).__name__}, not an affine layer; pass name= (one "
        f"of {_affine_names(model)}) or example=, an input to run through the model"
    )


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _is_affine(module: nn.Module) -> bool:
    """Return whether the module can be a classifier: a linear layer, a 1x1 convolution or a RadialLinear."""
    if isinstance(module, nn.Conv2d):
        return set(module.kernel_size) == {1} and module.groups == 1
    return isinstance(module, (nn.Linear, RadialLinear))


def _leaves(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """Return modules without children, each once, as registered; attention and affine layers count as one."""
    if isinstance(module, nn.MultiheadAttention) or _is_affine(module) or not any(True for _ in module.children()):
        return [(prefix, module)]
    unique: dict[nn.Module, str] = {}
    for name, child in module.named_children():
        for path, leaf in _leaves(child, f"{prefix}.{name}" if prefix else name):
            unique.setdefault(leaf, path)
    return [(name, leaf) for leaf, name in unique.items()]


def _affine_names(model: nn.Module, prefix: str = "") -> str:
    """Return the names of the affine layers of a model, for a message."""
    return ", ".join(repr(name) for name, module in _leaves(model, prefix) if _is_affine(module)) or "none"
