from tests.data.pictures import jpeg, tree


def test_the_snippets_of_the_page_run_one_after_the_other(python_blocks, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = [f"{part}/{name}/{i}.jpg" for part in ("train", "val") for name in "ab" for i in "12"]
    tree(tmp_path / "root", dict.fromkeys(names, jpeg()))
    rows = [f"{i % 7}.5,{'red' if i % 2 else 'blue'},{'abc'[i % 3]}\n" for i in range(60)]
    (tmp_path / "flowers.csv").write_text("length,colour,species\n" + "".join(rows))
    blocks = python_blocks("data.md")
    scope = {}
    for block in blocks:
        exec(compile(block, "data.md", "exec"), scope)
    assert len(blocks) == 5
    assert scope["flowers"].train.classes == ("a", "b", "c")
    assert scope["row"].error is None
    assert len(scope["train"]) + len(scope["test"]) == len(scope["examples"])
    assert "copies" in capsys.readouterr().out
