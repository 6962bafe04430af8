"""The tests of the service use the small bundles of the tests of bundles."""

import sys
from pathlib import Path

import pytest

BUNDLES = Path(__file__).parents[1] / "bundle"
if str(BUNDLES) not in sys.path:
    sys.path.insert(0, str(BUNDLES))


@pytest.fixture
def make_service():
    """Make services that are closed at the end."""
    from openradial.server import Limits, Service

    made = []

    def make(bundle, token=None, **limits):
        made.append(Service(bundle, Limits(**limits), token))
        return made[-1]

    yield make
    for service in made:
        service.batcher.close()
