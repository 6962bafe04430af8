import os
import re

import pytest
import torch
from PIL import Image

from openradial.data.readers import folder as module
from openradial.data.readers.folder import compare_classes, scan
from openradial.errors import DataError
from tests.data.pictures import encoded, jpeg, noise, read_image, tree


@pytest.fixture
def pets(tmp_path):
    files = {f"{name}/{i}.jpg": jpeg(seed=i) for name in ("dog", "cat") for i in range(3)}
    return tree(tmp_path / "pets", files)


def names(folder):
    return [os.path.relpath(path, folder.root) for path in folder.paths]


def test_classes_and_files_are_sorted_and_labels_are_places_in_the_classes(pets):
    folder = scan(pets)
    assert folder.classes == ("cat", "dog")
    assert names(folder) == ["cat/0.jpg", "cat/1.jpg", "cat/2.jpg", "dog/0.jpg", "dog/1.jpg", "dog/2.jpg"]
    assert folder.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert folder.counts().tolist() == [3, 3]
    assert len(folder) == 6


def test_endings_of_any_case_and_folders_below_a_class_are_found(tmp_path):
    files = dict.fromkeys(["a/1.JPG", "a/2.Jpeg", "a/3.PNG", "a/more/4.webp", "a/more/deep/5.bmp"], b"x")
    assert names(scan(tree(tmp_path, files))) == [
        "a/1.JPG",
        "a/2.Jpeg",
        "a/3.PNG",
        "a/more/4.webp",
        "a/more/deep/5.bmp",
    ]


def test_hidden_files_and_leftovers_of_macs_are_ignored(tmp_path):
    files = dict.fromkeys(["a/1.jpg", "a/._1.jpg", "a/.hidden/2.jpg", "__MACOSX/a/1.jpg", ".git/3.jpg"], b"x")
    folder = scan(tree(tmp_path, files))
    assert names(folder) == ["a/1.jpg"]
    assert folder.report.findings == {}


def test_links_are_followed_and_a_circle_of_links_ends(pets, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "cat").symlink_to(pets / "cat")
    (pets / "cat" / "again").symlink_to(pets / "cat")
    assert names(scan(linked)) == ["cat/0.jpg", "cat/1.jpg", "cat/2.jpg"]


def test_other_files_are_counted_and_named(pets):
    tree(pets, {"cat/notes.txt": b"x", "dog/boxes.csv": b"x", "loose.jpg": b"x"})
    report = scan(pets).report
    assert str(report).splitlines() == [
        f"{pets}: 6 images in 2 classes",
        "  not an image: 2 (cat/notes.txt, dog/boxes.csv)",
        "  outside of a class folder: 1 (loose.jpg)",
    ]
    assert report.skipped() == [
        "left out, not an image: 2 (cat/notes.txt, dog/boxes.csv)",
        "left out, outside of a class folder: 1 (loose.jpg)",
    ]


@pytest.mark.parametrize("ending", ["gif", "tiff", "ppm", "tga", "ico", "jp2", "jfif"])
def test_every_format_of_pillow_is_read_by_its_ending(tmp_path, ending):
    noise(20, 20).convert("RGB").save(tmp_path / f"image.{ending}")
    folder = scan(tree(tmp_path / "root", {f"a/1.{ending}": (tmp_path / f"image.{ending}").read_bytes()}))
    assert len(folder) == 1
    assert folder.load(8).inputs.shape == (1, 3, 8, 8)


def test_an_image_is_known_by_its_content_where_its_ending_says_nothing(tmp_path):
    files = {
        "a/photo": jpeg(),
        "a/scan.dat": encoded(noise(9, 9), "TIFF"),
        "a/notes.md": b"BMW, P3 and GIF89 are names",
    }
    folder = scan(tree(tmp_path, files))
    assert names(folder) == ["a/photo", "a/scan.dat"]
    assert folder.report.findings == {"not an image": ["a/notes.md"]}


