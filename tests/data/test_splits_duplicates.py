"""Equal examples are found by their values."""

import numpy as np
import pytest
import torch

from openradial.data.examples import Examples
from openradial.data.readers.columns import Numbers, Words
from openradial.data.readers.folder import scan
from openradial.data.readers.tables import Table
from openradial.data.splits import (
    count_duplicates,
    identical_groups,
)
from tests.data.pictures import jpeg, tree


def unlabelled(inputs):
    return Examples(inputs, torch.full((len(inputs),), -1), ())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("shape", [(3,), (2, 4, 4), (5, 1)])
def test_equal_rows_have_the_index_of_the_first(dtype, shape):
    rows = torch.randint(0, 250, (4, *shape), generator=torch.Generator().manual_seed(0)).to(dtype)
    groups = identical_groups(unlabelled(rows[[0, 1, 0, 2, 3, 1, 0]]))
    assert groups.tolist() == [0, 1, 0, 3, 4, 1, 0]
    assert count_duplicates(groups) == 3


def test_labels_are_not_compared():
    data = Examples(torch.ones(3, 2), torch.tensor([0, 1, 0]), ("a", "b"))
    assert identical_groups(data).tolist() == [0, 0, 0]


def test_zeros_of_both_signs_and_padding_are_equal():
    rows = torch.tensor([[0.0, torch.nan], [-0.0, torch.nan], [0.0, 1.0], [0.0, -torch.nan]])
    assert identical_groups(unlabelled(rows)).tolist() == [0, 0, 2, 0]
    assert torch.equal(rows[1].signbit(), torch.tensor([True, False]))  # the data are left as they are


def test_rows_of_a_table_are_equal_in_all_columns():
    length = Numbers(np.array([1.0, 1.0, np.nan, np.nan, 1.0]))
    kind = Words(np.array([0, 1, -1, -1, 0]), ("a", "b"))
    table = Table({"length": length, "kind": kind}, torch.zeros(5, dtype=torch.int64), ("x",))
    assert identical_groups(table).tolist() == [0, 1, 2, 2, 0]


def test_image_files_are_equal_in_all_bytes(tmp_path):
    files = {"cat/1.jpg": jpeg(seed=1), "cat/2.jpg": jpeg(seed=2), "dog/1.jpg": jpeg(seed=1), "dog/2.jpg": b"x"}
    folder = scan(tree(tmp_path, files))
    assert identical_groups(folder).tolist() == [0, 1, 0, 3]
    (tmp_path / "dog" / "1.jpg").unlink()
    assert identical_groups(folder).tolist() == [0, 1, 2, 3]  # decoding names the missing file


def test_no_examples_have_no_groups():
    assert identical_groups(unlabelled(torch.empty(0, 3))).tolist() == []
    assert count_duplicates(torch.empty(0, dtype=torch.int64)) == 0
