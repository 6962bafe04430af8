"""Trace a bundle and write it as one file, ONNX or torch.export, kept only if it agrees with PyTorch; run such files.

onnxruntime or torch runs them; they predict like the bundle that they were exported from.
"""

import json
import logging
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.overrides import TorchFunctionMode

from openradial.bundle.loading import make_inputs
from openradial.classifier import OpenClassifier, Predictions, check_rate_has_rejector
from openradial.conformal.inputs import check_rate
from openradial.data.inputs import Inputs, TextInputs, TokenInputs
from openradial.data.vocabulary import NUMBER, PADDING, UNKNOWN, WORD
from openradial.errors import ExportError, OptionError, first_line, require
from openradial.export.graph import INPUTS, RATE, Graph, GraphRejector
from openradial.export.verification import Agreement, compare, random_inputs, text_inputs
from openradial.files import writable, write_text

FORMAT = "openradial export 1"
LARGEST = 2**31 - 1  # bytes of one ONNX file
LONGEST = 2**30  # inputs or steps of a batch
Arrays = Mapping[str, NDArray[Any]]


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
        message = f"the network {bundle.network[0]} with {parts} cannot be traced ({first_line(error)})"
        raise ExportError(f"{message}; a network with data-dependent branches cannot be exported") from error


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
    tokens, columns = text_inputs(inputs)
    longest = tokens.max_tokens if isinstance(tokens, TokenInputs) else LONGEST  # an encoder has so many positions
    bounds = {
        dim: (columns + min(columns + 1, 2), columns + longest) if dim else (1, LONGEST) for dim in (0, *variable)
    }
    sizes = {dim: torch.export.Dim("t" if dim else "b", min=a, max=b) for dim, (a, b) in bounds.items()}
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
    load: type["OnnxModel | TorchModel"],
) -> Agreement:
    """Write to a temporary file, verify it, and only then rename it."""
    path = writable(path)
    if path.is_dir():
        raise OptionError(f"expected a file to export to, got the folder {path}; name a file in it")
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(scratch)
        agreement = compare(bundle, load(scratch).predict, check)
        for file, text in tokenizer_files(bundle.preprocessing, path).items():
            write_text(file, text)
        scratch.replace(path)
    except OSError as error:
        raise ExportError(f"the export cannot be written to {path} ({error})") from error
    finally:
        scratch.unlink(missing_ok=True)
    return agreement


def tokenizer_files(inputs: Inputs, path: Path) -> dict[Path, str]:
    """Return the files beside an export that say how texts become tokens, with their contents; none without texts."""
    texts, columns = text_inputs(inputs)
    if isinstance(texts, TokenInputs):
        tokenizer = texts._tokenizer.to_str()
        facts = {"kind": "tokenizers", "add_special_tokens": texts.special, "max_tokens": texts.max_tokens}
    elif isinstance(texts, TextInputs):
        tokenizer = json.dumps({word: i for i, word in enumerate(texts.words, 2)}, ensure_ascii=False)
        facts = {"kind": "vocabulary", "pattern": WORD.pattern, "number": NUMBER, "max_tokens": texts.max_words}
        facts |= {"lower_case": True, "unknown": UNKNOWN}
    else:
        return {}
    tokens, about = path.with_suffix(".tokenizer.json"), path.with_suffix(".texts.json")
    facts |= {"tokenizer": tokens.name, "strip": True, "padding": PADDING}
    facts |= {"columns_before": columns} if columns else {}
    facts["without_tokens"] = texts.prepare([""])[0].tolist()
    return {tokens: tokenizer, about: json.dumps(facts, indent=1, ensure_ascii=False) + "\n"}


def export_facts(bundle: OpenClassifier, outputs: tuple[str, ...]) -> dict[str, Any]:
    """Return the metadata that a graph needs to be used without its bundle."""
    rejector = bundle.rejector
    return {
        "format": FORMAT,
        "classes": list(bundle.classes),
        "preprocessing": {"kind": bundle.preprocessing.kind, **bundle.preprocessing.record()},
        "outputs": list(outputs),
        "false_reject_rate": None if rejector is None else rejector.false_reject_rate,
        "smallest_rate": None if rejector is None else 1 / (1 + int(GraphRejector(rejector).total.min())),
        "versions": dict(bundle.versions),
    }


