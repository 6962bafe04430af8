"""JapaneseVowels: two vowels said by nine men, as sequences of 12 channels and lengths 7 to 29."""

from pathlib import Path

from openradial.data.download import Package, Source, fetch
from openradial.data.examples import Examples
from openradial.data.readers.ts import read_ts
from openradial.errors import check_choice

SOURCE = Source(
    name="japanese-vowels",
    title="JapaneseVowels: nine speakers, 270 + 370 sequences of 12 channels",
    files={
        "JapaneseVowels_TRAIN.ts": "sha256:68a430eabd919cc77f40b1f5f3bc0dcafacc1486bca9260785aeb7d262cc78cd",
        "JapaneseVowels_TEST.ts": "sha256:b3d41d6a0ca3bcad3afb9ca7d4365382aa51341e2e58bae2a574babdda5b9462",
    },
    origins=(Package("pip", "aeon", "1.6.0", "aeon/datasets/data/JapaneseVowels/{}"),),
    size=1_137_103,
    licence="CC BY 4.0 (Kudo, Toyama and Shimbo; UCI repository)",
    homepage="https://timeseriesclassification.com/description.php?Dataset=JapaneseVowels",
)


def japanese_vowels(split: str = "train", *, root: Path | str | None = None, download: bool = True) -> Examples:
    """Load sequences ``(n, t, 12)`` float32: 270 for training, t = 26 at most, or 370 for testing, t = 29 at most."""
    check_choice("split", split, ("train", "test"))
    folder = fetch(SOURCE, root=root, download=download)
    return read_ts(folder / f"JapaneseVowels_{split.upper()}.ts")
