"""Data: real inputs as tensors, known and novel classes, and batches that never starve training.

>>> examples = load("spiral", n=300)
>>> known, novel = divide(examples, random_split(examples.classes, known=2, seed=0))
>>> len(known), len(novel)
(200, 100)
"""

from openradial.data.batches import Batches, FolderBatches, loader_for
from openradial.data.catalog import load, names
from openradial.data.examples import Examples
from openradial.data.folder import ImageFolder, compare_classes, scan
from openradial.data.ilsvrc import ilsvrc
from openradial.data.ilsvrc_classes import ilsvrc_classes, parse_known
from openradial.data.link_trees import split_ilsvrc
from openradial.data.splits import Split, as_unknown, divide, named_split, random_split, random_splits, train_test_split
from openradial.data.table_encoder import TableEncoder
from openradial.data.tables import Table, read_table
from openradial.data.tiny_imagenet import tiny_imagenet
from openradial.data.transforms import Compose, Normalise, RandomFlip, RandomShift
from openradial.data.ts import read_ts, read_tsv
from openradial.data.vocabulary import Vocabulary

__all__ = [
    "Batches",
    "Compose",
    "Examples",
    "FolderBatches",
    "ImageFolder",
    "Normalise",
    "RandomFlip",
    "RandomShift",
    "Split",
    "Table",
    "TableEncoder",
    "Vocabulary",
    "as_unknown",
    "compare_classes",
    "divide",
    "ilsvrc",
    "ilsvrc_classes",
    "load",
    "loader_for",
    "named_split",
    "names",
    "parse_known",
    "random_split",
    "random_splits",
    "read_table",
    "read_ts",
    "read_tsv",
    "scan",
    "split_ilsvrc",
    "tiny_imagenet",
    "train_test_split",
]
