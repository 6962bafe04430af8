"""Routes of the drawing: pixels in, what both classifiers say out."""

from dataclasses import asdict
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from openradial.server.limits import Limits
from openradial.server.playground.digits import NAMES, SIDE, Pixels, digit_model, facts, like_mnist, opinion
from openradial.server.refusals import RequestError
from openradial.server.requests import Memory, read_body

LARGEST = 512  # pixels of a drawing, each way
BODY = Limits(body=LARGEST**2)


def routes(memory: Memory) -> APIRouter:
    """``/play/digits``."""
    router = APIRouter(prefix="/play/digits")

    @router.get("")
    def about() -> dict[str, Any]:
        return facts()

    @router.post("")
    async def say(request: Request, ready: bool = False) -> dict[str, Any]:
        """Of a square of grey bytes, ink bright; ``ready`` says that it is an image of MNIST's form already."""
        with memory.lease() as take:
            ink = square(await read_body(request, BODY, take))
        if ready and len(ink) != SIDE:
            raise RequestError(422, f"a ready image has {SIDE} x {SIDE} pixels, got {len(ink)} x {len(ink)}")
        return await run_in_threadpool(_said, ink if ready else like_mnist(ink))

    return router


def square(body: bytes) -> Pixels:
    """Bytes as a square of pixels."""
    side = round(len(body) ** 0.5)
    if not body or side * side != len(body):
        raise RequestError(422, f"a drawing is a square of bytes, one per pixel, got {len(body)} bytes")
    return np.frombuffer(body, np.uint8).reshape(side, side)


def _said(image: Pixels) -> dict[str, Any]:
    opinions = {name: asdict(opinion(digit_model(name), image)) for name in NAMES}
    return {"pixels": image.flatten().tolist(), **opinions}
