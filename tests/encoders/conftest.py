import os
from functools import cache

import numpy as np
import pytest
from PIL import Image

from openradial import encoders
from openradial.errors import FetchError, MissingError


@pytest.fixture(autouse=True)
def own_features(tmp_path, monkeypatch):
    """Keep features of tests apart from those of the user; weights stay in the user's cache."""
    monkeypatch.setattr("openradial.encoders.cache.features_folder", lambda: tmp_path / "features")


loaded_once = cache(encoders.load)  # encoders are frozen, and MiniLM alone has 90 MB


@pytest.fixture
def load():
    """Load an encoder; where its weights cannot be had the test is skipped, but never in CI."""

    def loaded(name, **options):
        try:
            return loaded_once(name, **options)
        except (FetchError, MissingError) as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"the encoder {name} cannot be had here: {error}")

    return loaded


@pytest.fixture
def photos(tmp_path):
    """Bright and dark noise in files of 48 pixels."""
    random = np.random.default_rng(0)
    for k, name in enumerate(("dark", "light")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(24):
            x = random.integers(150 * k, 100 + 150 * k, (48, 48, 3)).astype(np.uint8)
            Image.fromarray(x).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"
