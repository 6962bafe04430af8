"""Export a model to one file that runs without openradial; the file is verified against PyTorch before it is kept."""

from openradial.export.verification import Agreement
from openradial.export.writers import ExportedModel, OnnxModel, TorchModel, export, to_onnx, to_torch, tokenizer_files

__all__ = ["Agreement", "ExportedModel", "OnnxModel", "TorchModel", "export", "to_onnx", "to_torch"]
__all__ += ["tokenizer_files"]
