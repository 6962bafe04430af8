import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from openradial.errors import TrainingError
from paper import CLAIMS, find, write_report
from paper.claims import Claim
from paper.report import markdown, summarise, table

VERSIONS = {"openradial": "1.0", "torch": "2.0", "python": "3.11"}
MADE_UP = Claim(
    number=1,
    text="One is <less> than two.",
    paper="1 < 2 | always",
    rule="Reproduced: it is. Partly: no. Not reproduced: otherwise.",
    experiments=("fig1",),
    measure=lambda results: {"one": results["fig1"]["values"]},
    verdict=lambda measures: "reproduced" if max(measures["one"]) < 2 else "not reproduced",
)


@pytest.fixture(scope="module")
def partial(tmp_path_factory, tiny_record, tiny_plan):
    """A report about two of the experiments."""
    folder = tmp_path_factory.mktemp("partial")
    for id in ("fig4", "fig1"):
        tiny_record(id)
        (folder / f"{id}.json").write_text((tiny_plan.folder / f"{id}.json").read_text())
    (folder / "fig4.svg").write_text("<svg/>")  # as if the run had been killed before the picture of figure 1
    markdown, html = write_report(folder)
    return markdown.read_text(), html.read_text()


def test_a_report_about_some_experiments_has_these_in_the_papers_order(partial):
    for text in partial:
        places = [text.index(find(id).title) for id in ("fig1", "fig4")]
        assert places == sorted(places)
        assert find("fig3").title not in text


def test_every_claim_is_in_the_table_also_where_nothing_was_run(partial):
    for text in partial:
        for claim in CLAIMS:
            assert f"{claim.number}. {claim.text}" in text
        assert "not run: needs fig3" in text
        assert "not reproduced" in text  # claim 3: one epoch teaches nothing


def test_figures_come_with_caption_settings_size_and_time(partial):
    for text in partial:
        assert find("fig4").caption in text
        assert re.search(
            r"tiny size, not the paper.{1,6}s settings: 1 epochs, 2 seeds; settings: epochs 1, seeds 2", text
        )
        assert re.search(r"[\d,]+ s, finished \d{4}", text)


def test_a_missing_picture_is_drawn(partial):
    pictures = re.findall(r"base64,([^\"]+)", partial[1])
    assert [len(picture) > 1000 for picture in pictures] == [True, False]


def test_rules_stand_beside_the_claims(partial):
    import html

    for claim in CLAIMS:
        assert claim.rule in partial[0]
        assert claim.rule in html.unescape(partial[1])


def test_the_page_needs_no_other_file_and_knows_light_dark_and_paper(partial):
    page = partial[1]
    assert re.findall(r'(?:src|href)="(?!data:|#)', page) == []
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "<script" not in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_the_markdown_points_to_the_pictures_beside_it(partial):
    assert "](fig1.png)" in partial[0]
    assert "](fig4.png)" in partial[0]


def test_numbers_come_with_their_error_and_a_verdict():
    records = {"fig1": {"numbers": {"values": [1.0, 1.5]}}}
    (row,) = table(records, [MADE_UP])
    assert (row.verdict, row.verdict_text, row.ours) == ("reproduced", "reproduced", ["one: 1.250 ± 0.707"])
    records["fig1"]["numbers"]["values"] = [2.5]
    (row,) = table(records, [MADE_UP])
    assert (row.verdict_text, row.ours) == ("not reproduced", ["one: 2.500"])


def test_a_claim_of_many_numbers_shows_the_first_in_the_table_and_all_below():
    many = replace(MADE_UP, measure=lambda results: {name: [1.0] for name in ("one", "b", "c", "d", "e", "f")})
    (row,) = table({"fig1": {"numbers": {}}}, [many])
    assert row.ours == ["one: 1.000", "b: 1.000", "c: 1.000", "d: 1.000"]
    assert row.others == ["e: 1.000", "f: 1.000"]


def test_the_summary_counts_verdicts_and_names_size_time_and_versions():
    record = {"numbers": {"values": [1.0]}, "size": "quick", "versions": VERSIONS}
    record |= {"seconds": 90, "parts": {"nets": 60}}
    rows = [*table({"fig1": record}, [MADE_UP, MADE_UP]), *table({}, [MADE_UP])]
    assert summarise(rows, {"fig1": record, "fig2": record}).startswith(
        "Claims: 2 reproduced, 1 not run. 2 experiments of quick size, 2 minutes of computing in all; "
        "openradial 1.0, torch 2.0, Python 3.11. Numbers are means ± 2 s over seeds"
    )


def test_a_claim_whose_experiment_is_missing_has_no_verdict():
    (row,) = table({}, [MADE_UP])
    assert (row.verdict, row.verdict_text, row.ours) == (None, "not run: needs fig1", [])


def test_signs_of_the_markup_in_a_claim_do_no_harm():
    from paper.report_html import page

    rows = table({"fig1": {"numbers": {"values": [1.0]}}}, [MADE_UP])
    assert "One is &lt;less&gt; than two." in page("", rows, [])
    assert r"| 1 < 2 \| always |" in markdown("", rows, [])


def test_a_folder_without_results_has_no_report(tmp_path):
    message = f"{tmp_path} holds no finished experiment; run one with: python -m paper run ID"
    with pytest.raises(TrainingError, match=f"^{re.escape(message)}$"):
        write_report(tmp_path)


def test_a_damaged_result_is_named(tmp_path):
    (tmp_path / "fig1.json").write_text(json.dumps({"numbers": 1})[:5])
    with pytest.raises(TrainingError, match=r"fig1\.json is damaged \(.*\); delete it and continue with --resume"):
        write_report(tmp_path)


@pytest.mark.parametrize("record", [[], {"numbers": {}}])
def test_a_result_of_another_version_is_refused(tmp_path, record):
    path = tmp_path / "fig1.json"
    path.write_text(json.dumps(record))
    message = f"{path} was written by another version; delete it and continue with --resume"
    with pytest.raises(TrainingError, match=f"^{re.escape(message)}$"):
        write_report(tmp_path)


def test_the_page_names_what_decides_each_claim():
    page = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text()
    rows = dict(re.findall(r"^\| (\d)\. [^|]+\| ([^|]+) \|$", page, re.MULTILINE))
    rows = {
        number: named.partition(";")[0] for number, named in rows.items()
    }  # what is shown beside it decides nothing
    assert rows == {str(claim.number): ", ".join(claim.experiments) for claim in CLAIMS}
