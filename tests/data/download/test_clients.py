import gzip
import io
import shutil
import tarfile
import zipfile

import pytest

from openradial.data.download import ARCHIVE, Package, clients, fetch, unpack_tar
from openradial.errors import FetchError
from tests.data.download.letters import sha256, source_of

A, B = b"alpha" * 100, b"beta" * 100


def tgz(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def wheel(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A program named npm that hands out the archive it is given."""

    def install(archive: bytes, *, fails: str = ""):
        place = tmp_path / "bin"
        place.mkdir(exist_ok=True)
        (place / "letters-1.0.tgz").write_bytes(archive)
        script = f"echo '{fails}' >&2; exit 1" if fails else f"cp {place}/letters-1.0.tgz . && echo letters-1.0.tgz"
        (place / "npm").write_text(f"#!/bin/sh\n{script}\n")
        (place / "npm").chmod(0o755)
        monkeypatch.setenv("PATH", str(place), prepend=":")

    return install


def package(take, archive=None, files=None):
    return Package("npm", "letters", "1.0", take, archive, files)


def test_members_are_kept_under_our_names(npm):
    npm(tgz({"package/x/a.bin": A, "package/b.gz": gzip.compress(B), "package/other": B}))
    source = source_of({"a": A, "b": B}, package({"a": "package/x/a.bin", "b": "package/b.gz"}))
    home = fetch(source)
    assert (home / "a").read_bytes() == A
    assert (home / "b").read_bytes() == B
    assert sorted(path.name for path in home.iterdir()) == ["a", "b", "checked.json"]


def test_the_archive_itself_may_be_kept(npm):
    archive = tgz({"package/a": A})
    npm(archive)
    source = source_of({"letters.tgz": archive}, package({"letters.tgz": ARCHIVE}))
    assert (fetch(source) / "letters.tgz").read_bytes() == archive


def test_an_archive_with_another_checksum_is_refused(npm):
    npm(tgz({"package/a": A}))
    with pytest.raises(FetchError, match=r"letters-1\.0\.tgz has sha256:\w+, expected sha256:00"):
        fetch(source_of({"a": A}, package({"a": "package/a"}, "sha256:00")))


def test_half_an_archive_is_refused(npm):
    archive = tgz({"package/a": bytes(range(256)) * 4000})
    npm(archive[: len(archive) // 2])
    with pytest.raises(FetchError, match=r"letters-1\.0\.tgz is damaged"):
        fetch(source_of({"a": A}, package({"a": "package/a"})))


def test_a_garbled_member_is_refused(npm):
    npm(tgz({"package/a.gz": gzip.compress(A)[:10] + b"\xff" * 40}))
    with pytest.raises(FetchError, match=r"letters-1\.0\.tgz is damaged"):
        fetch(source_of({"a": A}, package({"a": "package/a.gz"})))


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "made").mkdir()
    for name in ("../outside", "a/../../outside", str(tmp_path / "outside")):
        (tmp_path / "package.tgz").write_bytes(tgz({"inside": b"1", name: b"2"}))
        with pytest.raises(tarfile.TarError, match="would lie outside of the folder"):
            unpack_tar(tmp_path / "package.tgz", tmp_path / "made")
        assert not (tmp_path / "outside").exists()


def test_links_of_an_archive_are_left_out(tmp_path):
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as archive:
        for name, kind in (("link", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    unpack_tar(tmp_path / "package.tgz", tmp_path / "made")
    assert list((tmp_path / "made").iterdir()) == []


def test_what_is_no_archive_is_refused(npm):
    npm(b"not found")
    with pytest.raises(FetchError, match=r"letters-1\.0\.tgz is damaged"):
        fetch(source_of({"a": A}, package({"a": "package/a"})))


def test_a_missing_member_is_named(npm):
    npm(tgz({"package/b": B}))
    with pytest.raises(FetchError, match="should hold 'package/a' and does not"):
        fetch(source_of({"a": A}, package({"a": "package/a"})))


def test_the_error_of_the_client_is_shown(npm):
    npm(b"", fails="npm ERR! 404 letters is not in this registry")
    with pytest.raises(FetchError, match="npm: npm ERR! 404 letters is not in this registry"):
        fetch(source_of({"a": A}, package({"a": "package/a"})))


def test_members_of_a_wheel_are_kept_under_our_names(tmp_path):
    (tmp_path / "letters.whl").write_bytes(wheel({"letters/a": A, "letters/b": B}))
    clients._take(tmp_path / "letters.whl", {"a": "letters/a"}, tmp_path)
    assert (tmp_path / "a").read_bytes() == A


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_members_of_a_debian_package_are_kept_under_our_names(tmp_path):
    import subprocess

    made = tmp_path / "made"
    (made / "DEBIAN").mkdir(parents=True)
    (made / "DEBIAN" / "control").write_text(
        "Package: letters\nVersion: 1\nArchitecture: all\nMaintainer: nobody <no@example.org>\nDescription: letters\n"
    )
    (made / "usr").mkdir()
    (made / "usr" / "a.gz").write_bytes(gzip.compress(A))
    subprocess.run(["dpkg-deb", "-b", str(made), str(tmp_path / "letters.deb")], check=True, capture_output=True)
    clients._take(tmp_path / "letters.deb", {"a": "usr/a.gz"}, tmp_path)
    assert (tmp_path / "a").read_bytes() == A


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_a_damaged_debian_package_is_named(tmp_path):
    (tmp_path / "letters.deb").write_bytes(b"not a package")
    with pytest.raises(clients.UnavailableError, match=r"letters\.deb is damaged \(.*dpkg-deb"):
        clients._take(tmp_path / "letters.deb", {"a": "usr/a.gz"}, tmp_path)


@pytest.mark.parametrize(
    ("client", "version", "shown"),
    [
        ("npm", "1.0", "npm pack letters@1.0"),
        ("apt", None, "apt-get download letters"),
        ("pip", "1.0", "pip download letters==1.0"),
    ],
)
def test_a_package_is_shown_as_the_command_that_gets_it(client, version, shown):
    assert str(Package(client, "letters", version, {})) == shown


def test_checksums_are_of_contents():
    assert sha256(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
