"""The loss has two eager forms, in Python and compiled; its tests run with both."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from openradial.functional import native


@pytest.fixture(scope="session")
def compiled_loss() -> Callable[..., torch.Tensor]:
    """The compiled kernel, built once per environment."""
    if shutil.which(os.environ.get("CXX") or "c++") is None:
        reason = "needs a C++ compiler"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    home = Path(sys.prefix) / "openradial-native"
    home.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, FileLock(home / ".lock"):  # one of the workers builds it
        patch.setenv("OPENRADIAL_CACHE", str(home))
        return native.load(native.build())


@pytest.fixture(autouse=True)
def without_compiled_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies in the user's cache, tests use the Python form unless they ask for the other."""
    monkeypatch.setattr(native, "radial_loss", lambda: None)


@pytest.fixture(params=["python", "compiled"])
def each_loss(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, without_compiled_loss: None) -> str:
    """Run the test with each eager form of the loss."""
    if request.param == "compiled":
        kernel = request.getfixturevalue("compiled_loss")
        monkeypatch.setattr(native, "radial_loss", lambda: kernel)
    return str(request.param)
