import collections
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openradial.errors import OptionError
from openradial.heads import sums
from openradial.heads.sums import RowHashes

LABELLED = st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.5, -3.0]), st.integers(0, 2)), max_size=30)


def hashes_of(pairs):
    rows = torch.tensor([[value, 7.0] for value, _ in pairs]).view(-1, 2)
    return RowHashes.of(rows, torch.tensor([label for _, label in pairs], dtype=torch.int64), 3)


def multisets(hashes):
    return [sorted(part.tolist()) for part in hashes.by_class]


@given(LABELLED, LABELLED)
def test_hashes_add_and_subtract_as_multisets(one, two):
    first, second = hashes_of(one), hashes_of(two)
    assert multisets(first + second) == multisets(hashes_of(one + two))
    assert multisets(first + second - second) == multisets(first)
    mine, theirs = collections.Counter(one), collections.Counter(two)
    missing = (theirs - mine).total()
    if missing:
        with pytest.raises(OptionError, match=f"but {missing} of {len(two)} were never added with this label"):
            first - second
    else:
        assert multisets(first - second) == multisets(hashes_of(list((mine - theirs).elements())))


@given(LABELLED, LABELLED)
def test_rows_are_found_whatever_their_number(one, two):
    first, second = hashes_of(one), hashes_of(two)
    missing = sum(pair not in one for pair in two)
    if missing:
        with pytest.raises(OptionError, match=f"but {missing} of {len(two)} were never added with this label"):
            first.check_contains(second)
    else:
        first.check_contains(second)


def test_a_failed_subtraction_changes_nothing():
    first = hashes_of([(0.0, 0), (1.0, 1)])
    before = multisets(first)
    with pytest.raises(OptionError):
        first - hashes_of([(0.0, 0), (0.0, 1)])
    assert multisets(first) == before


def test_equal_numbers_have_equal_hashes_in_every_dtype():
    rows = torch.tensor([[0.5, -2.0, 0.0], [1.0, 3.0, -0.0]], dtype=torch.float64)
    labels = torch.zeros(2, dtype=torch.int64)
    expected = RowHashes.of(rows, labels, 1).by_class[0]
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.equal(RowHashes.of(rows.to(dtype), labels, 1).by_class[0], expected)
    assert torch.equal(RowHashes.of(rows + torch.zeros(3), labels, 1).by_class[0], expected)
    turned = rows.T.contiguous().T  # another layout in memory
    assert torch.equal(RowHashes.of(turned, labels, 1).by_class[0], expected)
    assert torch.equal(RowHashes.of(rows.clone().requires_grad_(), labels, 1).by_class[0], expected)


def different(rows):
    hashes = RowHashes.of(rows, torch.zeros(len(rows), dtype=torch.int64), 1).by_class[0]
    return len(hashes.unique()) == len(rows)


def test_different_rows_have_different_hashes():
    assert different(torch.tensor(list(itertools.product([0.0, 1.0], repeat=14))))
    assert different(torch.tensor(list(itertools.product([-1.0, 0.0, 1.0, 2.0, 4.0, 8.0], repeat=5))))
    assert different(torch.tensor(list(itertools.permutations(range(7)))).float())
    assert different(torch.arange(100_000.0).unsqueeze(1))
    assert different(torch.tensor([[1.0 + 2.0**-52], [1.0], [1.0 - 2.0**-53]], dtype=torch.float64))
    assert different(torch.cat([torch.diag(torch.full((50,), value)) for value in (1.0, -1.0, 2.0, 1e-30, 1e30)]))


def test_rows_are_hashed_in_parts(monkeypatch):
    rows = torch.randn(50, 4)
    labels = torch.arange(50) % 3
    expected = RowHashes.of(rows, labels, 3)
    monkeypatch.setattr(sums, "AT_ONCE", 12)
    for mine, theirs in zip(RowHashes.of(rows, labels, 3).by_class, expected.by_class, strict=True):
        assert torch.equal(mine, theirs)


def test_hashes_in_files_stay_valid():
    rows, labels = torch.tensor([[1.0, 2.0, 3.0], [0.1, -5.0, 1e9]], dtype=torch.float64), torch.tensor([0, 0])
    assert RowHashes.of(rows, labels, 1).by_class[0].tolist() == [-2127217731886887167, 7753548608226142653]
