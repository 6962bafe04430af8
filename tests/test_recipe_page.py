def test_the_recipe_of_the_page_rejects_most_novel_digits_and_few_known_ones(python_blocks):
    (code,) = python_blocks("recipe.md")
    names = {}
    exec(code, names)
    known = names["model"].decide(names["scaled"](names["for_rejector"].inputs)).labels
    assert (known == -1).double().mean() <= 0.05
    assert (names["labels"] == -1).double().mean() > 0.8
