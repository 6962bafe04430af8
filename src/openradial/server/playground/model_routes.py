"""The route of one's own model: what its page must know to ask ``/v1/predict``."""

from typing import Any

from fastapi import APIRouter

from openradial.bundle import Inputs, TableInputs
from openradial.data.table_encoder import Feature, NumberFeature
from openradial.server.service import Service


def routes(service: Service, title: str | None) -> APIRouter:
    """``/play/model``."""
    router = APIRouter(prefix="/play/model")

    @router.get("")
    async def about() -> dict[str, Any]:
        return {
            "title": title,
            "classes": list(service.bundle.classes),
            "network": service.bundle.network,
            "parameters": service.bundle.parameters,
            "false_reject_rate": service.false_reject_rate,
            "items": service.limits.items,
            **asked(service.bundle.preprocessing),
        }

    return router


def asked(inputs: Inputs) -> dict[str, Any]:
    """Which fields a form needs."""
    shape = [size for size in inputs.shape if size is not None]
    fields = [field(feature) for feature in inputs.encoder.features] if isinstance(inputs, TableInputs) else []
    return {"kind": inputs.kind, "shape": shape, "fields": fields}


def field(feature: Feature) -> dict[str, Any]:
    """One column of a table: its name, and a usual value or the words to choose from."""
    if isinstance(feature, NumberFeature):
        return {"name": feature.name, "usual": float(f"{feature.mean:.4g}"), "words": None}
    return {"name": feature.name, "usual": None, "words": list(feature.categories)}
