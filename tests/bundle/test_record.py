import json
import shutil
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from made_bundles import CLASSES, image_bundle

from openradial.bundle import BundleRecord, describe, save
from openradial.bundle.record import record_checksum
from openradial.errors import BundleError

RECORD = "bundle.json"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save(image_bundle(), tmp_path_factory.mktemp("saved") / "deep" / "model")


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of a bundle."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def rewritten(folder, **changes):
    """Return the path of a record with other values; None removes one."""
    values = json.loads((folder / RECORD).read_text()) | changes
    values = {name: value for name, value in values.items() if value is not ...}
    (folder / RECORD).write_text(json.dumps(values | {"checksum": record_checksum(values)}))
    return folder / RECORD


def test_a_folder_holds_three_files_and_nothing_pickled(saved):
    folder = saved
    assert sorted(path.name for path in folder.iterdir()) == ["bundle.json", "card.md", "weights.safetensors"]
    values = json.loads((folder / RECORD).read_text())
    assert values["schema"] == 2
    assert values["decision"]["thresholds"]["0.1"] == image_bundle().rejector.threshold(0.1)
    assert values.items() >= asdict(describe(folder)).items()
    assert [path.name for path in folder.parent.iterdir()] == ["model"]  # nothing is left beside it


def test_a_record_is_read_as_it_was_written(folder):
    record = BundleRecord.read(folder / RECORD)
    assert record.to_json() == (folder / RECORD).read_text()
    assert record.classes == list(CLASSES)
    assert record.network == {"name": "mlp", "options": {"inputs": 64, "hidden": [16, 8]}, "parameters": 1203}
    assert [each["layer"] for each in record.scorers] == ["outputs", "classifier:input", "inputs"]


@pytest.mark.parametrize("schema", [1, 3, "2", None, 2.5, 10**9])
def test_a_bundle_of_another_schema_is_refused(folder, schema):
    path = rewritten(folder, schema=schema)
    with pytest.raises(BundleError) as raised:
        BundleRecord.read(path)
    assert str(raised.value) == (
        f"{folder} is a bundle of schema {schema!r}, and this version of openradial reads schema 2; fit the model "
        "again, or install the version that wrote it"
    )


@pytest.mark.parametrize("name", [each.name for each in fields(BundleRecord)])
def test_a_missing_field_is_named(folder, name):
    path = rewritten(folder, **{name: ...})
    with pytest.raises(BundleError, match=rf"bundle.json is incomplete: {name} is missing$"):
        BundleRecord.read(path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("classes", 3, "classes must be a JSON list, got 3"),
        ("classes", {"a": 1}, "classes must be a JSON list, got {'a': 1}"),
        ("classes", None, "classes must be a JSON list, got None"),
        ("classes", ["a", 3], "classes[1] must be a JSON string, got 3"),
        ("scorers", ["outputs"], "scorers[0] must be a JSON object, got 'outputs'"),
        ("scorers", [{"kind": "head"}], "scorers[0] has no 'layer'"),
        ("scorers", [{"layer": "outputs"}], "scorers[0] has no 'kind'"),
        ("network", [], "network must be a JSON object, got []"),
        ("network", {"name": "mlp", "options": {}}, "network has no 'parameters'"),
        (
            "network",
            {"name": "mlp", "options": [], "parameters": 3},
            "network['options'] must be a JSON object, got []",
        ),
        ("preprocessing", {"size": 8}, "preprocessing has no 'kind'"),
        ("head", {"kind": "RadialHead"}, "head has no 'settings'"),
        ("head", None, "head must be a JSON object, got None"),
        ("combination", {"kind": "Combination"}, "combination has no 'settings'"),
        ("decision", 0.05, "decision must be a JSON object, got 0.05"),
        ("decision", {"kind": "Rejector", "settings": {}}, "decision has no 'thresholds'"),
        ("metadata", "none", "metadata must be a JSON object, got 'none'"),
        ("versions", {"torch": 2}, "versions['torch'] must be a JSON string, got 2"),
        (
            "files",
            {"weights.safetensors": "sha256:1"},
            "files['weights.safetensors'] must be a JSON object, got 'sha256:1'",
        ),
    ],
)
def test_a_value_of_another_type_is_named(folder, name, value, message):
    path = rewritten(folder, **{name: value})
    with pytest.raises(BundleError) as raised:
        BundleRecord.read(path)
    assert str(raised.value) == f"{path}: {message}"


@pytest.mark.parametrize("name", ["combination", "decision"])
def test_parts_that_a_model_may_lack_are_null(folder, name):
    assert getattr(BundleRecord.read(rewritten(folder, **{name: None})), name) is None


def test_a_long_value_is_cut_in_the_message(folder):
    path = rewritten(folder, metadata="x" * 1000)
    with pytest.raises(BundleError) as raised:
        BundleRecord.read(path)
    assert len(str(raised.value)) < len(str(path)) + 150
