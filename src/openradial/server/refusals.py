"""What the service says to a request that it does not serve."""

from collections.abc import Mapping

from openradial.errors import OpenRadialError

LONGEST = 500  # letters of a sentence, which may quote what a client sent


class RequestError(OpenRadialError):
    """A request, or an input of one, that is not served: the HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.sentence = sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 1]}…"
        super().__init__(self.sentence)
        self.headers = dict(headers or {})


CLOSE = {"Connection": "close"}  # where the rest of a request is not worth waiting for


def busy(sentence: str, seconds: int = 1) -> RequestError:
    """503, and when to come again."""
    return RequestError(503, sentence, {"Retry-After": str(seconds)})
