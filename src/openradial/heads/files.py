"""Save and load heads and scorers: tensors and JSON, nothing that could run code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from openradial import scorers
from openradial.errors import DataError, nearest
from openradial.files import Failure, read_tensors, write_tensors
from openradial.heads.cac import CACHead
from openradial.heads.closed_form import ClosedFormRadialHead
from openradial.heads.doc import DOCHead
from openradial.heads.openmax import OpenMaxHead
from openradial.heads.radial import RadialHead
from openradial.heads.softmax import SoftmaxHead
from openradial.scorers import Scorer

FORMAT = 1
KINDS: tuple[type[Scorer], ...] = (CACHead, ClosedFormRadialHead, DOCHead, OpenMaxHead, RadialHead, SoftmaxHead)
KINDS += (scorers.Combination, scorers.MahalanobisScorer, scorers.MixtureScorer)
KINDS += (scorers.NeighbourScorer, scorers.NormScorer, scorers.ParzenScorer)
HEADS = {kind.__name__: kind for kind in KINDS}


def save_head(head: Scorer, path: Path | str) -> None:
    """Write a head or scorer to a safetensors file with its settings in the header; the file is never partial."""
    if type(head).__name__ not in HEADS:
        raise DataError(f"only heads and scorers of openradial can be saved, got {type(head).__name__}")
    facts = {"head": type(head).__name__, "settings": head.settings()}
    try:
        write_tensors(Path(path), head.tensors(), {"format": str(FORMAT), "facts": json.dumps(facts)})
    except Failure as error:
        raise DataError(f"the head cannot be written to {path} ({error}); the previous file is unchanged") from error


def load_head(path: Path | str) -> Scorer:
    """Load a head or scorer that :func:`save_head` wrote; no code is loaded."""
    if Path(path).is_dir():
        raise DataError(f"{path} is a folder; name the file in it")
    try:
        tensors, header = read_tensors(Path(path))
        facts = json.loads(header["facts"]) if header.get("format") == str(FORMAT) else None
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except (*Failure, KeyError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a complete head file ({error}); use another copy") from error
    if not isinstance(facts, dict):
        raise DataError(f"{path} must be a head file of format {FORMAT}, got format {header.get('format')!r}")
    if "head" not in facts:
        raise DataError(f"{path} is not a head file, perhaps the checkpoint of a training run")
    return make_head(str(facts["head"]), facts.get("settings", {}), tensors)


def make_head(name: str, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Scorer:
    """Build a head or scorer from its name, settings and fitted tensors."""
    if name not in HEADS:
        raise DataError(f"there is no head {name!r}{nearest(name, list(HEADS))}")
    try:
        return HEADS[name].from_parts(settings, tensors)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"the settings of a {name} do not fit this version of openradial ({error})") from error
