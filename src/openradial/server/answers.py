"""The answers to several requests at once, by the bundle's own prediction; what is broken costs itself alone."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from openradial.bundle import Bundle
from openradial.errors import OpenRadialError
from openradial.server.items import prepared
from openradial.server.limits import Limits
from openradial.server.refusals import RequestError

Answer = dict[str, Any] | RequestError  # a row of Predictions.rows(), or why there is none
Request = tuple[Sequence[Any], float | None]  # values and the false-reject rate
Place = tuple[int, int]  # of a value: its request, and where in that request


def answers(bundle: Bundle, requests: Sequence[Request], limits: Limits) -> list[list[Answer] | Exception]:
    """For each request one answer per value, or the error that it met as a whole."""
    try:
        return list(_together(bundle, requests, limits))
    except Exception as error:
        if len(requests) > 1:  # whose fault it is shows when each is alone
            return [answers(bundle, [request], limits)[0] for request in requests]
        return [RequestError(422, str(error)) if isinstance(error, OpenRadialError) else error]


def _together(bundle: Bundle, requests: Sequence[Request], limits: Limits) -> list[list[Answer]]:
    found: list[list[Any]] = [[None] * len(values) for values, _ in requests]
    groups: dict[tuple[float | None, torch.Size], list[tuple[Place, Tensor]]] = {}
    for i, (values, rate) in enumerate(requests):
        for j, value in enumerate(values):
            x = prepared(bundle, value, limits)
            if isinstance(x, RequestError):
                found[i][j] = x
            else:  # inputs of one shape: nothing is padded for the sake of a stranger
                groups.setdefault((rate, x.shape), []).append(((i, j), x))
    for (rate, _), members in groups.items():
        rows = bundle.predict(torch.cat([x for _, x in members]), rate).rows()
        for ((i, j), _), row in zip(members, rows, strict=True):
            found[i][j] = row
    return found
