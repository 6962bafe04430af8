"""The page on encoders: its code runs, and its table lists the encoders."""

import re
from pathlib import Path

from openradial import encoders, models
from openradial.encoders import registry

PAGE = (Path(__file__).parents[2] / "docs" / "encoders.md").read_text()


def test_the_code_of_the_page_runs(python_blocks, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in python_blocks("encoders.md"):
        exec(code, names)
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "['card', 'unknown']"
    assert second == "['shifted', 'centred', 'shifted', 'centred']"
    assert third.startswith("['minilm', 'wordllama', 'tfidf'] torch.Size([1, ")


def test_the_table_lists_every_encoder_with_its_size_and_licence():
    rows = re.findall(r"^\| `(\w+)`(?: \(default\))? \| (\w+),.*\| ([^|]*) \|$", PAGE, re.MULTILINE)
    assert [name for name, _, _ in rows] == encoders.names()
    assert [name for name, kind, _ in rows if kind == "images"] == encoders.names("images")
    for name, kind, licence in rows:
        if name != "tfidf":
            assert licence == registry._source(name).licence
        if kind == "images":
            assert f"| `{name}`" in PAGE
            assert f"{models.imagenet_weights(name).size} pixels" in PAGE
