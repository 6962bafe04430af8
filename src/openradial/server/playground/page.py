"""The files of the page, and what a browser is told about them."""

from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",  # another version may be served here tomorrow; asking whether it changed costs nothing
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Files(StaticFiles):
    """Files with our headers."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers.update(HEADERS)
        return response


def index() -> Response:
    """The page itself."""
    return FileResponse(STATIC / "index.html", headers=HEADERS)
