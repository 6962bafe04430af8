"""Settings for all tests, and what the tests of several pages share."""

import doctest
import os
import re
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# The same examples in every run; torch's first call of an operator takes longer than any sensible deadline.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers share the cores

# They have no doctests, and as modules with one name they could not be collected together.
collect_ignore_glob = ["*/conftest.py"]

DOCS = Path(__file__).parents[1] / "docs"


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


@pytest.fixture
def interruptible():
    """SIGINT as in a terminal: whatever is started in the background of a shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
