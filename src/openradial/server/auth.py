"""Authentication by bearer token, required wherever other computers can reach the service."""

import hmac
import ipaddress
import os

from starlette.types import Scope

from openradial.errors import OptionError

TOKEN = "OPENRADIAL_TOKEN"
PUBLIC_PATHS = ("/healthz", "/readyz", "/docs", "/openapi.json")


def token_from_environment() -> str | None:
    """Return the token that clients must send, or None if none is set."""
    token = os.environ.get(TOKEN)
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise OptionError(f"{TOKEN} must be printable ASCII characters without spaces; set another, or unset it")
    return token


def check_exposure(host: str, token: str | None, *, without_token: bool = False) -> None:
    """Raise if other computers could reach a service without a token, unless ``without_token`` allows it.

    >>> check_exposure("127.0.0.1", None)
    """
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if token is None and not without_token and not is_loopback:
        raise OptionError(
            f"other computers can reach {host}, so a token is required: set {TOKEN}, or allow access without a token "
            "with --without-token"
        )


def is_authorized(scope: Scope, token: str | None) -> bool:
    """Return whether an HTTP request may be served: its path is public, or it sends the token."""
    if token is None or scope["path"] in PUBLIC_PATHS:
        return True
    sent = [value for name, value in scope["headers"] if name == b"authorization"]
    return len(sent) == 1 and hmac.compare_digest(sent[0], f"Bearer {token}".encode())
