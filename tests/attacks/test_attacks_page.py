import doctest
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "attacks.md").read_text()


def test_the_examples_of_the_attacks_page_print_what_it_says():
    examples = re.sub(r"^```.*$", "", PAGE, flags=re.MULTILINE)
    parsed = doctest.DocTestParser().get_doctest(examples, {}, "attacks.md", None, 0)
    assert len(parsed.examples) > 15
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(parsed, out=report.append).failed == 0, "".join(report)
