"""The tests of the service use the small bundles of the tests of bundles."""

import io
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
    from openradial.server.settings import LOCAL_HOSTS

    made = []

    def make(bundle, token=None, hosts=LOCAL_HOSTS, **limits):
        made.append(Service(bundle, Limits(**limits), token, hosts))
        return made[-1]

    yield make
    for service in made:
        service.batcher.close()


@pytest.fixture
def written():
    """Set the log up; what was written to it."""
    from openradial.server import monitoring
    from openradial.server.settings import LogFormat, LogLevel

    streams = []
    loggers = (monitoring.LOGGER, monitoring.HTTP_LOGGER)
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]

    def set_up(level=LogLevel.INFO, form=LogFormat.PLAIN):
        streams.append(io.StringIO())
        monitoring.configure_logging(level, form, streams[-1])
        return lambda: streams[-1].getvalue().splitlines()

    yield set_up
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
