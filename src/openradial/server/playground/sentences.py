"""Known sentences, such as the training data, and those that are nearest to a new one."""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from openradial.classifier import OpenClassifier
from openradial.data.progress import Advance, bar
from openradial.errors import DataError, OptionError
from openradial.evaluation.evaluation import known_sample, text_of

NEAREST = 5  # sentences that are shown


class Sentences:
    """The sentences of a table, with the features that the model computes of them. Without data there are none."""

    def __init__(self, bundle: OpenClassifier, data: str | None = None, label: str | None = None) -> None:
        self.bundle, self.texts, self.names = bundle, list[str](), list[str]()
        if data is None:
            return
        if bundle.preprocessing.kind != "texts":
            raise DataError(f"--data belongs to a model of texts, and this one takes {bundle.preprocessing.kind}")
        sample = known_sample(bundle, data, label)
        raw = [row.raw for row in sample.rows]
        self.texts, self.names = [text_of(each) for each in raw], list(sample.truths)
        with bar("encoding", len(raw), unit="texts") as advance:
            self.features = torch.cat([self._features(part, advance) for part in bundle.preprocessing.chunks(raw)])

    def about(self, text: Any, rate: Any) -> dict[str, Any]:
        """Return the sentences that are nearest to a text, and the threshold of the unknown score at a rate."""
        threshold = None
        with suppress(OptionError):  # no rate is given, or one below those that the model was calibrated for
            threshold = self.bundle.rejector and self.bundle.rejector.threshold(rate)
        if not self.texts:
            return {"threshold": threshold, "nearest": []}
        similarity, indices = (self.features @ self._features([text])[0]).topk(min(NEAREST, len(self.texts)))
        matches = zip(indices.tolist(), similarity.tolist(), strict=True)
        nearest = [{"text": self.texts[i], "class": self.names[i], "similarity": cosine} for i, cosine in matches]
        return {"threshold": threshold, "nearest": nearest}

    @torch.no_grad()
    def _features(self, raw: list[Any], advance: Advance = lambda done: None) -> Tensor:
        z = self.bundle.net(self.bundle.preprocessing.ready(raw).to(self.bundle.device))
        advance(len(raw))
        return normalize(z.float()).cpu()
