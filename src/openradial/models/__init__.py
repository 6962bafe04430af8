"""Networks: an input ``x`` to outputs ``o``, and to the last hidden layer ``z``.

Every network has ``forward(x) -> o`` of shape (b, num_classes), ``forward_features(x) -> z``, ``num_features``, its
last linear layer ``classifier``, and ``reset_classifier(num_classes)``, as in timm. None knows a head or a data set.
Images are float (b, c, h, w), tables (b, d), sequences (b, t, c) padded with NaN, texts (b, t) token ids padded with 0.
"""

from openradial.models.contract import Network
from openradial.models.fast_cnn import FastCNN
from openradial.models.imagenet import EfficientNetLite, ResNet
from openradial.models.paper import MLP, MnistCNN
from openradial.models.pretrained import Weights, imagenet_weights
from openradial.models.registry import build, names, options
from openradial.models.sequences import SequenceClassifier, TextCNN
from openradial.models.weights import load_weights

__all__ = ["MLP", "EfficientNetLite", "FastCNN", "MnistCNN", "Network", "ResNet", "SequenceClassifier", "TextCNN"]
__all__ += ["Weights", "build", "imagenet_weights", "load_weights", "names", "options"]
