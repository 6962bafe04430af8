"""JapaneseVowels: two vowels said by nine men, as sequences of 12 channels and lengths 7 to 29."""

from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from openradial.data import Examples, download
from openradial.errors import DataError

SOURCE = download.Source(
    name="japanese-vowels",
    title="JapaneseVowels: nine speakers, 270 + 370 sequences of 12 channels",
    files={
        "JapaneseVowels_TRAIN.ts": "sha256:68a430eabd919cc77f40b1f5f3bc0dcafacc1486bca9260785aeb7d262cc78cd",
        "JapaneseVowels_TEST.ts": "sha256:b3d41d6a0ca3bcad3afb9ca7d4365382aa51341e2e58bae2a574babdda5b9462",
    },
    origins=(download.Package("pip", "aeon", "1.6.0", "aeon/datasets/data/JapaneseVowels/{}"),),
    size=1_137_103,
    licence="CC BY 4.0 (Kudo, Toyama and Shimbo; UCI repository)",
    homepage="https://timeseriesclassification.com/description.php?Dataset=JapaneseVowels",
)


def japanese_vowels(split: str = "train") -> Examples:
    """Load sequences ``(n, t, 12)`` float32: 270 for training, t = 26 at most, or 370 for testing, t = 29 at most."""
    return read_ts(download.fetch(SOURCE) / f"JapaneseVowels_{split.upper()}.ts")


def read_ts(path: Path) -> Examples:
    """Read a ``.ts`` file without missing values: a header of ``@`` lines, then lines ``channel:channel:...:label``.

    Shorter sequences are padded at the end with NaN.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        names = next(line.split()[2:] for line in lines if line.lower().startswith("@classlabel true"))
        rows = [line.rsplit(":", 1) for line in lines[[line.lower() for line in lines].index("@data") + 1 :]]
        sequences = [torch.tensor([[float(x) for x in c.split(",")] for c in row[0].split(":")]).T for row in rows]
        labels = torch.tensor([names.index(row[1].strip()) for row in rows])
    except (ValueError, IndexError, StopIteration) as error:
        raise DataError(f"expected a .ts file ({error}); remove it to get it again", path=path) from error
    return Examples(pad_sequence(sequences, batch_first=True, padding_value=torch.nan), labels, tuple(names))
