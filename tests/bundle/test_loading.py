import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_bundles import CLASSES, assert_close, image_bundle, pixels, point_bundle
from test_parts import assert_equal_bundles

from openradial.bundle import describe, load, loading, save
from openradial.bundle import record as records
from openradial.bundle.record import record_checksum
from openradial.data.download import checksum
from openradial.errors import BundleError
from openradial.files import read_tensors, write_tensors

RECORD, WEIGHTS = "bundle.json", "weights.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save(image_bundle(), tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of a bundle."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def rewrite(folder, change, *, sign=True):
    """Change what ``bundle.json`` says, with the checksum that belongs to it."""
    record = json.loads((folder / RECORD).read_text())
    change(record)
    if sign:
        record["checksum"] = record_checksum(record)
    (folder / RECORD).write_text(json.dumps(record))


def rewrite_weights(folder, change):
    """Change the tensors, with the checksums that belong to them."""
    tensors, header = read_tensors(folder / WEIGHTS)
    change(tensors)
    write_tensors(folder / WEIGHTS, tensors, header)
    size, digest = (folder / WEIGHTS).stat().st_size, checksum(folder / WEIGHTS, "sha256")
    rewrite(folder, lambda record: record["files"][WEIGHTS].update(bytes=size, checksum=digest))


def refusal(folder, **options):
    with pytest.raises(BundleError) as raised:
        load(folder, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    assert refusal(tmp_path / "none") == f"expected the folder of a bundle, but {tmp_path / 'none'} does not exist"


def test_a_file_is_no_folder(folder):
    assert refusal(folder / RECORD) == f"expected the folder of a bundle, but {folder / RECORD} is a file"


@pytest.mark.parametrize("name", [RECORD, WEIGHTS])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    assert refusal(folder) == f"the bundle in {folder} is incomplete: {name} is missing; take another copy of it"


def test_half_of_the_weights_are_refused(folder):
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])
    expected = f"{folder / WEIGHTS} is incomplete: it has {len(data) // 2:,} bytes instead of {len(data):,}; take"
    assert refusal(folder).startswith(expected)


def test_changed_weights_are_refused(folder):
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-3] ^= 1
    (folder / WEIGHTS).write_bytes(data)
    assert refusal(folder) == (
        f"{folder / WEIGHTS} is not what was saved: its checksum differs; take another copy of the bundle"
    )


def test_a_changed_record_is_refused(folder):
    rewrite(folder, lambda record: record["preprocessing"].update(mean=[0.5]), sign=False)
    assert refusal(folder) == (f"{folder / RECORD} was changed after it was written; take another copy of the bundle")


def test_another_layout_of_the_same_record_is_read(folder):
    rewrite(folder, lambda record: None, sign=False)
    assert load(folder).classes == CLASSES


@pytest.mark.parametrize(("value", "kind"), [(torch.nan, "nan"), (-torch.inf, "infinite values")])
def test_weights_with_nan_or_infinity_are_refused(folder, value, kind):
    rewrite_weights(folder, lambda tensors: tensors["network.classifier.bias"][1:2].fill_(value))
    assert refusal(folder) == (
        f"the weights of {folder} must be finite, and 'network.classifier.bias' holds {kind}: "
        "training went wrong; train again"
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_weights_of_half_precision_are_loaded_as_float32(folder, dtype):
    name = "network.classifier.bias"
    stored = {}
    rewrite_weights(folder, lambda tensors: stored.update({name: tensors[name].to(dtype)}) or tensors.update(stored))
    bias = load(folder).net.classifier.bias
    assert bias.dtype == torch.float32
    assert torch.equal(bias, stored[name].float())


def test_whole_numbers_are_no_weights(folder):
    name = "network.classifier.bias"
    rewrite_weights(folder, lambda tensors: tensors.update({name: tensors[name].long()}))
    assert "cannot be loaded: " in refusal(folder)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int32, torch.bool])
def test_weights_of_another_kind_are_refused(folder, dtype):
    rewrite_weights(folder, lambda t: t.update({"network.classifier.bias": t["network.classifier.bias"].to(dtype)}))
    assert f"'classifier.bias' should be (3,) and is (3,) of {dtype}" in refusal(folder)


