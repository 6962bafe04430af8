def test_the_code_of_the_page_runs(python_blocks, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in python_blocks("closed_form.md"):
        exec(block, names)
    assert (tmp_path / "model" / "bundle.json").is_file()
    assert "cross-fitting" in capsys.readouterr().out
