"""Write a bundle as one file: ONNX, or a program of torch.export. Nothing is kept that does not agree with PyTorch."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from openradial.classifier import OpenClassifier
from openradial.errors import ExportError, OptionError, require
from openradial.export.checking import Agreement, compare
from openradial.export.graph import INPUTS, RATE, Graph
from openradial.export.models import ExportedModel, OnnxModel, TorchModel, export_facts
from openradial.export.tracing import default_rate, first_line, quiet, trace

LARGEST = 2**31 - 1  # bytes of one ONNX file


def export(
    model: OpenClassifier, path: Path | str, to: Literal["onnx", "torch"] | None = None, check: Any = None
) -> Agreement:
    """Export a model; the format follows from the name of the file (``.onnx`` or ``.pt2``) unless ``to`` says it."""
    kind = to or {".onnx": "onnx", ".pt2": "torch"}.get(Path(path).suffix)
    if kind not in ("onnx", "torch"):
        raise OptionError(f"the file of an export ends in .onnx or .pt2, got {Path(path).name!r}; or pass to='onnx'")
    return (to_onnx if kind == "onnx" else to_torch)(model, path, check)


def to_onnx(bundle: OpenClassifier, path: Path | str, check: Any = None) -> Agreement:
    """Write a bundle as an ONNX file and say how far it is from PyTorch.

    The file takes ``inputs``, prepared ones such as uint8 pixels ``(b, c, h, w)``, and, if wished,
    ``false_reject_rate``. It gives ``log_probs``, ``nearest``, ``distance``, ``unknown_score``, ``p_value`` and
    ``decision``. It is run by onnxruntime on ``check``, raw or prepared inputs, or on noise, before it is kept.
    """
    for package in ("onnx", "onnxscript", "onnxruntime"):
        require(package, "onnx", "exporting to ONNX")
    graph = Graph(bundle)
    return _kept(path, lambda scratch: scratch.write_bytes(_onnx_bytes(graph, bundle)), OnnxModel, bundle, check)


def to_torch(bundle: OpenClassifier, path: Path | str, check: Any = None) -> Agreement:
    """Write a bundle as a ``.pt2`` file of torch.export and say how far it is from PyTorch; see :func:`to_onnx`.

    Its program takes both, inputs and the rate as a float64 scalar, and gives the same outputs in the same order.
    """
    graph = Graph(bundle)
    facts = json.dumps(export_facts(bundle, graph.outputs))
    program = trace(graph, bundle)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names folders of this machine
    program.example_inputs = None

    def write(scratch: Path) -> None:
        with quiet(), scratch.open("wb") as stream:
            torch.export.save(program, stream, extra_files={"openradial.json": facts})

    return _kept(path, write, TorchModel, bundle, check)


def _onnx_bytes(graph: Graph, bundle: OpenClassifier) -> bytes:
    onnx, program = require("onnx", "onnx", "exporting to ONNX"), trace(graph, bundle)
    try:
        with quiet():
            made = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=[INPUTS, RATE], output_names=list(graph.outputs)
            )
    except Exception as error:  # an exporter may stumble over anything
        raise ExportError(f"the network {bundle.network[0]} has no form in ONNX ({first_line(error)})") from error
    assert made is not None
    model = made.model_proto
    _strip(model)
    _set_default_rate(onnx, model, bundle)
    onnx.helper.set_model_props(model, {"openradial": json.dumps(export_facts(bundle, graph.outputs))})
    if model.ByteSize() > LARGEST:
        raise ExportError(f"an ONNX file holds at most 2 GB, and this one would have {model.ByteSize():,} bytes")
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def _strip(model: Any) -> None:
    """Take out notes on the source code, which name folders of this machine and are larger than the graph."""
    graph = model.graph
    for thing in (model, graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        thing.ClearField("metadata_props")
        thing.ClearField("doc_string")


def _set_default_rate(onnx: Any, model: Any, bundle: OpenClassifier) -> None:
    """Give the rate a value for those who do not: an initializer of the same name as the input."""
    inputs = model.graph.input
    if bundle.rejector is None:
        for place in [place for place, value in enumerate(inputs) if value.name == RATE]:
            del inputs[place]
        return
    default = onnx.numpy_helper.from_array(default_rate(bundle).numpy(), RATE)
    model.graph.initializer.append(default)


def _kept(
    path: Path | str,
    write: Callable[[Path], Any],
    opened: Callable[[Path], ExportedModel],
    bundle: OpenClassifier,
    check: Any,
) -> Agreement:
    """Write a file beside, compare what it says, and only then let it take its place."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise OptionError(f"an export is a file, and {path} is a folder; name a file in it")
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(scratch)
        agreement = compare(bundle, opened(scratch).predict, check)
        scratch.replace(path)
    except OSError as error:
        raise ExportError(f"the export cannot be written to {path} ({error})") from error
    finally:
        scratch.unlink(missing_ok=True)
    return agreement
