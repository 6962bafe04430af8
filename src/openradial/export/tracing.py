"""Trace a bundle's graph by torch.export; what cannot be traced is refused in one sentence."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from openradial.classifier import OpenClassifier
from openradial.data.inputs import Inputs
from openradial.errors import ExportError
from openradial.export.checking import made_up
from openradial.export.graph import Graph

MOST = 2**30  # inputs or steps of a batch


def trace(graph: Graph, bundle: OpenClassifier) -> torch.export.ExportedProgram:
    """The graph of a bundle with any number of inputs in a batch."""
    example = made_up(bundle.preprocessing, 3)
    try:
        with quiet(), torch.no_grad(), EmptySums():
            return torch.export.export(
                graph, (example, default_rate(bundle)), dynamic_shapes=_dynamic(bundle.preprocessing), strict=False
            )
    except Exception as error:  # a tracer may stumble over anything
        raise ExportError(
            f"the network {bundle.network[0]} with {_parts(bundle)} cannot be traced ({first_line(error)}); a graph holds "
            "no choice that depends on values"
        ) from error


def default_rate(bundle: OpenClassifier) -> Tensor:
    """The rate that the rejector was calibrated for; without one it has no meaning."""
    rejector = bundle.rejector
    return torch.tensor(0.0 if rejector is None else rejector.false_reject_rate, dtype=torch.float64)


def first_line(error: BaseException) -> str:
    """What an error says, in one short line."""
    text = (str(error).strip() or type(error).__name__).partition("\n")[0]
    return text if len(text) <= 200 else f"{text[:197]}..."


@contextmanager
def quiet() -> Iterator[None]:
    """Tracers speak of what they try; the result is checked instead."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


class EmptySums(TorchFunctionMode):
    """Sums over no number are written as zeros: onnxruntime gets their shape wrong."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_sum = func is Tensor.sum and isinstance(args[0], Tensor) and args[0].ndim and args[0].shape[-1] == 0
        if is_sum and args[1:] == (-1,):
            shape = (*args[0].shape[:-1], *([1] if kwargs.get("keepdim") else []))
            return args[0].new_zeros(shape)
        return func(*args, **kwargs)


def _dynamic(inputs: Inputs) -> dict[str, Any]:
    dims = {0: torch.export.Dim("b", min=1, max=MOST)}
    steps = {
        place: torch.export.Dim("t", min=1, max=MOST) for place, size in enumerate(inputs.shape, 1) if size is None
    }
    return {"inputs": {**dims, **steps}, "false_reject_rate": None}


def _parts(bundle: OpenClassifier) -> str:
    kinds = [type(bundle.head).__name__, *(type(scorer).__name__ for scorer in bundle.scorers)]
    return ", ".join(kinds)
