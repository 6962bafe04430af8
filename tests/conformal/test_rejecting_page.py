import re
from pathlib import Path

import pytest
from scipy import stats

PAGE = (Path(__file__).parents[2] / "docs" / "rejecting.md").read_text()


def test_the_examples_of_the_page_print_what_it_says(doctest_page):
    count, failures = doctest_page("rejecting.md")
    assert count > 20
    assert failures == ""


@pytest.mark.parametrize("n", [99, 999, 9_999])
def test_the_table_of_rates_is_that_of_the_beta_distribution(n):
    row = re.search(rf"^\| {n:,} \|(.*)\|$", PAGE, re.MULTILINE)[1]
    for cell, rate in zip(row.split("|"), (0.01, 0.05, 0.1), strict=True):
        above = round(rate * (n + 1))
        expected = stats.beta.ppf([0.05, 0.95], above, n + 1 - above)
        assert [float(end) for end in cell.split(" to ")] == pytest.approx(expected, abs=5.1e-5)