class ExportedModel(ABC):
    """An exported graph; :meth:`predict` works like that of :class:`openradial.bundle.OpenClassifier`."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.preprocessing: Inputs = make_inputs(facts["preprocessing"])
        self.classes = tuple(facts["classes"])
        self.outputs = tuple(facts["outputs"])
        self.false_reject_rate: float | None = facts["false_reject_rate"]
        self.smallest_rate: float | None = facts["smallest_rate"]

    def predict(self, raw: Any, false_reject_rate: float | None = None) -> Predictions:
        """Predict raw inputs, or prepared inputs given as a tensor, in bounded memory."""
        rate = self._rate(false_reject_rate)
        if isinstance(raw, Tensor):
            self.preprocessing.check(raw)
        parts = [self._predictions(self._run(x, rate)) for x in self.preprocessing.batches(raw) if len(x)]
        if parts:
            return Predictions.concatenate(parts)
        types = {"nearest": np.int64, "decision": np.int64, "p_value": np.float64}
        empty: Arrays = {name: np.empty(0, types.get(name, np.float32)) for name in self.outputs}
        return self._predictions({**empty, "log_probs": np.empty((0, len(self.classes)), np.float32)})

    @abstractmethod
    def _run(self, x: Tensor, rate: float | None) -> Arrays:
        """Return all outputs of the graph by name."""

    def _rate(self, requested: float | None) -> float | None:
        check_rate_has_rejector(requested, self.smallest_rate is not None)
        if requested is None or self.smallest_rate is None:
            return None
        rate = check_rate("false_reject_rate", requested)
        if rate < self.smallest_rate:
            raise OptionError(
                f"false_reject_rate must be at least {self.smallest_rate:g}, the smallest rate that this model was "
                f"calibrated for, got {rate:g}; calibrate with more data"
            )
        return rate

    def _predictions(self, outputs: Arrays) -> Predictions:
        names = ("decision", "nearest", "log_probs", "distance", "unknown_score", "p_value")
        return Predictions.from_arrays(self.classes, *map(outputs.get, names))  # type: ignore[arg-type]


class OnnxModel(ExportedModel):
    """An ONNX file written by :func:`openradial.export.to_onnx`, run by onnxruntime."""

    def __init__(self, path: Path | str) -> None:
        runtime = require("onnxruntime", "onnx", "running an ONNX file")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        file = str(_existing(path))
        try:
            self._session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
            super().__init__(json.loads(self._session.get_modelmeta().custom_metadata_map["openradial"]))
        except Exception as error:  # onnxruntime has its own exception types
            raise _unusable(str(path), "onnxruntime", error) from error

    def _run(self, x: Tensor, rate: float | None) -> Arrays:
        given = {INPUTS: x.cpu().numpy()}
        if rate is not None:
            given[RATE] = np.array(rate)  # the default is in the file
        try:
            return dict(zip(self.outputs, self._session.run(list(self.outputs), given), strict=True))
        except Exception as error:
            raise ExportError(f"onnxruntime cannot run the exported graph ({first_line(error)})") from error


class TorchModel(ExportedModel):
    """A ``.pt2`` file written by :func:`openradial.export.to_torch`, run by torch without openradial's networks."""

    def __init__(self, path: Path | str) -> None:
        facts, file = {"openradial.json": ""}, str(_existing(path))
        try:
            with quiet():
                program = torch.export.load(file, extra_files=facts)
            super().__init__(json.loads(facts["openradial.json"]))
        except Exception as error:  # a damaged archive can raise almost anything
            raise _unusable(str(path), "torch", error) from error
        self._module = program.module()

    @torch.no_grad()
    def _run(self, x: Tensor, rate: float | None) -> Arrays:
        given = torch.tensor(rate or self.false_reject_rate or 0.0, dtype=torch.float64)
        outputs = self._module(x.cpu(), given)
        return {name: value.numpy() for name, value in zip(self.outputs, outputs, strict=True)}


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings and logs of tracers; the result is verified instead."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _existing(path: Path | str) -> Path:
    path = Path(path).expanduser()
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise ExportError(f"expected an exported file, but {path} {problem}")
    return path


def _unusable(name: str, runtime: str, error: Exception) -> ExportError:
    return ExportError(f"{name} cannot be run by {runtime} as an export of openradial ({first_line(error)})")