@pytest.fixture
def allocations(monkeypatch):
    """The sizes of all parameters with memory that are made."""
    sizes, new = [], torch.nn.Parameter.__new__

    def counted(cls, data=None, requires_grad=True):
        sizes.append(0 if data is None or data.is_meta else data.numel())
        return new(cls, data, requires_grad)

    monkeypatch.setattr(torch.nn.Parameter, "__new__", counted)
    return sizes


def test_shapes_are_compared_before_anything_is_allocated(folder, allocations):
    rewrite(folder, lambda record: record["network"]["options"].update(hidden=[30_000, 30_000]))
    assert refusal(folder).endswith("'hidden.fc1.weight' should be (30000, 64) and is (16, 64)")
    assert allocations
    assert max(allocations) < 10_000


@pytest.mark.parametrize(
    ("name", "options"),
    [("mlp", {"inputs": 64, "hidden": [2] * 100_000}), ("gru", {"channels": 2, "hidden": 6, "layers": 100_000})],
)
def test_a_network_of_too_many_layers_is_not_built(folder, allocations, name, options):
    rewrite(folder, lambda record: record["network"].update(name=name, options=options))
    assert refusal(folder).endswith("the network has more layers than the bundle has weights for")
    assert len(allocations) < 1000


@pytest.mark.parametrize("part", ["head", "scorers"])
def test_sizes_in_the_settings_of_a_head_are_compared_with_its_tensors(folder, part):
    def change(record):
        (record[part] if part == "head" else record[part][0])["settings"].update(num_classes=10**9)

    rewrite(folder, change)
    assert refusal(folder).endswith(
        "the settings do not fit the weights: the RadialHead has num_classes=1000000000, and its tensors have at "
        "most 1024"
    )


def test_weights_of_another_shape_are_refused(folder):
    rewrite_weights(folder, lambda tensors: tensors.update({"network.classifier.bias": torch.zeros(4)}))
    assert refusal(folder) == (
        f"the bundle in {folder} cannot be loaded: the weights do not fit the MLP: 'classifier.bias' "
        "should be (3,) and is (4,)"
    )


def test_missing_and_additional_weights_are_named(folder):
    rewrite_weights(folder, lambda tensors: tensors.pop("network.classifier.bias"))
    assert "'classifier.bias' should be (3,) and is missing" in refusal(folder)
    rewrite_weights(folder, lambda tensors: tensors.update({"network.classifier.bias": torch.zeros(3)}))
    rewrite_weights(folder, lambda tensors: tensors.update({"extra": torch.zeros(1)}))
    assert refusal(folder).endswith("the weights hold 'extra', which belongs to no part of the bundle")


@pytest.mark.parametrize("name", ["../weights.safetensors", "/etc/passwd", "code.py"])
def test_other_files_than_the_weights_are_never_opened(folder, name):
    rewrite(folder, lambda record: record.update(files={name: record["files"][WEIGHTS]}))
    assert refusal(folder) == (
        f"a bundle has {WEIGHTS} beside its record and no other file, and {folder} names {name!r}"
    )


@pytest.mark.parametrize("name", [RECORD, WEIGHTS])
def test_a_link_out_of_the_folder_is_not_followed(folder, tmp_path, name):
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    assert refusal(folder) == f"{folder / name} links to a file outside the bundle; copy the file itself"


def test_text_that_is_not_utf8_is_refused(folder):
    (folder / RECORD).write_bytes(b'{"format": "\xff"}')
    assert refusal(folder) == f"{folder / RECORD} is not UTF-8 from byte 12 on; take another copy of it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not valid JSON (Expecting value: line 1 column 1 (char 0)); take another copy of it"),
        ("[" * 100_000, "is not valid JSON (maximum recursion depth exceeded"),
        ('{"a": NaN}', "is not valid JSON (NaN is not a JSON number); take another copy of it"),
        ("1" * 5000, "is not valid JSON (Exceeds the limit"),
        ("[1]", "must hold a JSON object, got a list"),
        ("{}", "is not the record of a bundle; name the folder that openradial fit wrote"),
    ],
)
def test_text_that_is_no_record_is_refused(folder, text, message):
    (folder / RECORD).write_text(text)
    assert refusal(folder).startswith(f"{folder / RECORD} {message}")


