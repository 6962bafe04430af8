def test_the_examples_of_the_attacks_page_print_what_it_says(doctest_page):
    count, failures = doctest_page("attacks.md")
    assert count > 15
    assert failures == ""
