"""Data: files and named data sets as tensors, known and novel classes, splits and batches.

>>> examples = load("spiral", n=300)
>>> known, novel = divide(examples, random_split(examples.classes, known=2, seed=0))
>>> len(known), len(novel)
(200, 100)
"""

from openradial.data import download, sources
from openradial.data.batches import Batches, FolderBatches
from openradial.data.catalog import load, names
from openradial.data.column_types import infer_types
from openradial.data.examples import Examples
from openradial.data.near_duplicates import near_duplicate_groups
from openradial.data.readers.folder import ImageFolder, compare_classes, scan
from openradial.data.readers.tables import Table, read_table
from openradial.data.sources import DataSource, RawInput
from openradial.data.splits import (
    Split,
    count_duplicates,
    divide,
    identical_groups,
    join_groups,
    named_split,
    parse_known,
    random_split,
    train_test_split,
)
from openradial.data.table_encoder import TableEncoder
from openradial.data.transforms import Compose, Normalise, RandomFlip, RandomShift
from openradial.data.vocabulary import Vocabulary

__all__ = ["Batches", "Compose", "DataSource", "Examples", "FolderBatches", "ImageFolder", "Normalise", "RandomFlip"]
__all__ += ["RandomShift", "RawInput", "Split", "Table", "TableEncoder", "Vocabulary", "compare_classes"]
__all__ += ["count_duplicates", "divide", "download", "identical_groups", "infer_types", "join_groups", "load"]
__all__ += ["named_split", "names", "near_duplicate_groups", "parse_known", "random_split", "read_table", "scan"]
__all__ += ["sources", "train_test_split"]
