from made_bundles import image_bundle, point_bundle, table_bundle
from test_parts import head_as_scorer

from openradial.bundle import describe, load, save
from openradial.bundle.card import sections


def test_the_card_names_classes_network_decision_and_facts(tmp_path):
    text = (save(image_bundle(), tmp_path / "model") / "card.md").read_text()
    for fact in ("a bird", "mlp", "NeighbourScorer", "false\\_reject\\_rate: 0.1", "measured: 0.0625", "sha256:"):
        assert fact in text


def test_the_card_survives_names_that_mean_something_to_markdown(tmp_path):
    bundle = point_bundle()
    odd = bundle.replace(classes=("# a", "`b`\n<i>", "c|d"))
    text = (save(odd, tmp_path / "model") / "card.md").read_text()
    assert "\\# a, \\`b\\` \\<i\\>, c\\|d" in text
    assert load(tmp_path / "model").classes == odd.classes


def test_the_card_says_which_score_is_that_of_the_head(tmp_path):
    text = (save(head_as_scorer(), tmp_path / "model") / "card.md").read_text()
    assert "outputs: score of the head" in text


def test_a_model_without_rejector_says_so(tmp_path):
    record = describe(save(image_bundle(rejector=False), tmp_path / "model"))
    assert sections(record)["Decision"] == {"rejector": "none: nothing is predicted as unknown"}


def test_columns_of_a_table_are_counted_and_not_listed(tmp_path):
    record = describe(save(table_bundle(), tmp_path / "model"))
    assert sections(record)["Inputs"]["columns"] == {"length": "numbers", "colour": "2 words"}
