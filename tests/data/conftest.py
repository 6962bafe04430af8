import hashlib
from dataclasses import replace
from importlib import import_module

import pytest


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Write files that stand for a set in the user's folder, with checksums that fit them; returns the folder."""
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENRADIAL_DATA", raising=False)

    def write(module, files):
        home = tmp_path / "own"
        home.mkdir(exist_ok=True)
        for name, content in files.items():
            (home / name).write_bytes(content)
        checksums = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in files.items()}
        room = import_module(f"openradial.data.sets.{module}")
        monkeypatch.setattr(room, "SOURCE", replace(room.SOURCE, files=checksums, origins=()))
        return home

    return write
