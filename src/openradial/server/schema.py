"""What requests and answers look like, for the OpenAPI description."""

from typing import Any

from pydantic import BaseModel, Field

from openradial.server.requests import RATE

STATUSES = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    408: "The body did not come in time.",
    413: "The body, an image, a sequence or the number of inputs is too large.",
    415: "The body is of a kind that this model does not take.",
    422: "No input can be used; the sentence is about the first of them.",
    503: "Too much waits for the model, or the service stops; Retry-After says when to come again.",
}


class Nearest(BaseModel):
    """A class and its probability."""

    name: str = Field(alias="class")
    probability: float | None


class Prediction(BaseModel):
    """What is said of one input; or only ``error``, one sentence about what is wrong with it."""

    label: str = Field(description='The class, or "unknown".')
    is_unknown: bool
    nearest: str = Field(description="The most probable class, also where the input is unknown.")
    probability: float | None = Field(description="Of the nearest class.")
    distance: float | None = Field(description="To the nearest class, where the model measures distances.")
    p_value: float | None = Field(description="How compatible the input is with known data; small is unknown.")
    unknown_score: float | None = Field(description="Larger is more unknown.")
    top: list[Nearest] = Field(description="The nearest classes in their order.")


class Broken(BaseModel):
    """An input that cannot be used."""

    error: str


class Answers(BaseModel):
    """One prediction per input, in the order of the request."""

    predictions: list[Prediction | Broken]
    false_reject_rate: float | None = Field(description="The rate that was decided at.")


class Model(BaseModel):
    """What the model is."""

    classes: list[str]
    network: str
    parameters: int
    inputs: dict[str, Any]
    false_reject_rate: float | None
    facts: dict[str, Any]
    versions: dict[str, str]
    limits: dict[str, float]


class Problem(BaseModel):
    """Why a request was not served, in one sentence."""

    error: str


class Status(BaseModel):
    """How the service is."""

    status: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": sentence} for status, sentence in STATUSES.items()
}

RATE_SCHEMA = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
INPUTS = (
    "Images: rows of pixels (0 to 255), or the file in base64. Points: arrays of numbers. Sequences: arrays of steps. "
    "Tables: objects of columns and values. Texts: strings."
)
FILE = {"type": "string", "format": "binary"}
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["inputs"],
                    "properties": {
                        "inputs": {
                            "type": "array",
                            "minItems": 1,
                            "items": {},
                            "description": INPUTS,
                        },
                        RATE: RATE_SCHEMA,
                    },
                }
            },
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"images": {"type": "array", "items": FILE}, RATE: RATE_SCHEMA},
                }
            },
            "image/*": {"schema": FILE},
        },
    },
    "parameters": [{"name": RATE, "in": "query", "required": False, "schema": RATE_SCHEMA}],
}
