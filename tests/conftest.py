"""Settings for all tests, and the fixtures that several folders share."""

import doctest
import gc
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

# Workers, and the programs that they start, share the cores: more threads wait longer than they compute.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, os.environ.get("OPENRADIAL_TEST_THREADS", "1"))

# Torch's first call of an operator takes longer than any sensible deadline.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)  # the same in every run
MOST = int(os.environ.get("HYPOTHESIS_EXAMPLES", "200"))
settings.register_profile("fuzz", deadline=None, max_examples=MOST, print_blob=True)  # `make fuzz`: new random seeds
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeatable")
settings.load_profile(PROFILE)

# Compiled code of another CPU, or of ATEN_CPU_CAPABILITY, must not be taken from torch's cache.
kernels = Path(sys.prefix) / "torchinductor" / torch.backends.cpu.get_cpu_capability()
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kernels))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # else every worker starts processes that import torch

if extent := os.environ.get("OPENRADIAL_TEST_ROUNDING"):  # set by `make test-cpus`
    imitate(extent)

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores
    torch.set_num_threads(int(os.environ.get("OPENRADIAL_TEST_THREADS", "1")))

LONGEST = ("tests/test_tutorials.py", "tests/paper/test_ensemble_training.py", "tests/training/test_distributed.py")
DOCS = Path(__file__).parents[1] / "docs"


def pytest_collection_modifyitems(items):
    """Mark slow tests and browser tests; let `make fuzz` try all examples in tests with their own limit.

    The longest tests come first, so that no worker is left alone with one at the end. Those that compile come next, so
    that one worker alone imports the compiler.
    """
    compiles = {item for item in items if item.get_closest_marker("compile")}
    items.sort(key=lambda item: (not item.nodeid.startswith(LONGEST), item not in compiles))
    slow = set((Path(__file__).parent / "slow.txt").read_text().split())
    for item in items:
        if item.nodeid.partition("[")[0] in slow:
            item.add_marker("slow")
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
        limited = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_settings", None)
        if PROFILE == "fuzz" and limited is not None:
            most = settings.get_profile(PROFILE).max_examples
            item.obj._hypothesis_internal_use_settings = settings(limited, max_examples=most)


def pytest_collection_finish():
    """Leave modules and collected tests, over a million objects, out of every later search for cycles."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_random_numbers():
    """Draw the same numbers in a test, whichever tests ran before it in its worker."""
    torch.manual_seed(0)


@pytest.fixture
def doctest_page():
    """Run the lines with ``>>>`` of a page; return how many there are and what failed."""

    def run(name):
        examples = re.sub(r"^```.*$", "", (DOCS / name).read_text(), flags=re.MULTILINE)
        parsed = doctest.DocTestParser().get_doctest(examples, {}, name, None, 0)
        report = []
        doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(parsed, out=report.append)
        return len(parsed.examples), "".join(report)

    return run


@pytest.fixture
def python_blocks():
    """Return the Python blocks of a page."""
    return lambda name: re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)


@pytest.fixture(scope="session")
def fetched():
    """Call a function that downloads a data set; if that is impossible, skip, but fail in CI."""

    def call(function, *arguments, **options):
        try:
            return function(*arguments, **options)
        except FetchError as error:
            if os.environ.get("CI") == "true":
                raise
            return pytest.skip(str(error))

    return call


@pytest.fixture
def shared_features(tmp_path_factory, monkeypatch):
    """Keep features in a folder of this run, because several pages encode the same sentences."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "features"
    monkeypatch.setattr("openradial.encoders.cache.features_folder", lambda: folder)


@pytest.fixture(scope="session")
def programs():
    """Run Python programs that need torch, without the seconds that its import takes."""
    from preloaded import Preloaded

    started = Preloaded()
    yield started
    started.close()


@pytest.fixture
def must_end():
    """Make a test fail that would never end without the fix that it checks."""

    def give_up(*_):
        pytest.fail("the test did not end")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(int(os.environ.get("OPENRADIAL_TEST_PATIENCE", "300")))  # seconds; a busy machine may take its time
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def interruptible():
    """Handle SIGINT as in a terminal: a process that a shell starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
