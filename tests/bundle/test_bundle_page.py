import torch


def test_the_code_of_the_page_runs(python_blocks, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    torch.manual_seed(0)
    exec(python_blocks("bundle.md")[0], names)
    nearest = names["predictions"].nearest
    assert (nearest == names["data"].load("digits", "test").labels.numpy()).mean() > 0.9
    assert capsys.readouterr().out.startswith("['5', ")
