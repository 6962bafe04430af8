"""Heads: outputs of a network to log-probabilities and an unknown-score, one paper per file."""

from openradial.heads.base import Head, HeadOutput
from openradial.heads.cac import CACHead
from openradial.heads.closed_form import ClosedFormRadialHead
from openradial.heads.doc import DOCHead
from openradial.heads.files import load_head, make_head, save_head
from openradial.heads.openmax import OpenMaxHead
from openradial.heads.radial import RadialHead
from openradial.heads.softmax import SoftmaxHead

__all__ = ["CACHead", "ClosedFormRadialHead", "DOCHead", "Head", "HeadOutput", "OpenMaxHead", "RadialHead"]
__all__ += ["SoftmaxHead", "load_head", "make_head", "save_head"]
