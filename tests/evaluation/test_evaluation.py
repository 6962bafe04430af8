import json
import math

import numpy as np
import pytest
from evaluation_models import image_bundle, point_bundle, table_bundle
from PIL import Image

from openradial.classifier import OpenClassifier
from openradial.data.sources import RawInput
from openradial.errors import DataError, HeadError, OptionError
from openradial.evaluation import Sample, evaluate, known_sample, novel_sample
from openradial.evaluation.evaluation import find_mistakes

KNOWN = [((1, 0), 0), ((0.9, 0), 0), ((0.4, 0.5), 0), ((0, 1), 1), ((0, 0.8), 1), ((3, 3), 1)]
NOVEL = [(5, 5), (0.8, 0.1), (-4, 2)]


def samples():
    rows = [RawInput(f"k{i}", {"x": x, "y": y, "word": "left"}) for i, ((x, y), _) in enumerate(KNOWN)]
    known = Sample("known", rows, np.array([k for _, k in KNOWN]), tuple("ab"[k] for _, k in KNOWN))
    rows = [RawInput(f"n{i}", {"x": x, "y": y, "word": "left"}) for i, (x, y) in enumerate(NOVEL)]
    return known, Sample("novel", rows, np.full(3, -1), ("c", "d", "c"))


def by_hand(point):
    """Distance to the nearest prototype and its class."""
    distances = [math.dist(point, p) for p in ((1, 0), (0, 1))]
    return min(distances), distances.index(min(distances))


def test_the_numbers_are_those_of_loops_over_the_examples():
    known, novel = samples()
    found = evaluate(table_bundle(), known, [novel])
    near = [(*by_hand(point), k) for point, k in KNOWN]
    far = [by_hand(point)[0] for point in NOVEL]
    limit = 0.8  # the 80th of the 99 calibration distances 0.01 ... 0.99
    assert found.threshold == pytest.approx(limit)
    assert found.accuracy.value == sum(c == k for _, c, k in near) / len(near)
    assert found.false_rejects.rejected == sum(d > limit for d, _, _ in near)
    accepted = [(c, k) for d, c, k in near if d <= limit]
    assert found.accepted_accuracy == sum(c == k for c, k in accepted) / len(accepted)
    (numbers,) = found.novel_metrics
    assert numbers.detected == sum(d > limit for d in far) / len(far)
    pairs = [(d < e) + 0.5 * (d == e) for d, _, _ in near for e in far]
    assert numbers.metrics["auroc"].value == pytest.approx(sum(pairs) / len(pairs))
    assert json.dumps(found.as_dict())


def test_the_calibration_error_counts_novel_inputs_as_wrong():
    known, novel = samples()
    found = evaluate(table_bundle(), known, [novel])
    all_points = [(point, k) for point, k in KNOWN] + [(point, -1) for point in NOVEL]
    for error, points in ((found.ece, KNOWN), (found.open_ece, all_points)):
        bins = [[] for _ in range(15)]
        for point, k in points:
            distance, nearest = by_hand(point)
            probability = math.exp(-distance)
            bins[max(0, math.ceil(probability * 15) - 1)].append((probability, nearest == k))
        gaps = (abs(sum(p for p, _ in own) - sum(right for _, right in own)) for own in bins if own)
        assert error == pytest.approx(sum(gaps) / len(points), rel=1e-5)


def test_another_rate_may_be_asked_for():
    known, novel = samples()
    strict = evaluate(table_bundle(), known, [novel], false_reject_rate=0.9)
    assert strict.false_rejects.asked == 0.9
    assert strict.novel_metrics[0].detected == 1


def test_several_novel_sets_are_also_counted_together():
    known, novel = samples()
    other = Sample("other", novel.rows[:1], novel.labels[:1], novel.truths[:1])
    found = evaluate(table_bundle(), known, [novel, other])
    assert [(each.name, each.examples) for each in found.novel_metrics] == [
        ("novel", 3),
        ("other", 1),
        ("all novel sets", 4),
    ]


def test_without_novel_data_the_known_ones_are_measured():
    found = evaluate(table_bundle(), samples()[0], [])
    assert found.novel_metrics == ()
    assert found.open_ece == found.ece


def test_mistakes_come_with_the_most_telling_first():
    found = evaluate(table_bundle(), *[[each] if i else each for i, each in enumerate(samples())])
    novel, misclassified, rejected = find_mistakes(found)
    assert [(m.row.name, m.true, m.predicted) for m in novel] == [("n1", "d", "a")]
    assert [(m.row.name, m.true, m.predicted) for m in misclassified] == [("k2", "a", "b")]
    assert [(m.row.name, m.true, m.predicted) for m in rejected] == [("k5", "b", "unknown")]


def test_inputs_that_cannot_be_read_are_left_out_and_named():
    known, novel = samples()
    rows = [*known.rows[:2], RawInput("bad", {"x": "?", "y": "no", "word": "left"}), *known.rows[2:]]
    labels = np.insert(known.labels, 2, 0)
    broken = Sample("known", rows, labels, (*known.truths[:2], "a", *known.truths[2:]))
    found = evaluate(table_bundle(), broken, [novel])
    assert found.as_dict()["broken"] == ["bad"]
    assert found.accuracy == evaluate(table_bundle(), known, [novel]).accuracy
    alone = Sample("known", rows[2:3], labels[2:3], ("a",))
    with pytest.raises(
        DataError, match="no input of known could be read; the first: bad: column 'y': expected a number"
    ):
        evaluate(table_bundle(), alone, [])


