import hashlib

import pytest
from PIL import Image

from openradial.data.sets import mnist


@pytest.fixture
def openradial(call):
    """Run a command: its exit code and what it printed."""

    def run(*arguments):
        code, out, err = call("data", *arguments)
        return code, out + err

    return run


@pytest.fixture
def own_mnist(tmp_path, monkeypatch):
    """A folder with files named as MNIST's, and checksums that fit them; an empty cache."""
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "mine"
    folder.mkdir()
    files = {}
    for name in mnist.SOURCE.files:
        (folder / name).write_bytes(name.encode())
        files[name] = f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
    monkeypatch.setattr(mnist, "SOURCE", type(mnist.SOURCE)(**{**vars(mnist.SOURCE), "files": files, "origins": ()}))
    return folder


def test_list_shows_every_set(openradial):
    code, out = openradial("list")
    assert code == 0
    assert "fashion-mnist" in out
    assert "60,000 / 10,000" in out


def test_get_and_check_use_a_folder_of_the_users(openradial, own_mnist):
    assert openradial("get", "mnist", "--root", own_mnist) == (
        0,
        f"mnist: 4 files, 0.0 MB in {own_mnist}; licence: {mnist.SOURCE.licence}\n",
    )
    code, out = openradial("check", "mnist", "--root", own_mnist)
    assert (code, out) == (0, f"mnist: 4 files, 0.0 MB in {own_mnist}, all checksums match\n")


def test_check_names_a_damaged_file(openradial, own_mnist):
    (own_mnist / "t10k-labels-idx1-ubyte").write_bytes(b"x")
    code, out = openradial("check", "mnist", "--root", own_mnist)
    assert code == 1
    assert "t10k-labels-idx1-ubyte: has sha256:" in out
    assert out.endswith("; replace the wrong files\n")


def test_check_of_an_absent_set_names_the_command(openradial, own_mnist):
    code, out = openradial("check", "mnist")
    assert code == 1
    assert "missing (3 more files are wrong); run: openradial data get mnist" in out


def test_a_set_without_files_says_how_to_load_it(openradial):
    assert openradial("get", "digits") == (
        2,
        "error: digits needs no files: load it with openradial.data.load('digits')\n",
    )


def test_scan_reports_and_counts_broken_images_optionally(openradial, tmp_path):
    root = tmp_path / "images"
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(root / name / "a.png")
    (root / "dog" / "b.jpg").write_bytes(b"")
    code, said = openradial("scan", root)
    assert code == 1
    assert "b.jpg" in said
    assert "--skip-broken" in said
    code, said = openradial("scan", root, "--skip-broken")
    assert code == 0
    assert "2 images in 2 classes" in said
    assert "broken: 1" in said


def test_scan_compares_classes_with_a_second_folder(openradial, tmp_path):
    for name in ("train/cat", "train/dog", "val/cat", "val/cow"):
        (tmp_path / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name / "a.png")
    code, said = openradial("scan", tmp_path / "train", "--validation", tmp_path / "val")
    assert code == 1
    assert "cow" in said
    assert "dog" in said
