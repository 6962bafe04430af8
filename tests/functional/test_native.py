import os

import pytest
import torch

from openradial.errors import BuildError
from openradial.functional import native


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """The module as a new user has it: nothing built."""
    monkeypatch.undo()
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path))
    monkeypatch.delenv("OPENRADIAL_NATIVE", raising=False)
    native._found.cache_clear()
    yield tmp_path
    native._found.cache_clear()


def test_nothing_is_compiled_unless_asked(fresh):
    assert native.radial_loss() is None
    assert list(fresh.iterdir()) == []


def test_what_was_built_is_found(fresh, compiled_loss, monkeypatch):
    monkeypatch.setattr(native, "library", lambda: fresh / "native.so")
    monkeypatch.setattr(native, "load", lambda path: compiled_loss)
    assert native.radial_loss() is None
    (fresh / "native.so").touch()
    native._found.cache_clear()
    assert native.radial_loss() is compiled_loss


def test_the_switch_turns_it_off(fresh, monkeypatch):
    native.library().touch()
    monkeypatch.setenv("OPENRADIAL_NATIVE", "0")
    assert native.radial_loss() is None


def test_a_damaged_library_is_as_none(fresh):
    native.library().write_bytes(b"half a library")
    assert native.radial_loss() is None


def test_no_compiler_gets_one_clear_sentence(fresh):
    with pytest.raises(BuildError) as caught:
        native.build("no-such-compiler")
    assert str(caught.value) == (
        "no C++ compiler 'no-such-compiler' was found; install one or set CXX, or go on without: it is optional"
    )


def test_a_failing_compiler_leaves_nothing_behind(fresh):
    with pytest.raises(
        BuildError, match=r"^false could not compile native.cpp: no message; it is optional, go on without$"
    ):
        native.build("false")
    assert list(fresh.iterdir()) == []


def test_a_compiler_that_makes_no_library_is_noticed(fresh):
    script = fresh / "compiler"
    script.write_text('#!/bin/sh\nfor last; do :; done\necho nonsense > "$last"\n')
    script.chmod(0o755)
    if not os.access(script, os.X_OK):
        pytest.skip("the folder for temporary files is mounted noexec")
    with pytest.raises(BuildError, match=r"cannot be loaded: .*; it is optional, go on without$"):
        native.build(str(script))
    assert list(fresh.iterdir()) == [script]


def test_the_kernel_refuses_what_it_does_not_know(compiled_loss):
    o, y = torch.randn(3, 4), torch.tensor([0, 1, 2])
    assert compiled_loss(o, y, 1.0, 1.0, True).isfinite()
    refused = [
        (o.t(), y[:1].repeat(4)),
        (o[None], y),
        (o, y.int()),
        (o.half(), y),
        (o[:0], y[:0]),
        (o, y[:2]),
        (o, y[:, None]),
    ]
    for arguments in refused:
        with pytest.raises(RuntimeError):
            compiled_loss(*arguments, 1.0, 1.0, True)
    for settings in ((0.0, 1.0), (1.0, -1.0), (float("nan"), 1.0), (1.0, float("inf"))):
        with pytest.raises(RuntimeError):
            compiled_loss(o, y, *settings, True)
    for wrong in (-1, 4, -100):
        with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
            compiled_loss(o, torch.tensor([0, 1, wrong]), 1.0, 1.0, True)


def test_inference_mode_works(compiled_loss):
    with torch.inference_mode():
        o = torch.randn(3, 4)
        assert compiled_loss(o, torch.tensor([0, 1, 2]), 1.0, 1.0, True).isfinite()