def test_pipes_devices_and_links_to_themselves_are_named_and_never_opened(pets, must_end):
    os.mkfifo(pets / "cat" / "pipe.jpg")
    os.mkfifo(pets / "cat" / "pipe")
    (pets / "cat" / "zero.jpg").symlink_to("/dev/zero")
    (pets / "cat" / "self.jpg").symlink_to(pets / "cat" / "self.jpg")
    (pets / "self").symlink_to(pets / "self")
    folder = scan(pets)
    assert len(folder) == 6
    expected = ["cat/pipe", "cat/pipe.jpg", "cat/self.jpg", "cat/zero.jpg"]
    assert folder.report.findings == {"not a regular file": expected}
    for name in expected:
        with pytest.raises(DataError, match=r"the image (is not a regular file|cannot be read \(Too many levels)"):
            read_image(pets / name)


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_of_an_animation_is_read_with_a_note(tmp_path, format):
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    ending = "apng" if format == "PNG" else format.lower()
    options = {"lossless": True} if format == "WEBP" else {}
    content = encoded(frames[0], format, save_all=True, append_images=frames[1:], **options)
    folder = scan(tree(tmp_path, {f"a/1.{ending}": content, "a/2.gif": encoded(frames[0], "GIF")}))
    assert folder.report.skipped() == [f"animated: 1 (a/1.{ending}); the first frame is used"]
    assert read_image(folder.paths[0])[0].min() > 250  # red
    assert read_image(folder.paths[0])[2].max() < 5  # not blue


def test_chosen_classes_keep_their_order(pets):
    tree(pets, {"fox/1.jpg": b"x"})
    folder = scan(pets, classes=["fox", "cat"])
    assert folder.classes == ("fox", "cat")
    assert folder.labels.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "{root}: expected one folder of images per class, as in {root}/cat/1.jpg, got no folders"),
        (
            {"1.jpg": b"x", "2.png": b"x"},
            "{root}: expected one folder of images per class, as in {root}/cat/1.jpg, got 2 images and no folders",
        ),
        (
            {"cat/1.jpg": b"x", "dog/notes.txt": b"x", "fox/.1.jpg": b"x"},
            "{root}: 2 of 3 class folders hold no images: dog, fox; remove them",
        ),
        (
            {"Cat/1.jpg": b"x", "cat/1.jpg": b"x"},
            "{root}: the class folders 'Cat' and 'cat' differ in case only; merge or rename them, or in Python "
            "name all with classes=",
        ),
        (
            {"train/cat/1.jpg": b"x", "val/cat/1.jpg": b"x"},
            "{root}: expected folders of classes, got the parts train, val; give one of them: {root}/train",
        ),
    ],
)
def test_a_folder_that_is_not_as_expected_names_the_way_out(tmp_path, files, message):
    with pytest.raises(DataError, match=f"^{re.escape(message.format(root=tmp_path))}$"):
        scan(tree(tmp_path, files))


def test_a_missing_folder_a_file_and_missing_classes_are_named(pets):
    with pytest.raises(DataError, match="none: the folder does not exist; give one with a folder of images per class"):
        scan(pets / "none")
    with pytest.raises(DataError, match=r"0.jpg: this is a file; give a folder with one folder of images per class"):
        scan(pets / "cat" / "0.jpg")
    with pytest.raises(DataError, match="pets: there is no folder for 2 of 3 classes: ant, bee"):
        scan(pets, classes=["ant", "bee", "cat"])


def test_folders_that_differ_in_case_are_taken_when_named(tmp_path):
    root = tree(tmp_path, {"Cat/1.jpg": b"x", "cat/1.jpg": b"x"})
    assert scan(root, classes=["Cat", "cat"]).labels.tolist() == [0, 1]


@pytest.fixture
def mixed(pets):
    """Two broken images and one of each kind beside six RGB ones."""
    image = noise(20, 20)
    image.putalpha(100)
    files = {
        "cat/empty.jpg": b"",
        "dog/words.jpg": b"these are words",
        "dog/grey.jpg": encoded(noise(20, 20).convert("L")),
        "dog/ink.jpg": encoded(noise(20, 20).convert("CMYK")),
        "dog/glass.png": encoded(image, "PNG"),
        "dog/deep.png": encoded(Image.new("I;16", (20, 20)), "PNG"),
        "dog/few.png": encoded(noise(20, 20).convert("P"), "PNG"),
    }
    return scan(tree(pets, files))


