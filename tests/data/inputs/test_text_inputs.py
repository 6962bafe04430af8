import os

import pytest
import torch

from openradial.data.inputs import TextInputs, TokenInputs
from openradial.data.readers.columns import word_column
from openradial.data.readers.tables import Table
from openradial.errors import DataError


@pytest.fixture
def tokenizer():
    if os.environ.get("CI") != "true":
        pytest.importorskip("tokenizers", exc_type=ImportError)
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "card": 4, "lost": 5}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.enable_padding(length=50)  # as in published files; the inputs pad by themselves
    return made.to_str()


def test_texts_become_tokens_padded_with_0(tokenizer):
    inputs = TokenInputs(tokenizer, max_tokens=4)
    assert inputs.prepare(["lost", "card lost card lost", ""]).tolist() == [[2, 5, 3, 0], [2, 4, 5, 3], [2, 3, 0, 0]]
    assert TokenInputs(tokenizer, special=False).prepare(["", "card"]).tolist() == [[0], [4]]
    assert inputs.prepare([]).shape == (0, 1)


def test_token_inputs_are_recorded(tokenizer):
    inputs = TokenInputs(tokenizer, max_tokens=7, special=False, column="says")
    assert TokenInputs.from_record(inputs.record()) == inputs


def test_a_very_long_text_is_cut_before_it_is_read(tokenizer):
    assert TokenInputs(tokenizer, max_tokens=3).prepare("card " * 10**6).tolist() == [[2, 4, 3]]


def test_a_long_text_is_read_up_to_the_last_token_that_counts(tokenizer):
    inputs = TokenInputs(tokenizer, max_tokens=5)
    assert inputs.prepare("card" + " " * 10**6 + "lost").tolist() == [[2, 4, 5, 3]]
    long = "x" * 1000  # one unknown word
    assert inputs.prepare(f"{long} {long} card lost").tolist() == [[2, 1, 1, 4, 3]]


@pytest.mark.parametrize("column", ["says", None])
def test_rows_of_a_table_are_texts_where_the_column_is_known(column):
    inputs = TextInputs(("card", "lost"), column=column)
    assert inputs.columns == (() if column is None else ("says",))
    if column is None:
        with pytest.raises(DataError, match="a text must be a str, got dict"):
            inputs.prepare({"says": "card"})
        return
    table = Table({"says": word_column(["card", "", "lost card"])}, torch.full((3,), -1), ())
    assert inputs.prepare(table).tolist() == [[2, 0], [1, 0], [3, 2]]
    assert inputs.prepare([{"says": "card"}, "lost"]).tolist() == [[2], [3]]
    with pytest.raises(DataError, match="no column 'says'"):
        inputs.prepare({"said": "card"})
    with pytest.raises(DataError, match="a text must be a str, got int"):
        inputs.prepare({"says": 3})
