"""How raw inputs (files, rows, texts, arrays) become the tensors that a network was trained on."""

from openradial.data.inputs.base import Inputs
from openradial.data.inputs.images import ImageInputs
from openradial.data.inputs.rows import PointInputs, SequenceInputs, TensorInputs
from openradial.data.inputs.tables import TableInputs
from openradial.data.inputs.texts import TextInputs, TokenInputs

__all__ = ["ImageInputs", "Inputs", "PointInputs", "SequenceInputs", "TableInputs", "TensorInputs", "TextInputs"]
__all__ += ["TokenInputs"]
