import torch

from openradial.encoders import FeatureCache


def test_the_features_are_shown_and_cleared(call, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path))
    FeatureCache("minilm-53aa").write({b"1" * 32: torch.zeros(300_000)})
    code, out, _ = call("cache", "info")
    assert code == 0
    assert out.startswith("minilm-53aa: 1.1 MB\n1.1 of 4,096 MB in ")
    assert call("cache", "clear")[1].startswith("1.1 MB removed from ")
    assert call("cache", "info")[1].startswith("0.0 of 4,096 MB in ")