def test_a_huge_record_is_not_even_read(folder, monkeypatch):
    monkeypatch.setattr(records, "LARGEST", 1000)
    size = (folder / RECORD).stat().st_size
    assert refusal(folder) == f"{folder / RECORD} has {size:,} bytes, more than the 1,000 of any record"


@pytest.mark.parametrize("name", ["os:system", "pickle:loads", "mypackage.nets:make"])
def test_no_code_is_loaded_from_a_module_that_the_user_did_not_name(folder, name):
    rewrite(folder, lambda record: record["network"].update(name=name))
    module = name.partition(":")[0]
    expected = (
        f"the network of {folder} is {name}, and code is loaded only from modules that you name; "
        f"if you trust it, load with modules=[{module!r}] (--module {module})"
    )
    assert refusal(folder) == expected
    assert refusal(folder, modules=["another", f"{module}.below"]) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.pop("head"), "head is missing"),
        (
            lambda record: record.update(classes=["a"]),
            "classes must name every class of the head: 3 classes but 1 names",
        ),
        (lambda record: record.update(classes=3), "classes must be a JSON list"),
        (lambda record: record["head"].update(kind="Combination"), "do not fit this version"),
        (lambda record: record["head"].update(kind="os.system"), "there is no head 'os.system'"),
        (lambda record: record["head"]["settings"].update(beta=-1), "beta must be a finite number above 0"),
        (lambda record: record["head"]["settings"].update(what=1), "do not fit this version of openradial"),
        (lambda record: record["network"].update(name="mlpp"), "there is no network 'mlpp'; did you mean 'mlp'"),
        (lambda record: record["network"]["options"].update(hidden="x"), "hidden must be a tuple of whole numbers"),
        (
            lambda record: record["network"]["options"].update(weights="imagenet"),
            "in the bundle, and 'weights' is not one",
        ),
        (lambda record: record["preprocessing"].update(kind="smells"), "there are no inputs of the kind 'smells'"),
        (
            lambda record: record["preprocessing"].update(resized="nearest"),
            "images are resized 'bilinear, antialiased'",
        ),
        (lambda record: record["preprocessing"].update(size=-8), "size must be a whole number of at least 1"),
        (lambda record: record["preprocessing"].pop("mean"), "it has no 'mean'"),
        (lambda record: record.update(scorers=[]), "the weights hold 'scorers.*belongs to no part"),
        (lambda record: record["files"][WEIGHTS].update(bytes=None), "must be a JSON whole number, got None"),
        (lambda record: record["files"][WEIGHTS].pop("checksum"), "has no 'checksum'"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused_in_one_sentence(folder, change, message):
    rewrite(folder, change)
    assert re.search(message, refusal(folder))


def move(folder, before, after):
    """Let the tensors of one part be those of another."""

    def change(tensors):
        for name in [name for name in tensors if name.startswith(after)]:
            del tensors[name]
        for name in [name for name in tensors if name.startswith(before)]:
            tensors[name.replace(before, after)] = tensors[name].clone()

    rewrite_weights(folder, change)


def test_a_scorer_is_no_head(folder):
    move(folder, "scorers.2.", "head.")
    rewrite(folder, lambda record: record.update(head=record["scorers"][2]))
    assert refusal(folder).endswith("the head must classify, and a MahalanobisScorer does not")


def test_a_scorer_is_no_combination(folder):
    move(folder, "scorers.2.", "combination.")
    rewrite(folder, lambda record: record.update(combination=record["scorers"][2]))
    assert refusal(folder).endswith("the combination must be a Combination, and is a MahalanobisScorer")


def test_a_part_without_its_fitted_tensors_is_refused(folder):
    rewrite_weights(folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if "scorers.1" in name])
    assert refusal(folder).endswith("the NeighbourScorer of the bundle lacks its fitted tensors")


