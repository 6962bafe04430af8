"""Exports: a classifier as one file that runs without openradial, checked against PyTorch before it is kept."""

from openradial.export.checking import Agreement
from openradial.export.models import ExportedModel, OnnxModel, TorchModel
from openradial.export.writing import export, to_onnx, to_torch

__all__ = ["Agreement", "ExportedModel", "OnnxModel", "TorchModel", "export", "to_onnx", "to_torch"]
