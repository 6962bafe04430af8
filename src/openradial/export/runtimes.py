"""Run exported files with onnxruntime or torch; they predict like the bundle they were exported from."""

import json
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openradial.bundle.loading import make_inputs
from openradial.classifier import OpenClassifier, Predictions, check_rate_has_rejector
from openradial.conformal.inputs import check_rate
from openradial.data.inputs import Inputs
from openradial.errors import ExportError, OptionError, require
from openradial.export.graph import INPUTS, RATE, GraphRejector

FORMAT = "openradial export 1"
Arrays = Mapping[str, NDArray[Any]]


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
        prepared = (self.preprocessing.ready(chunk) for chunk in self.preprocessing.chunks(raw))
        parts = [self._predictions(self._run(x, rate)) for x in prepared if len(x)]
        return Predictions.concatenate(parts) if parts else self._predictions(self._no_outputs())

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
        return Predictions.from_arrays(
            self.classes,
            labels=outputs["decision"],
            nearest=outputs["nearest"],
            log_probs=outputs["log_probs"],
            distance=outputs.get("distance"),
            unknown_score=outputs["unknown_score"],
            p_values=outputs.get("p_value"),
        )

    def _no_outputs(self) -> Arrays:
        """Return the outputs for an empty batch."""
        types = {"nearest": np.int64, "decision": np.int64, "p_value": np.float64}
        empty = {name: np.empty(0, types.get(name, np.float32)) for name in self.outputs}
        return {**empty, "log_probs": np.empty((0, len(self.classes)), np.float32)}


class OnnxModel(ExportedModel):
    """An ONNX file written by :func:`openradial.export.to_onnx`, run by onnxruntime."""

    def __init__(self, model: Path | str | bytes, *, threads: int = 0) -> None:
        runtime = require("onnxruntime", "onnx", "running an ONNX file")
        options = runtime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, threads
        given = model if isinstance(model, bytes) else str(_existing(model))
        try:
            self._session = runtime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
            super().__init__(json.loads(self._session.get_modelmeta().custom_metadata_map["openradial"]))
        except Exception as error:  # onnxruntime has its own exception types
            name = "the exported graph" if isinstance(model, bytes) else str(model)
            raise _unusable(name, "onnxruntime", error) from error

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
        facts = {"openradial.json": ""}
        try:
            with quiet():
                program = torch.export.load(str(_existing(path)), extra_files=facts)
            super().__init__(json.loads(facts["openradial.json"]))
        except ExportError:
            raise
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


def first_line(error: BaseException) -> str:
    """Return the message of an error as one short line."""
    text = (str(error).strip() or type(error).__name__).partition("\n")[0]
    return text if len(text) <= 200 else f"{text[:197]}..."


def _existing(path: Path | str) -> Path:
    path = Path(path).expanduser()
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise ExportError(f"expected an exported file, but {path} {problem}")
    return path


def _unusable(name: str, runtime: str, error: Exception) -> ExportError:
    why = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)
    return ExportError(f"{name} cannot be run by {runtime} as an export of openradial ({why})")