def test_a_relative_distance_needs_the_covariance_of_all_data(folder):
    rewrite(folder, lambda record: record["scorers"][2]["settings"].update(relative=True))
    rewrite_weights(folder, lambda tensors: tensors.update({"scorers.2.overall_whitening": torch.empty(0, 1)}))
    assert refusal(folder).endswith("the MahalanobisScorer of the bundle lacks its fitted tensors")


@pytest.mark.parametrize("name", [RECORD, WEIGHTS])
def test_a_disk_that_fails_is_one_sentence(folder, monkeypatch, name):
    def fails(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(*((Path, "read_bytes") if name == RECORD else (loading, "mismatch")), fails)
    assert refusal(folder) == f"{folder / name} cannot be read (Input/output error)"


def test_weights_that_are_not_safetensors_are_refused(folder):
    (folder / WEIGHTS).write_bytes(b"noise" * 9)
    digest = checksum(folder / WEIGHTS, "sha256")
    rewrite(folder, lambda record: record["files"][WEIGHTS].update(bytes=45, checksum=digest))
    assert refusal(folder).startswith(f"{folder / WEIGHTS} is not a complete safetensors file (Error while ")


def test_inspecting_checks_the_weights_too(folder):
    (folder / WEIGHTS).write_bytes(b"")
    with pytest.raises(BundleError, match="is incomplete: it has 0 bytes"):
        describe(folder)


def test_a_model_card_is_for_people_and_may_be_changed_or_lost(folder):
    (folder / "card.md").unlink()
    assert load(folder).classes == CLASSES


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The files of a small bundle, and the bundle."""
    bundle = point_bundle()
    folder = save(bundle, tmp_path_factory.mktemp("complete") / "model")
    return bundle, folder, tmp_path_factory.mktemp("damaged")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_is_a_bundle_error_or_does_no_harm(small, data):
    bundle, complete, root = small
    shutil.rmtree(root / "model", ignore_errors=True)
    shutil.copytree(complete, root / "model")
    path = root / "model" / data.draw(st.sampled_from([RECORD, WEIGHTS, "card.md"]))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "zero"]))
    if kind == "flip":
        content[at] ^= data.draw(st.integers(1, 255))
    elif kind == "insert":
        content[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    else:
        content[at:] = b"" if kind == "cut" else bytes(len(content) - at)
    path.write_bytes(content)
    try:
        loaded = load(root / "model")
    except BundleError:
        return
    assert_equal_bundles(loaded, bundle)


JSON_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 99),
    st.just(2**80),
    st.floats(allow_nan=False),
    st.text(max_size=9),
    st.just([]),
    st.just({}),
    st.lists(st.integers(-2, 5), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(0, 4), max_size=2),
)


def paths_in(value, at=()):
    """Yield the path to everything inside a JSON value."""
    yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from paths_in(child, (*at, key))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_forged_record_is_a_bundle_error_or_makes_a_bundle(small, data):
    _, complete, root = small
    shutil.rmtree(root / "model", ignore_errors=True)
    shutil.copytree(complete, root / "model")
    record = json.loads((complete / RECORD).read_text())
    *path, last = data.draw(st.sampled_from([at for at in paths_in(record) if at]))
    parent = record
    for key in path:
        parent = parent[key]
    if data.draw(st.booleans()):
        parent[last] = data.draw(JSON_VALUES)
    else:
        del parent[last]
    record["checksum"] = record_checksum(record)
    (root / "model" / RECORD).write_text(json.dumps(record))
    try:
        made = load(root / "model")
    except BundleError:
        return
    assert made.head.num_classes == len(made.classes)


def test_threads_may_predict_with_one_bundle_of_plain_scores():
    bundle = image_bundle(scorers=None)
    batches = [pixels(30, seed=seed) for seed in range(1, 13)]  # seed 0 calibrated it: its p-values sit on a step
    expected = [bundle.predict(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for predictions, alone in zip(pool.map(bundle.predict, batches), expected, strict=True):
            assert_close(predictions, alone)  # another thread may use other kernels
