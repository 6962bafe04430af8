import pytest

from openradial.errors import DataError
from paper.imagenet.listed import scan_listed


def test_images_side_by_side_get_the_labels_of_a_list(tmp_path):
    root = tmp_path / "images"
    root.mkdir()
    for name in ("1.jpg", "2.jpg", "3.jpg", "notes.txt"):
        (root / name).write_bytes(b"x")
    folder = scan_listed(root, {"1.jpg": "dog", "2.jpg": "cat", "9.jpg": "cat"})
    assert folder.classes == ("cat", "dog")
    assert folder.labels.tolist() == [1, 0]
    assert folder.report.findings["of another class"] == ["3.jpg"]
    assert folder.report.findings["listed but absent"] == ["9.jpg"]
    with pytest.raises(DataError, match=r"none of the 3 images is listed with a wanted class; check that the list"):
        scan_listed(root, {"7.jpg": "dog"})
