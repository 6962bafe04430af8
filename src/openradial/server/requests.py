"""Read requests for predictions within limits, and define the error that answers a request that fails."""

import asyncio
import io
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from openradial.data.inputs import ImageInputs, Inputs, TableInputs
from openradial.data.readers.table_files import stream_lines
from openradial.errors import OpenRadialError
from openradial.server.settings import Limits

RATE = "false_reject_rate"
KEYS = ("inputs", RATE)
FORM_FIELDS = 8  # of a form, apart from files
LONGEST_MESSAGE = 500  # characters; a message may quote what a client sent
CLOSE = {"Connection": "close"}  # sent where the rest of a request is not read
Reserve = Callable[[int], None]


class RequestError(OpenRadialError):
    """A request, or one input of a request, that fails: the HTTP status and a message of one sentence."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        message = message.encode("utf-8", "replace").decode()  # a message may quote half of a surrogate pair
        self.message = message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 1]}…"
        super().__init__(self.message)
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """Return the HTTP response."""
        return JSONResponse({"error": self.message}, self.status, self.headers)


def unavailable(message: str) -> RequestError:
    """Return a 503 that asks the client to retry after one second."""
    return RequestError(503, message, {"Retry-After": "1"})


class PredictRequest(NamedTuple):
    """The inputs of a request and the false-reject rate that it asks for."""

    inputs: list[Any]
    rate: float | None


class MemoryBudget:
    """The bytes that all requests may hold at the same time."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    @contextmanager
    def lease(self) -> Iterator[Reserve]:
        """Yield a function that reserves bytes for one request; they are released at its end."""
        reserved = 0

        def reserve(size: int) -> None:
            nonlocal reserved
            if self.used + size > self.limit:
                raise unavailable(
                    f"requests already hold {self.limit:,} bytes, the limit for all together; retry later"
                )
            self.used += size
            reserved += size

        try:
            yield reserve
        finally:
            self.used -= reserved


async def read_request(request: Request, limits: Limits, reserve: Reserve, inputs: Inputs) -> PredictRequest:
    """Read inputs and rate from JSON; for a model of images also from a form or one image, for tables from CSV."""
    images, tables = isinstance(inputs, ImageInputs), isinstance(inputs, TableInputs)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_image = kind.startswith("image/") or kind == "application/octet-stream"
    is_csv = kind == "text/csv" and tables
    if kind != "application/json" and not is_csv and not (images and (is_image or kind == "multipart/form-data")):
        others = ", or images as multipart/form-data or image/*" if images else " or text/csv" if tables else ""
        raise RequestError(415, f"send application/json{others}, got {kind or 'no Content-Type'}")
    body = await read_body(request, limits, reserve)
    query = request.query_params.get(RATE)
    if is_image:
        return PredictRequest([body], None if query is None else _parse_rate(query))
    if is_csv:
        parsed = PredictRequest(_parse_csv(body, inputs.columns, limits), None)
    else:
        parsed = _parse_json(body) if kind == "application/json" else await _parse_form(request, body, limits)
    if not parsed.inputs:
        raise RequestError(422, "a request needs at least one input, got none")
    if len(parsed.inputs) > limits.items:
        raise _too_many(limits)
    return parsed if query is None else PredictRequest(parsed.inputs, _parse_rate(query))


async def read_body(request: Request, limits: Limits, reserve: Reserve) -> bytes:
    """Return the complete body if it is small enough and arrives in time."""
    too_large = RequestError(413, f"a request may have at most {limits.body:,} bytes; split it into several", CLOSE)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.body:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.read_timeout):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > limits.body:
                    raise too_large
                reserve(len(part))
    except TimeoutError as error:
        raise RequestError(408, f"the request did not arrive within {limits.read_timeout:g} s", CLOSE) from error
    except ClientDisconnect as error:
        raise RequestError(400, "the client disconnected before its request was complete") from error
    return b"".join(parts)


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise RequestError(422, f"the body must be a JSON object, got {type(value).__name__}")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise RequestError(422, f"numbers must be finite, got {name}, which is not valid JSON")


def _parse_json(body: bytes) -> PredictRequest:
    fields = parse_object(body)
    if not isinstance(fields.get("inputs"), list):
        raise RequestError(422, 'the body must be an object with "inputs", an array with one entry per input')
    other = next((key for key in fields if key not in KEYS), None)
    if other is not None:
        raise RequestError(422, f"the body may have the keys {' and '.join(KEYS)}, got {other!r}")
    return PredictRequest(fields["inputs"], fields.get(RATE))


def _parse_csv(body: bytes, columns: Sequence[str], limits: Limits) -> list[Any]:
    """Return the rows of a CSV file; a row that cannot be read is an error."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(400, f"a CSV file must be text in UTF-8 ({error})") from error
    if not text.strip():
        raise RequestError(422, "a CSV file needs a line of column names and at least one row, got nothing")
    rows = islice(stream_lines(io.StringIO(text, newline=""), columns), limits.items + 1)
    return [each.raw if each.error is None else RequestError(422, each.error.reason) for each in rows]


class _FormParser(MultiPartParser):
    spool_max_size = 2**62  # uploads stay in memory, because the body is in memory already


async def _parse_form(request: Request, body: bytes, limits: Limits) -> PredictRequest:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        form = await _FormParser(request.headers, stream(), max_files=limits.items, max_fields=FORM_FIELDS).parse()
    except MultiPartException as error:
        if error.message.startswith("Too many files"):
            raise _too_many(limits) from error
        raise RequestError(400, f"the form cannot be parsed: {error.message}") from error
    try:
        rate, files = None, []
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                files.append(await value.read())
            elif name == RATE:
                rate = _parse_rate(value)
            else:
                raise RequestError(422, f"a form may have files and {RATE}, got {name!r}")
        return PredictRequest(files, rate)
    finally:
        await form.close()


def _parse_rate(text: str) -> float:
    try:
        return float(text.replace("_", "?"))  # Python would read 0.0_5 as 0.05
    except ValueError as error:
        raise RequestError(422, f"{RATE} must be a number, got {text!r}") from error


def _too_many(limits: Limits) -> RequestError:
    return RequestError(413, f"a request may have at most {limits.items:,} inputs; split it into several")
