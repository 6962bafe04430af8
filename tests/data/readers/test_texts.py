import os

import pytest
import torch

from openradial.data import sources
from openradial.data.readers.columns import number_column, word_column
from openradial.data.readers.tables import Table
from openradial.data.readers.texts import free_text_column
from openradial.errors import DataError


def table(**columns):
    return Table(columns, torch.zeros(len(next(iter(columns.values()))), dtype=torch.int64), ("a",))


def test_one_column_of_sentences_is_free_text_and_others_are_not():
    sentences = word_column(["my card is lost", "where is my phone", "I forgot it"])
    assert free_text_column(table(says=sentences)) == "says"
    assert free_text_column(table(says=sentences, n=number_column("n", [1, 2, 3]))) is None
    assert free_text_column(table(colour=word_column(["red", "green", "blue"]))) is None
    assert free_text_column(table(says=word_column(["my card is lost"] * 3))) is None
    assert free_text_column(table(n=number_column("n", [1, 2, 3]))) is None


@pytest.fixture
def folder(tmp_path):
    for part in ("train", "test"):
        for name, text in (("card", "my card is lost"), ("rate", "what is the rate\n")):
            (tmp_path / part / name).mkdir(parents=True)
            (tmp_path / part / name / "1.txt").write_text(text)
    return tmp_path


def test_a_folder_of_text_files_per_class_is_read(folder):
    source = sources.open(folder)
    assert (source.kind, source.text, source.classes) == ("texts", "text", ("card", "rate"))
    assert list(source.train.rows()) == [{"text": "my card is lost"}, {"text": "what is the rate"}]
    assert source.test.labels.tolist() == [0, 1]


def test_pipes_and_links_to_themselves_in_a_folder_of_texts_are_named(folder):
    os.mkfifo(folder / "train" / "card" / "pipe.txt")
    loop = folder / "train" / "card" / "self.txt"
    loop.symlink_to(loop)
    with pytest.raises(DataError, match=r"expected regular files, got .*: card/pipe.txt, card/self.txt"):
        sources.open(folder)


def test_files_that_are_left_out_of_a_folder_of_texts_are_noted(folder):
    assert sources.open(folder).notes == []
    (folder / "train" / "card" / "2.md").write_text("my card is lost")
    (folder / "test" / "card" / "2.TXT").write_text("my card is lost")
    (folder / "test" / ".hidden").write_text("")
    assert sources.open(folder).notes == ["left out, not a text file (.txt): 2 (test/card/2.TXT, train/card/2.md)"]


def test_what_is_wrong_in_a_folder_of_texts_is_named(folder):
    (folder / "test" / "other").mkdir()
    with pytest.raises(DataError, match="other are not in the training data"):
        sources.open(folder)
    with pytest.raises(DataError, match="other hold no text files"):
        sources.open(folder / "test")
    (folder / "train" / "card" / "2.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="UTF-8"):
        sources.open(folder / "train")


def test_the_text_column_of_a_table_is_found_or_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,kind\nmy card is lost,a\nwhere is it now,b\n")
    assert sources.open(path, label="kind").text == "text"
    path.write_text("id,text,kind\n1,42,a\n2,where is it now,b\n")
    source = sources.open(path, label="kind", text="text")
    assert (source.kind, list(source.train.columns)) == ("texts", ["text"])
    assert source.train.columns["text"].to_list() == ["42", "where is it now"]


def test_texts_to_predict_come_from_files_tables_and_lines(folder, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"says": "hello there", "n": 1}\n')
    rows = list(sources.stream([path, folder / "train" / "card" / "1.txt"], "texts", columns=("says",)))
    assert [row.raw for row in rows] == [{"says": "hello there", "n": 1}, "my card is lost"]
    assert sources.count_inputs([path], "texts") is None
