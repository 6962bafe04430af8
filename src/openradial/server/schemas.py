"""Schemas of requests and responses for the OpenAPI description."""

from typing import Any

from pydantic import BaseModel, Field

from openradial.data.inputs import Inputs, TableInputs
from openradial.server.requests import RATE

STATUSES = {
    400: "The body cannot be parsed.",
    401: "The token is missing or wrong.",
    408: "The body did not arrive in time.",
    413: "The body, an image, a sequence or the number of inputs is too large.",
    415: "The content type is not supported by this model.",
    422: "No input can be used; the message is about the first one.",
    431: "The request line and the headers are too large.",
    503: "The queue is full, or the service is stopping; see Retry-After.",
}


class TopClass(BaseModel):
    """One of the most probable classes."""

    name: str = Field(alias="class")
    probability: float | None


class PredictionRow(BaseModel):
    """The prediction for one input."""

    label: str = Field(description='The class, or "unknown".')
    is_unknown: bool
    nearest: str = Field(description="The most probable class, also if the input is unknown.")
    probability: float | None = Field(description="Probability of the nearest class.")
    distance: float | None = Field(description="Distance to the nearest class, if the model computes distances.")
    p_value: float | None = Field(description="How compatible the input is with known data; small means unknown.")
    unknown_score: float | None = Field(description="Larger is more unknown.")
    top: list[TopClass] = Field(description="The most probable classes, in order.")


class ErrorResponse(BaseModel):
    """Why a request or an input failed, in one sentence."""

    error: str


class PredictResponse(BaseModel):
    """One prediction per input, in the order of the request."""

    predictions: list[PredictionRow | ErrorResponse]
    false_reject_rate: float | None = Field(description="The rate used for the decision.")


class ModelResponse(BaseModel):
    """The description of the model."""

    classes: list[str]
    network: str
    parameters: int
    inputs: dict[str, Any]
    false_reject_rate: float | None
    facts: dict[str, Any]
    versions: dict[str, str]
    limits: dict[str, float]


class StatusResponse(BaseModel):
    """The state of the service."""

    status: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": text} for status, text in STATUSES.items()
}

FILE = {"type": "string", "format": "binary"}
RATE_SCHEMA = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
NUMBERS = {"type": "array", "minItems": 1, "items": {"type": "number"}}
PIXELS = {"type": "array", "minItems": 1, "items": {"type": "array", "minItems": 1}}
ITEMS: dict[str, dict[str, Any]] = {
    "images": {"anyOf": [PIXELS, {"type": "string"}], "description": "Rows of pixels (0 to 255), or a file in base64."},
    "points": {**NUMBERS, "description": "The numbers of a point."},
    "sequences": {"type": "array", "minItems": 1, "items": NUMBERS, "description": "The steps of a sequence."},
    "texts": {"type": "string"},
}


def predict_request(inputs: Inputs, most: int) -> dict[str, Any]:
    """Return the description of a request for at most ``most`` predictions of a model that takes these inputs."""
    item = ITEMS.get(inputs.kind, {"not": {"type": "null"}})
    if isinstance(inputs, TableInputs):
        value = {"type": ["number", "string", "boolean", *(["null"] if inputs.encoder.missing == "mean" else [])]}
        item = {"type": "object", "required": [*inputs.columns], "properties": dict.fromkeys(inputs.columns, value)}
    array = {"type": "array", "minItems": 1, "maxItems": most, "items": item}
    body = {"type": "object", "required": ["inputs"], "properties": {"inputs": array, RATE: RATE_SCHEMA}}
    bodies: dict[str, Any] = {"application/json": {**body, "additionalProperties": False}}
    if inputs.kind == "images":
        files = {"type": "array", "minItems": 1, "maxItems": most, "items": FILE}
        bodies["multipart/form-data"] = {"type": "object", "properties": {"images": files, RATE: RATE_SCHEMA}}
        bodies["image/*"] = FILE
    elif inputs.kind == "table":
        bodies["text/csv"] = {"type": "string"}
    return {
        "requestBody": {"required": True, "content": {kind: {"schema": schema} for kind, schema in bodies.items()}},
        "parameters": [{"name": RATE, "in": "query", "required": False, "schema": RATE_SCHEMA}],
    }
