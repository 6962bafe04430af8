"""Settings for all tests, and what the tests of several pages share."""

import doctest
import os
import re
import signal
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from rounding import imitate

from openradial.errors import FetchError

# Texts are compared as they are without a terminal.
for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "COLUMNS"):
    os.environ.pop(name, None)

# Servers of tests are on this machine; a proxy does not reach them.
for name in ("NO_PROXY", "no_proxy"):
    os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))

# The same examples in every run; torch's first call of an operator takes longer than any sensible deadline.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("repeatable")

# Compiled code of another CPU, or of ATEN_CPU_CAPABILITY, must not be taken from torch's cache.
kernels = Path(sys.prefix) / "torchinductor" / torch.backends.cpu.get_cpu_capability()
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kernels))

if extent := os.environ.get("OPENRADIAL_TEST_ROUNDING"):  # set by `make test-cpus`
    imitate(extent)

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores
    torch.set_num_threads(int(os.environ.get("OPENRADIAL_TEST_THREADS", "1")))

# They have no doctests, and as modules with one name they could not be collected together.
collect_ignore_glob = ["*/conftest.py"]

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(autouse=True)
def same_random_numbers():
    """Draw the same numbers in a test, whichever tests ran before it in its worker."""
    torch.manual_seed(0)


@pytest.fixture
def doctest_page():
    """Run a page's lines with ``>>>`` one after the other; how many there were and what failed."""

    def run(name):
        examples = re.sub(r"^```.*$", "", (DOCS / name).read_text(), flags=re.MULTILINE)
        parsed = doctest.DocTestParser().get_doctest(examples, {}, name, None, 0)
        report = []
        doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(parsed, out=report.append)
        return len(parsed.examples), "".join(report)

    return run


@pytest.fixture
def python_blocks():
    """The blocks of Python on a page."""
    return lambda name: re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)


@pytest.fixture(scope="session")
def fetched():
    """Call a function that needs a fetched set; where the set cannot be had, skip, but fail in CI."""

    def call(function, *arguments, **options):
        try:
            return function(*arguments, **options)
        except FetchError as error:
            if os.environ.get("CI") == "true":
                raise
            return pytest.skip(str(error))

    return call


@pytest.fixture(scope="session")
def programs():
    """Run Python programs that need torch, without the seconds that its import takes."""
    from preloaded import Preloaded

    started = Preloaded()
    yield started
    started.close()


@pytest.fixture
def interruptible():
    """SIGINT as in a terminal: whatever is started in the background of a shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
