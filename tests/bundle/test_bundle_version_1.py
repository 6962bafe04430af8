"""A bundle of schema 1, which every later version must read: six known digits, made in November 2026."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from openradial.bundle import describe, load
from openradial.files import read_tensors

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def expected():
    return read_tensors(DATA / "v1.predictions.safetensors")[0]


def test_a_bundle_of_version_1_says_what_it_said(expected):
    bundle = load(DATA / "v1")
    found = bundle.predict(expected.pop("inputs"))
    step = 1.5 / 215  # a score on the edge of a calibrated one moves its p-value by one step
    # 88 roundings in float32, multiplied by up to 150 where scores are interpolated between close calibrated ones
    close = {"p_values": {"atol": step}, "unknown_score": {"rtol": 2e-3, "atol": 2e-3}}
    clear = abs(expected["p_values"].numpy() - 0.05) > step
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(found.labels[clear], expected.pop("labels")[clear])
    for name, values in expected.items():
        own = getattr(found, name)
        assert own.dtype == values.numpy().dtype
        np.testing.assert_allclose(own, values, **close.get(name, {"rtol": 1e-4, "atol": 1e-5}), err_msg=name)
    assert 0 < (found.labels < 0).sum() < len(found)


def test_a_bundle_of_version_1_keeps_its_facts():
    record = describe(DATA / "v1")
    assert record["classes"] == list("012345")
    assert record["facts"]["false_reject_rate"] == {"asked": 0.05, "measured": 0.0421, "examples": 214}
    assert load(DATA / "v1").parameters == record["network"]["parameters"] == 2554


def test_a_bundle_of_version_1_is_small_and_holds_what_it_should():
    sizes = {path.name: path.stat().st_size for path in (DATA / "v1").iterdir()}
    assert sorted(sizes) == ["bundle.json", "card.md", "weights.safetensors"]
    assert sum(sizes.values()) < 100_000


def test_windows_line_ends_do_no_harm(tmp_path):
    shutil.copytree(DATA / "v1", tmp_path / "model")
    path = tmp_path / "model" / "bundle.json"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert load(tmp_path / "model").classes == tuple("012345")
