"""Trace a bundle and write it as one file, ONNX or torch.export; keep the file only if it agrees with PyTorch."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from openradial.classifier import OpenClassifier
from openradial.data.inputs import Inputs
from openradial.errors import ExportError, OptionError, require
from openradial.export.graph import INPUTS, RATE, Graph
from openradial.export.runtimes import OnnxModel, TorchModel, export_facts, first_line, quiet
from openradial.export.verification import Agreement, compare, random_inputs

LARGEST = 2**31 - 1  # bytes of one ONNX file
LONGEST = 2**30  # inputs or steps of a batch


def export(
    model: OpenClassifier, path: Path | str, to: Literal["onnx", "torch"] | None = None, check: Any = None
) -> Agreement:
    """Export a model; the format follows from the name of the file (``.onnx`` or ``.pt2``) unless ``to`` says it."""
    kind = to or {".onnx": "onnx", ".pt2": "torch"}.get(Path(path).suffix)
    if kind not in ("onnx", "torch"):
        raise OptionError(f"the file of an export ends in .onnx or .pt2, got {Path(path).name!r}; or pass to='onnx'")
    return (to_onnx if kind == "onnx" else to_torch)(model, path, check)


def to_onnx(bundle: OpenClassifier, path: Path | str, check: Any = None) -> Agreement:
    """Write a bundle as an ONNX file and return its agreement with PyTorch.

    The file takes ``inputs``, prepared ones such as uint8 pixels ``(b, c, h, w)``, and optionally
    ``false_reject_rate``. It returns ``log_probs``, ``nearest``, ``distance``, ``unknown_score``, ``p_value`` and
    ``decision``. Before it is kept, onnxruntime runs it on ``check``, raw or prepared inputs, or on random ones.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        require(package, "onnx", "exporting to ONNX")
    graph = Graph(bundle)
    return _write(bundle, path, check, lambda scratch: scratch.write_bytes(_onnx_bytes(graph, bundle)), OnnxModel)


def to_torch(bundle: OpenClassifier, path: Path | str, check: Any = None) -> Agreement:
    """Write a bundle as a ``.pt2`` file of torch.export and return its agreement with PyTorch; see :func:`to_onnx`.

    The program takes inputs and the rate as a float64 scalar, and returns the same outputs in the same order.
    """
    graph = Graph(bundle)
    facts = json.dumps(export_facts(bundle, graph.outputs))
    program = trace(graph, bundle)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it contains paths of this machine
    program.example_inputs = None

    def write(scratch: Path) -> None:
        with quiet(), scratch.open("wb") as stream:
            torch.export.save(program, stream, extra_files={"openradial.json": facts})

    return _write(bundle, path, check, write, TorchModel)


def trace(graph: Graph, bundle: OpenClassifier) -> torch.export.ExportedProgram:
    """Trace the graph of a bundle for batches of any size."""
    example = random_inputs(bundle.preprocessing, 3)
    try:
        with quiet(), torch.no_grad(), _ZerosForEmptySums():
            return torch.export.export(
                graph, (example, _default_rate(bundle)), dynamic_shapes=_dynamic(bundle.preprocessing), strict=False
            )
    except Exception as error:  # tracing can raise almost anything
        parts = ", ".join(type(part).__name__ for part in (bundle.head, *bundle.scorers))
        raise ExportError(
            f"the network {bundle.network[0]} with {parts} cannot be traced ({first_line(error)}); a network with "
            "data-dependent branches cannot be exported"
        ) from error


class _ZerosForEmptySums(TorchFunctionMode):
    """Replace sums over empty dimensions by zeros, because onnxruntime returns them with a wrong shape."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_sum = func is Tensor.sum and isinstance(args[0], Tensor) and args[0].ndim and args[0].shape[-1] == 0
        if is_sum and args[1:] == (-1,):
            shape = (*args[0].shape[:-1], *([1] if kwargs.get("keepdim") else []))
            return args[0].new_zeros(shape)
        return func(*args, **kwargs)


def _default_rate(bundle: OpenClassifier) -> Tensor:
    """Return the calibrated rate, or 0 without a rejector, where it has no meaning."""
    rejector = bundle.rejector
    return torch.tensor(0.0 if rejector is None else rejector.false_reject_rate, dtype=torch.float64)


def _dynamic(inputs: Inputs) -> dict[str, Any]:
    variable = [dim for dim, size in enumerate(inputs.shape, 1) if size is None]
    sizes = {dim: torch.export.Dim("t" if dim else "b", min=1, max=LONGEST) for dim in (0, *variable)}
    return {"inputs": sizes, "false_reject_rate": None}


def _onnx_bytes(graph: Graph, bundle: OpenClassifier) -> bytes:
    onnx, program = require("onnx", "onnx", "exporting to ONNX"), trace(graph, bundle)
    try:
        with quiet():
            exported = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=[INPUTS, RATE], output_names=list(graph.outputs)
            )
    except Exception as error:  # the exporter can raise almost anything
        reason = first_line(error)
        raise ExportError(f"the network {bundle.network[0]} cannot be converted to ONNX ({reason})") from error
    assert exported is not None
    model = exported.model_proto
    nodes = model.graph
    for part in (model, nodes, *nodes.node, *nodes.value_info, *nodes.input, *nodes.output, *nodes.initializer):
        part.ClearField("metadata_props")  # both contain paths of this machine, and are larger than the graph
        part.ClearField("doc_string")
    if bundle.rejector is None:  # the rate has no meaning
        for value in [each for each in model.graph.input if each.name == RATE]:
            model.graph.input.remove(value)
    else:  # an initializer of the same name makes the rate optional
        model.graph.initializer.append(onnx.numpy_helper.from_array(_default_rate(bundle).numpy(), RATE))
    onnx.helper.set_model_props(model, {"openradial": json.dumps(export_facts(bundle, graph.outputs))})
    if model.ByteSize() > LARGEST:
        raise ExportError(f"an ONNX file can have at most 2 GB, and this one would have {model.ByteSize():,} bytes")
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def _write(
    bundle: OpenClassifier,
    path: Path | str,
    check: Any,
    write: Callable[[Path], Any],
    load: type[OnnxModel | TorchModel],
) -> Agreement:
    """Write to a temporary file, verify it, and only then rename it."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise OptionError(f"expected a file to export to, got the folder {path}; name a file in it")
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(scratch)
        agreement = compare(bundle, load(scratch).predict, check)
        scratch.replace(path)
    except OSError as error:
        raise ExportError(f"the export cannot be written to {path} ({error})") from error
    finally:
        scratch.unlink(missing_ok=True)
    return agreement
