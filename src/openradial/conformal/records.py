"""Calibrations as plain JSON values and as tensors; both come back bit for bit."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openradial.conformal.calibration import Calibration
from openradial.conformal.conformal import OrderStatistics
from openradial.errors import DataError

FORMAT = 1
DAMAGE = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)  # what bad contents may raise


def to_record(kind: str, settings: Mapping[str, Any], calibration: Calibration) -> dict[str, Any]:
    """Dicts, lists, strings and numbers. Python's JSON writes a float so that the same float is read."""
    groups = [_group_record(group) for group in calibration.groups]
    classes = None if calibration.classes is None else calibration.classes.tolist()
    return {
        "format": FORMAT,
        "kind": kind,
        "settings": dict(settings),
        "classes": classes,
        "width": calibration.width,
        "groups": groups,
    }


def _group_record(group: OrderStatistics) -> dict[str, Any]:
    ranks = {} if group.is_whole else {"ranks": group.below[1:].tolist()}
    return {"examples": group.total, "scores": group.values.tolist(), **ranks}


def from_record(kind: str, record: Mapping[str, Any]) -> tuple[dict[str, Any], Calibration]:
    """The settings and the calibration of a record."""
    _check_facts(kind, record)
    try:
        groups = [_group(group["scores"], group.get("ranks"), group["examples"]) for group in record["groups"]]
        return dict(record["settings"]), _calibration(groups, record["classes"], record["width"])
    except DAMAGE as error:
        raise _damaged(kind, error) from error


def to_tensors(kind: str, settings: Mapping[str, Any], calibration: Calibration) -> dict[str, Tensor]:
    """The same as :func:`to_record`; what is no array is JSON, as bytes in the tensor ``facts``."""
    facts = {**to_record(kind, settings, replace(calibration, groups=()))}
    return {
        "facts": torch.tensor(list(json.dumps(facts).encode()), dtype=torch.uint8),
        "scores": torch.cat([group.values for group in calibration.groups]),
        "ranks": torch.cat([group.below[1:] for group in calibration.groups]),
        "kept": torch.tensor([len(group.values) for group in calibration.groups]),
    }


def from_tensors(kind: str, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], Calibration]:
    """The settings and the calibration of tensors."""
    try:
        facts = json.loads(bytes(tensors["facts"].tolist()))
    except DAMAGE as error:
        raise _damaged(kind, error) from error
    _check_facts(kind, facts)
    try:
        if tensors["scores"].dtype != torch.float64:
            raise TypeError(f"its scores must be float64 as they were written, and are {tensors['scores'].dtype}")
        kept = tensors["kept"].tolist()
        pairs = zip(*(torch.split(tensors[name].cpu(), kept) for name in ("scores", "ranks")), strict=True)
        groups = [_group(scores, ranks, int(ranks[-1])) for scores, ranks in pairs]
        return dict(facts["settings"]), _calibration(groups, facts["classes"], facts["width"])
    except DAMAGE as error:
        raise _damaged(kind, error) from error


def _check_facts(kind: str, facts: Any) -> None:
    if not isinstance(facts, Mapping):
        raise DataError(f"a {kind} must be read from a dict, got {type(facts).__name__}")
    if facts.get("format") != FORMAT:
        raise DataError(
            f"a {kind} must be of format {FORMAT}, got {facts.get('format')!r}; "
            "read it with the version of openradial that wrote it, and fit again"
        )
    if facts.get("kind") != kind:
        raise DataError(f"a {kind} must be read from a {kind}, got {facts.get('kind')!r}; use the class of that name")


def _group(scores: Any, ranks: Any, total: int) -> OrderStatistics:
    values = torch.as_tensor(scores, dtype=torch.float64)
    counted = torch.arange(1, len(values) + 1) if ranks is None else torch.as_tensor(ranks, dtype=torch.int64)
    if values.ndim != 1 or not len(values) or counted.shape != values.shape or counted[-1] != total:
        raise ValueError("its scores are not as many as it says")
    below = torch.cat([counted.new_zeros(1), counted])
    if not values.isfinite().all() or (values.diff() < 0).any() or (below.diff() <= 0).any():
        raise ValueError("its scores are not finite and in rising order")
    return OrderStatistics(values, below)


def _calibration(groups: list[OrderStatistics], classes: Any, width: Any) -> Calibration:
    if classes is None:
        fits, names = len(groups) == 1, None
    else:
        names = np.asarray(classes)
        fits = {type(name) for name in classes} in ({int}, {str}) and names.shape == (len(groups),)
        fits = fits and bool((names[1:] > names[:-1]).all())
    if not fits or not (width is None or isinstance(width, int)):
        raise ValueError("its classes do not fit its scores")
    return Calibration(tuple(groups), names, width)


def _damaged(kind: str, error: Exception) -> DataError:
    reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return DataError(f"this is not a whole {kind}: {reason}; take another copy of it, or fit again")