def broken_message(root):
    return (
        f"{root}: 2 of 13 images are broken: cat/empty.jpg is empty (0 bytes), dog/words.jpg is not in a format "
        "that Pillow reads; replace them, or leave them out with skip_broken=True (--skip-broken)"
    )


def test_broken_images_stop_with_their_number_and_the_way_out(mixed):
    for call in (mixed.check, lambda: mixed.load(8)):
        with pytest.raises(DataError, match=f"^{re.escape(broken_message(mixed.root))}$"):
            call()


def test_broken_images_are_left_out_by_choice_and_all_kinds_are_counted(mixed):
    folder = mixed.check(skip_broken=True)
    assert len(folder) == 11
    assert str(folder.report).splitlines() == [
        f"{mixed.root}: 11 images in 2 classes",
        "  broken: 2 (cat/empty.jpg is empty (0 bytes), dog/words.jpg is not in a format that Pillow reads)",
        "  grey, converted: 1 (dog/grey.jpg)",
        "  palette, converted: 1 (dog/few.png)",
        "  alpha, converted: 1 (dog/glass.png)",
        "  16-bit, converted: 1 (dog/deep.png)",
        "  CMYK, converted: 1 (dog/ink.jpg)",
    ]
    assert len(folder.check().report.findings["broken"]) == 2


def test_a_class_whose_images_are_all_broken_is_reported_as_empty(tmp_path):
    folder = scan(tree(tmp_path, {"cat/1.jpg": jpeg(), "dog/1.jpg": b"x"})).check(skip_broken=True)
    assert folder.report.findings["empty"] == ["dog"]
    assert folder.counts().tolist() == [1, 0]


def test_a_report_lists_the_first_few_of_many(tmp_path):
    folder = scan(tree(tmp_path, {f"a/{i}.jpg": b"" for i in range(8)} | {"a/9.jpg": jpeg()}))
    with pytest.raises(DataError, match=r"8 of 9 images .* a/4.jpg is empty \(0 bytes\) and 3 more; replace"):
        folder.check()


def test_a_loaded_folder_holds_what_reading_each_file_gives(pets):
    folder = scan(pets)
    examples = folder.load(12, crop=0.9)
    expected = torch.stack([read_image(path, size=12, crop=0.9) for path in folder.paths])
    assert torch.equal(examples.inputs, expected)
    assert torch.equal(examples.labels, folder.labels)
    assert examples.classes == folder.classes
    assert folder.load(12, channels=1).inputs.shape == (6, 1, 12, 12)


def test_workers_load_what_this_process_loads(pets, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    tree(pets, {"cat/broken.jpg": b"x"})
    folder = scan(pets)
    one, two = (folder.load(8, skip_broken=True, workers=workers) for workers in (0, 2))
    assert torch.equal(one.inputs, two.inputs)
    assert torch.equal(one.labels, two.labels)
    assert len(one) == 6


def test_a_set_that_does_not_fit_names_the_memory_and_the_way_out(pets, monkeypatch):
    monkeypatch.setattr(module, "free_memory", lambda: 1000)
    message = (
        "6 images of 3 x 64 x 64 take 0.0 GB of memory and 0.0 GB are free; decode them as they are needed "
        "(FolderBatches), or take a smaller size"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        scan(pets).load(64)


def test_the_free_memory_is_known_here():
    assert module.free_memory() > 1e6


def test_equal_classes_pass_and_differing_ones_are_listed(tmp_path):
    train = scan(tree(tmp_path / "train", dict.fromkeys(["cat/1.jpg", "dog/1.jpg", "Fox/1.jpg"], b"x")))
    same = scan(tree(tmp_path / "same", dict.fromkeys(["cat/1.jpg", "dog/1.jpg", "Fox/1.jpg"], b"x")))
    other = scan(tree(tmp_path / "other", dict.fromkeys(["cat/1.jpg", "fox/1.jpg"], b"x")))
    compare_classes(train, same)
    message = (
        "training and validation must have the same classes, but 2 only in training: Fox, dog; 1 only in validation: "
        "fox; rename the folders, or scan both with classes= the names they share"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        compare_classes(train, other)
    with pytest.raises(DataError, match="the same but in another order: their labels differ; scan the validation"):
        compare_classes(train, scan(same.root, classes=["cat", "dog", "Fox"]))
