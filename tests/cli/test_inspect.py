import json
import shutil
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[1] / "bundle" / "data" / "digits"


@pytest.fixture
def inspect(call):
    """Run ``openradial inspect``: its exit code, output and errors."""

    def run(*arguments):
        return call("inspect", *arguments)

    return run


def test_a_model_is_described_by_section(inspect):
    code, out, err = inspect(MODEL)
    assert (code, err) == (0, "")
    titles = [line for line in out.splitlines() if not line.startswith(" ")]
    assert titles == [
        "Classes",
        "Network",
        "Inputs",
        "Decision",
        "Metadata",
        "Versions",
        "Files",
        f"checksums match; card in {MODEL / 'card.md'}",
    ]
    for fact in (
        "6: 0, 1, 2, 3, 4, 5",
        "name: mlp",
        "parameters: 2,554",
        "size: 8",
        "false_reject_rate: 0.05",
        "measured: 0.0421",
        "openradial: 0.1.0.dev0",
        "sha256:",
    ):
        assert fact in out


def test_a_script_reads_json(inspect):
    code, out, _ = inspect(MODEL, "--json")
    assert code == 0
    assert json.loads(out) == json.loads((MODEL / "bundle.json").read_text())


def test_a_damaged_model_is_one_line_and_exit_code_1(inspect, tmp_path):
    folder = shutil.copytree(MODEL, tmp_path / "model")
    (folder / "weights.safetensors").write_bytes(b"")
    code, out, err = inspect(folder)
    assert (code, out) == (1, "")
    assert err == (
        f"error: {folder}/weights.safetensors is incomplete: it has 0 bytes instead of 20,406; "
        "take another copy of the bundle\n"
    )
