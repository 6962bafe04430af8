import pytest

from paper import err


def test_the_error_of_runs_is_twice_their_corrected_deviation():
    runs = [0.98, 0.985, 0.99, 0.981]
    mean = sum(runs) / 4
    deviation = (sum((run - mean) ** 2 for run in runs) / 3) ** 0.5
    assert err._spread(runs) == pytest.approx({"mean": mean, "error": 2 * deviation})


def test_one_run_has_no_error():
    assert err._spread([0.98]) == {"mean": 0.98, "error": None}
