"""Small look-alikes of well-known networks: same names, same order, same forward."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as TF


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(x + self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGG(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Linear(16, 12),
            nn.ReLU(True),
            nn.Dropout(),
            nn.Linear(12, 12),
            nn.ReLU(True),
            nn.Dropout(),
            nn.Linear(12, 10),
        )

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.classifier = nn.Linear(4, 10)

    def forward(self, x):
        features = TF.relu(self.features(x), inplace=True)
        return self.classifier(torch.flatten(TF.adaptive_avg_pool2d(features, (1, 1)), 1))


class SqueezeNet(nn.Module):
    def __init__(self, last=None):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU())
        after = [nn.ReLU(inplace=True)] if last is None else []
        self.classifier = nn.Sequential(nn.Dropout(), nn.Conv2d(6, 10, 1), *after, nn.AdaptiveAvgPool2d((1, 1)))

    def forward(self, x):
        return torch.flatten(self.classifier(self.features(x)), 1)


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU6())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 10))

    def forward(self, x):
        x = TF.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(torch.flatten(x, 1))


class EncoderBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.self_attention = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, x):
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        return x + y + self.mlp(y)


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, 8))
        self.conv_proj = nn.Conv2d(3, 8, 4, 4)
        self.encoder = nn.Sequential(EncoderBlock(8), nn.LayerNorm(8))
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(8, 10))

    def forward(self, x):
        n = x.shape[0]
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(n, -1, -1), x], dim=1)
        return self.heads(self.encoder(x)[:, 0])


class TimmNet(nn.Module):
    """Control flow on shapes, which no tracer follows, and a pooling argument of forward_head."""

    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 8, 4, 4)
        self.norm = nn.LayerNorm(8)
        self.fc_norm = nn.Identity()
        self.head_drop = nn.Dropout(0.1)
        self.head = nn.Linear(8, 10)

    def forward_head(self, x, pre_logits: bool = False):
        x = self.head_drop(self.fc_norm(x.mean(1)))
        return x if pre_logits else self.head(x)

    def forward(self, x):
        if x.shape[-1] % 4 != 0:
            raise ValueError("patches do not fit")
        return self.forward_head(self.norm(self.patch_embed(x).flatten(2).transpose(1, 2)))


class GoogLeNetOutputs(NamedTuple):
    logits: Tensor
    aux_logits: Tensor


class Auxiliary(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(6, 4, 1)
        self.fc = nn.Linear(4, 10)

    def forward(self, x):
        return self.fc(torch.flatten(TF.adaptive_avg_pool2d(self.conv(x), 1), 1))


class GoogLeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3)
        self.aux1 = Auxiliary()
        self.conv2 = nn.Conv2d(6, 5, 3)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(5, 10)

    def forward(self, x):
        x = self.conv1(x)
        aux = self.aux1(x) if self.training else None
        logits = self.fc(self.dropout(torch.flatten(self.avgpool(self.conv2(x)), 1)))
        return GoogLeNetOutputs(logits, aux) if self.training else logits


@dataclass
class ClassifierOutput:
    loss: Tensor | None
    logits: Tensor


class BertLike(nn.Module):
    """Returns a dataclass, has optional arguments, and registers dropout last."""

    def __init__(self, container=ClassifierOutput):
        super().__init__()
        self.embeddings = nn.Embedding(20, 8)
        self.pooler = nn.Linear(8, 8)
        self.classifier = nn.Linear(8, 10)
        self.dropout = nn.Dropout(0.1)
        self.container = container

    def forward(self, input_ids, attention_mask=None, labels=None, *, return_dict=True):
        x = self.embeddings(input_ids).mean(1)
        if attention_mask is not None:
            x = x * attention_mask.float().mean()
        logits = self.classifier(self.dropout(torch.tanh(self.pooler(x))))
        loss = None if labels is None else TF.cross_entropy(logits, labels)
        return self.container(loss=loss, logits=logits) if return_dict else logits


class LSTMClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 7, batch_first=True)
        self.fc = nn.Linear(7, 10)

    def forward(self, x):
        out, _ = self.lstm(self.embedding(x))
        return self.fc(out[:, -1])


class FirstRegistered(nn.Module):
    """The classifier is registered first and called last."""

    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(6, 10)
        self.body = nn.Linear(4, 6)

    def forward(self, x):
        return self.classifier(torch.relu(self.body(x)))


class Untraceable(nn.Module):
    """Runs its parts in their order, or in that of ``order``, behind a branch on values."""

    def __init__(self, order=(), **parts):
        super().__init__()
        self.order = order or tuple(parts)
        for name, module in parts.items():
            setattr(self, name, module)

    def forward(self, x):
        if bool((x == float("inf")).any()):
            raise ValueError("infinite")
        for name in self.order:
            x = getattr(self, name)(x)
        return x


class Forward(nn.Module):
    """Two linear layers and a function of their last result."""

    def __init__(self, function):
        super().__init__()
        self.fc1 = nn.Linear(4, 6)
        self.fc2 = nn.Linear(6, 10)
        self.function = function

    def forward(self, x):
        return self.function(self.fc2(torch.relu(self.fc1(x))))


IMAGE = torch.zeros(2, 3, 8, 8)
TOKENS = torch.zeros(2, 5, dtype=torch.long)
POINTS = torch.zeros(2, 4)