def test_a_score_that_is_no_number_counts_as_unknown():
    bundle = point_bundle()
    known = Sample("k", [RawInput("a", [1.0, 0.0]), RawInput("b", [0.0, 1.0])], np.array([0, 1]), ("a", "b"))
    unseen = Sample("n", [RawInput("n", [float("nan"), 0.0])], np.array([-1]), ("n",))
    assert evaluate(bundle, known, [unseen]).novel_metrics[0].detected == 1


def test_a_model_that_rejects_nothing_cannot_be_evaluated():
    full = table_bundle()
    bare = OpenClassifier(full.net, full.head)
    bundle = bare.replace(
        network=(full.network[0], full.network[1]), classes=full.classes, preprocessing=full.preprocessing
    )
    with pytest.raises(HeadError, match="the model has no rejector, so it rejects no input"):
        evaluate(bundle, samples()[0], [])


def write_folder(root, classes):
    for place, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(2):
            Image.fromarray(np.full((2, 2), 40 * place, np.uint8)).save(root / name / f"{i}.png")
    return root


def test_of_a_folder_known_takes_the_known_classes_and_novel_the_others(tmp_path):
    root = write_folder(tmp_path / "animals", ["a", "b", "owl"])
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(root / "loose.png")
    (root / "a" / "notes.md").write_text("no image")
    known, novel = known_sample(image_bundle(), str(root)), novel_sample(image_bundle(), str(root))
    assert (known.labels.tolist(), known.truths) == ([0, 0, 1, 1], ("a", "a", "b", "b"))
    skipped = "left out, not an image: 1 (a/notes.md)"
    loose = "left out, outside of a class folder: 1 (loose.png)"
    assert known.notes == (f"left out of {root}: owl, which the model does not know", skipped, loose)
    assert (novel.truths, novel.labels.tolist()) == (("animals", "owl", "owl"), [-1] * 3)
    assert novel.notes == (f"left out of {root}: a, b, which the model knows", skipped)
    assert novel.name.endswith("animals, other classes")


def test_of_a_table_rows_are_told_apart_by_their_label(tmp_path):
    (tmp_path / "t.csv").write_text("x,y,word,kind\n1,0,left,a\n0,1,right,b\n5,5,left,c\n")
    bundle = table_bundle(facts={"data": {"label": "kind", "name": "t.csv"}})
    known = known_sample(bundle, str(tmp_path / "t.csv"))
    assert [row.raw["word"] for row in known.rows] == ["left", "right"]
    assert known.notes[-1] == "the model was fitted on data called t.csv: if it is these, the numbers are too good"
    assert len(novel_sample(bundle, str(tmp_path / "t.csv"), "kind").rows) == 1
    novel = novel_sample(bundle, str(tmp_path / "t.csv"))  # the label of the fit
    assert ([row.raw["x"] for row in novel.rows], novel.truths) == ([5.0], ("c",))
    assert novel.notes == (f"left out of {tmp_path / 't.csv'}: a, b, which the model knows",)
    with pytest.raises(OptionError, match="a table needs the column that holds the classes"):
        known_sample(table_bundle(), str(tmp_path / "t.csv"))


@pytest.mark.parametrize("text", ["x,y,word\n1,0,left\n5,5,left\n", "x,y,word,kind\n1,0,left,\n5,5,left,\n"])
def test_novel_rows_of_a_table_need_no_labels(tmp_path, text):
    (tmp_path / "n.csv").write_text(text)
    novel = novel_sample(table_bundle(facts={"data": {"label": "kind"}}), str(tmp_path / "n.csv"))
    assert novel.truths == (f"{tmp_path.name}/n.csv",) * 2
    with pytest.raises(DataError, match="kind"):  # a label that is asked for must be there
        novel_sample(table_bundle(), str(tmp_path / "n.csv"), "kind")


def test_of_a_set_its_test_part_is_taken():
    bundle = image_bundle(classes=("3", "7"))
    assert len(known_sample(bundle, "digits").rows) == 71
    assert len(novel_sample(bundle, "digits").rows) == 355 - 71


def test_images_of_an_npz_file_are_novel_data(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 2, 2), np.uint8), y=["a", "owl", "owl"])
    assert len(novel_sample(image_bundle(), str(tmp_path / "x.npz")).rows) == 3
    named = novel_sample(image_bundle(), str(tmp_path / "x.npz"), "y")
    assert named.truths == ("owl", "owl")
    assert known_sample(image_bundle(), str(tmp_path / "x.npz")).truths == ("a",)


@pytest.mark.parametrize(
    ("make", "data", "message"),
    [
        (known_sample, "spiral", "the model takes images, but spiral holds points"),
        (known_sample, "digits", "holds none of the classes that the model knows: it has 0, 1, 2"),
        (novel_sample, "spiral", "the model takes images, but spiral holds points"),
    ],
)
def test_data_of_another_kind_or_class_are_refused(make, data, message):
    with pytest.raises(DataError, match=message):
        make(image_bundle(), data)


def test_novel_data_must_hold_something_novel(tmp_path):
    root = write_folder(tmp_path / "known", ["a", "b"])
    with pytest.raises(DataError, match="holds no novel data: the model knows all of its classes"):
        novel_sample(image_bundle(), str(root))
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"none holds no novel data$"):
        novel_sample(image_bundle(), str(tmp_path / "none"))
    (tmp_path / "t.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match=r"the model takes images, but .*t\.csv holds table"):
        novel_sample(image_bundle(), str(tmp_path / "t.csv"))
