import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from openradial.conformal.risk import at_most, binomial_interval, binomial_upper

COUNTS = st.integers(1, 1_000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))


@settings(max_examples=30)
@given(counts=COUNTS, confidence=st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.9995]))
def test_the_interval_is_that_of_scipy(counts, confidence):
    count, total = counts
    expected = stats.binomtest(count, total).proportion_ci(confidence, method="exact")
    assert binomial_interval(count, total, confidence) == pytest.approx(tuple(expected), rel=1e-9, abs=1e-12)
    upper = stats.beta.ppf(confidence, count + 1, total - count) if count < total else 1
    assert binomial_upper(count, total, confidence) == pytest.approx(upper, rel=1e-9)


@given(counts=COUNTS, share=st.floats(1e-4, 0.999))
def test_the_chance_of_at_most_a_count_is_that_of_scipy(counts, share):
    count, total = counts
    assert at_most(count, total, share) == pytest.approx(stats.binom.cdf(count, total, share), rel=1e-8, abs=1e-14)


@pytest.mark.parametrize(("count", "total"), [(0, 10), (10, 10), (0, 1), (1, 1)])
def test_the_ends_are_exact_where_all_or_none_were_counted(count, total):
    low, high = binomial_interval(count, total, 0.95)
    assert (low == 0) == (count == 0)
    assert (high == 1) == (count == total)


def test_large_counts_keep_their_digits():
    expected = stats.binomtest(2_000, 50_000).proportion_ci(0.95, method="exact")
    assert binomial_interval(2_000, 50_000, 0.95) == pytest.approx(tuple(expected), rel=1e-8)
