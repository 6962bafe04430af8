import re
import tomllib
from pathlib import Path

from openradial.fitting import FitOptions

DOCS = Path(__file__).parents[2] / "docs"


def test_the_code_of_the_page_runs(python_blocks, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in python_blocks("own-data.md"):
        exec(block, names)
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 4
    assert "false-reject rate: asked 0.05" in printed
    for path in ("model/bundle.json", "report/report.html", "model.onnx"):
        assert (tmp_path / path).is_file()


def test_the_configuration_files_of_the_pages_are_valid():
    for page in ("own-data.md", "training.md"):
        files = re.findall(r"^```toml\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
        assert files
        for text in files:
            FitOptions.from_mapping(tomllib.loads(text))
