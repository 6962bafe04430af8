"""Heads: outputs of a network to log-probabilities and an unknown-score, one paper per file."""

from openradial.heads.base import Head, Scorer
from openradial.heads.files import load_head, make_head, save_head

__all__ = ["Head", "Scorer", "load_head", "make_head", "save_head"]
