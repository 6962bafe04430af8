"""A request for predictions: its body, read within limits, as values and a false-reject rate."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from openradial.server.limits import Limits
from openradial.server.refusals import CLOSE, RequestError, busy

RATE = "false_reject_rate"
KEYS = ("inputs", RATE)
FIELDS = 8  # of a form, beside files
Take = Callable[[int], None]


class Asked(NamedTuple):
    """What a client wants to know."""

    values: list[Any]
    rate: float | None


class Form(MultiPartParser):
    """Uploads that stay in memory, because the body is there already."""

    spool_max_size = 2**62


class Memory:
    """The bytes that all requests hold together."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0

    @contextmanager
    def lease(self) -> Iterator[Take]:
        """A function that takes bytes for one request, which are given back at its end."""
        own = 0

        def take(size: int) -> None:
            nonlocal own
            if self.used + size > self.most:
                raise busy(f"all requests together may hold {self.most:,} bytes, and they do; ask again later")
            self.used += size
            own += size

        try:
            yield take
        finally:
            self.used -= own


async def read(request: Request, limits: Limits, take: Take, *, images: bool) -> Asked:
    """Values and rate from JSON, uploads or the bytes of one image; ``images`` says that the model takes such."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_image = kind.startswith("image/") or kind == "application/octet-stream"
    if kind != "application/json" and not (images and (is_image or kind == "multipart/form-data")):
        others = ", or images as multipart/form-data or image/*" if images else ""
        raise RequestError(415, f"send application/json{others}, got {kind or 'no Content-Type'}")
    body = await read_body(request, limits, take)
    asked = request.query_params.get(RATE)
    if is_image:
        return Asked([body], _rate(asked))
    found = _from_json(body) if kind == "application/json" else await _from_form(request, body, limits)
    return _checked(found if asked is None else Asked(found.values, _rate(asked)), limits)


async def read_body(request: Request, limits: Limits, take: Take) -> bytes:
    """The whole body, if it is small enough and comes in time."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.body:
        raise _too_large(limits)
    try:
        async with asyncio.timeout(limits.reading):
            return await _read_body(request, limits, take)
    except TimeoutError as error:
        raise RequestError(408, f"the request must be sent within {limits.reading:g} s, and was not", CLOSE) from error
    except ClientDisconnect as error:
        raise RequestError(400, "the client was gone before its request was whole") from error


async def _read_body(request: Request, limits: Limits, take: Take) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > limits.body:
            raise _too_large(limits)
        take(len(part))
    return b"".join(parts)


def _too_large(limits: Limits) -> RequestError:
    return RequestError(
        413, f"a request may have {limits.body:,} bytes, and this one has more; send less at a time", CLOSE
    )


def _from_json(body: bytes) -> Asked:
    try:
        found = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is no JSON ({error})") from error
    if not isinstance(found, dict) or not isinstance(found.get("inputs"), list):
        raise RequestError(422, 'the body must be an object with "inputs", an array with one entry per input')
    other = next((key for key in found if key not in KEYS), None)
    if other is not None:
        raise RequestError(422, f"the body may hold {' and '.join(KEYS)}, got {other!r}")
    return Asked(found["inputs"], found.get(RATE))


def _refuse_constant(name: str) -> NoReturn:
    raise RequestError(422, f"inputs must hold finite numbers, got {name}, which JSON does not have")


async def _from_form(request: Request, body: bytes, limits: Limits) -> Asked:
    async def whole() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        form = await Form(request.headers, whole(), max_files=limits.items, max_fields=FIELDS).parse()
    except MultiPartException as error:
        if error.message.startswith("Too many files"):
            raise _too_many(limits) from error
        raise RequestError(400, f"the form cannot be read: {error.message}") from error
    try:
        return await _asked(form)
    finally:
        await form.close()


async def _asked(form: FormData) -> Asked:
    rate, files = None, []
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            files.append(await value.read())
        elif name == RATE:
            rate = _rate(value)
        else:
            raise RequestError(422, f"a form may hold files and {RATE}, got {name!r}")
    return Asked(files, rate)


def _rate(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise RequestError(422, f"{RATE} must be a number, got {text!r}") from error


def _checked(asked: Asked, limits: Limits) -> Asked:
    if not asked.values:
        raise RequestError(422, "a request needs at least one input, got none")
    if len(asked.values) > limits.items:
        raise _too_many(limits)
    return asked


def _too_many(limits: Limits) -> RequestError:
    return RequestError(413, f"a request may have {limits.items:,} inputs, and this one has more; send several")
