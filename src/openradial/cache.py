"""Where openradial keeps what it fetched or compiled."""

import os
from pathlib import Path


def cache_home() -> Path:
    """``OPENRADIAL_CACHE``, or the folder openradial in the user's cache."""
    given = os.environ.get("OPENRADIAL_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openradial"
