from collections import Counter
from types import SimpleNamespace

import pytest

from benchmarks import service
from benchmarks.service_load import Tally


def running(code=None):
    return SimpleNamespace(address=("127.0.0.1", 0), process=SimpleNamespace(poll=lambda: code))


def test_a_warm_up_ends_on_a_machine_that_is_too_busy_to_answer_all_clients_at_once(monkeypatch, must_end):
    rounds = []
    monkeypatch.setattr(service, "load", lambda *_: rounds.append(1) or Tally([0.5] * 5))
    service.warm_up(running(), [])
    assert len(rounds) == -(-service.CLIENTS // 5)


@pytest.mark.parametrize(("wrong", "code"), [({"PNG: 503": 1}, None), ({}, 1)])
def test_a_warm_up_ends_if_nothing_is_served(monkeypatch, wrong, code, must_end):
    monkeypatch.setattr(service, "load", lambda *_: Tally(wrong=Counter(wrong)))
    with pytest.raises(RuntimeError, match="has ended, or good requests were not served"):
        service.warm_up(running(code), [])
