import copy

import pytest
import torch
from torch import nn

from openradial import AxisPrototypes, RadialLayer, RadialLinear, RadialLoss, SimplexPrototypes, replace_head
from tests.nn.lookalikes import (
    IMAGE,
    POINTS,
    TOKENS,
    VGG,
    BertLike,
    ClassifierOutput,
    DenseNet,
    FirstRegistered,
    Forward,
    GoogLeNet,
    LSTMClassifier,
    MobileNet,
    ResNet,
    TimmNet,
    Untraceable,
    ViT,
)


def has_three_outputs(layer):
    return type(layer) is nn.Linear and layer.out_features == 3


WELL_KNOWN = [
    pytest.param(ResNet, "fc", IMAGE, id="resnet"),
    pytest.param(VGG, "classifier.6", IMAGE, id="vgg"),
    pytest.param(DenseNet, "classifier", IMAGE, id="densenet"),
    pytest.param(MobileNet, "classifier.1", IMAGE, id="mobilenet"),
    pytest.param(ViT, "heads.head", IMAGE, id="vit"),
    pytest.param(TimmNet, "head", IMAGE, id="timm"),
    pytest.param(lambda: GoogLeNet().eval(), "fc", IMAGE, id="googlenet"),
    pytest.param(LSTMClassifier, "fc", TOKENS, id="lstm"),
    pytest.param(FirstRegistered, "classifier", POINTS, id="registered-first"),
    pytest.param(lambda: Untraceable(fc1=nn.Linear(4, 5), fc2=nn.Linear(5, 10)), "fc2", POINTS, id="untraceable"),
]


@pytest.mark.parametrize("search", ["by itself", "by example", "by name"])
@pytest.mark.parametrize(("build", "name", "x"), WELL_KNOWN)
def test_the_head_of_a_well_known_network_is_replaced_and_nothing_else(build, name, x, search):
    torch.manual_seed(0)
    model = build()
    others = {n: (m, m.training) for n, m in model.named_modules() if n != name}
    how = {"by itself": {}, "by example": {"example": x}, "by name": {"name": name}}[search]

    assert replace_head(model, 3, **how) is model

    head = model.get_submodule(name)
    assert type(head) is nn.Linear
    assert head.out_features == 3
    assert {n: (m, m.training) for n, m in model.named_modules() if n != name} == others
    outputs = model.eval()(x)
    assert outputs.shape == (2, 3)
    assert RadialLoss()(outputs, torch.tensor([0, 2])).isfinite()


@pytest.mark.parametrize(("build", "name", "x"), WELL_KNOWN)
def test_the_replaced_model_returns_what_its_new_affine_layer_returns(build, name, x):
    model = replace_head(build().eval(), 3)
    seen = []
    model.get_submodule(name).register_forward_hook(lambda m, args, out: seen.append(out))
    assert torch.equal(model(x), seen[0])


@pytest.mark.parametrize("last", [nn.Softmax(dim=1), nn.LogSoftmax(dim=1)])
@pytest.mark.parametrize("how", [{}, {"name": "2"}, {"example": POINTS}])
def test_a_softmax_module_after_the_classifier_is_taken_out(last, how):
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 10), last)
    replace_head(model, 3, **how)
    assert type(model[3]) is nn.Identity
    torch.testing.assert_close(model(POINTS), model[2](torch.relu(model[0](POINTS))))


def test_a_softmax_attribute_that_forward_calls_last_is_taken_out():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.softmax = nn.Softmax(dim=1)
            self.fc = nn.Linear(4, 10)

        def forward(self, x):
            return self.softmax(self.fc(x))

    model = replace_head(Net(), 3)
    assert type(model.softmax) is nn.Identity
    assert has_three_outputs(model.fc)


def test_an_untraceable_sequence_loses_its_softmax_too():
    tail = nn.Sequential(nn.Linear(4, 10), nn.Softmax(-1))
    model = replace_head(Untraceable(tail=tail), 3)
    assert has_three_outputs(model.tail[0])
    assert type(model.tail[1]) is nn.Identity


def test_a_name_overrules_what_forward_does_afterwards():
    model = replace_head(Forward(lambda o: o / 2), 3, name="fc2")
    torch.testing.assert_close(model(POINTS), model.fc2(torch.relu(model.fc1(POINTS))) / 2)


@pytest.mark.parametrize(
    "reshape", [lambda o: o.squeeze(1), lambda o: o.view(o.shape[0], -1), lambda o: o.contiguous()]
)
def test_reshaping_the_outputs_does_no_harm(reshape):
    assert has_three_outputs(replace_head(Forward(reshape), 3).fc2)


def test_a_convolution_keeps_stride_padding_and_missing_bias():
    model = nn.Sequential(nn.Conv2d(3, 10, 1, stride=2, padding=1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    shape = model[0](IMAGE).shape
    replace_head(model, 4)
    assert model[0](IMAGE).shape == (2, 4, *shape[2:])
    assert model[0].bias is None


def test_auxiliary_heads_of_a_model_in_training_are_left_alone():
    model = GoogLeNet().train()
    replace_head(model, 3)
    logits, aux = model(IMAGE)
    assert (logits.shape, aux.shape) == ((2, 3), (2, 10))


@pytest.mark.parametrize("container", [ClassifierOutput, dict])
@pytest.mark.parametrize(
    "how", [{}, {"example": TOKENS}, {"example": (TOKENS, TOKENS)}, {"example": {"input_ids": TOKENS}}]
)
def test_a_model_that_returns_a_dict_or_dataclass_gets_its_head_replaced(container, how):
    model = replace_head(BertLike(container).eval(), 3, **how)
    assert has_three_outputs(model.classifier)
    assert isinstance(model.pooler, nn.Linear)
    result = model(TOKENS)
    assert (result["logits"] if container is dict else result.logits).shape == (2, 3)


def test_a_model_that_returns_outputs_and_their_softmax_keeps_the_softmax():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 10)
            self.softmax = nn.Softmax(dim=1)

        def forward(self, x):
            o = self.fc(x)
            return self.softmax(o), o

    model = replace_head(Both(), 3)
    assert has_three_outputs(model.fc)
    assert isinstance(model.softmax, nn.Softmax)


def test_an_untraceable_model_with_late_registered_dropout_is_understood():
    model = Untraceable(order=("body", "drop", "top"), body=nn.Linear(4, 6), top=nn.Linear(6, 10), drop=nn.Dropout())
    assert has_three_outputs(replace_head(model, 3).top)


def test_a_lazy_classifier_that_the_example_has_woken_is_replaced():
    model = replace_head(nn.Sequential(nn.Flatten(), nn.LazyLinear(10)), 3, example=IMAGE)
    assert model[1].in_features == 3 * 8 * 8


def test_a_bare_linear_layer_is_returned_as_a_new_one_and_left_alone():
    old = nn.Linear(4, 10)
    new = replace_head(old, 3)
    assert (new.in_features, new.out_features) == (4, 3)
    assert type(old) is nn.Linear
    assert old.out_features == 10


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_new_head_has_the_element_type_and_bias_of_the_old_one(dtype):
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 10, bias=False)).to(dtype)
    replace_head(model, 3)
    assert model[1].weight.dtype == dtype
    assert model[1].bias is None


def test_the_new_head_is_on_the_device_of_the_old_one():
    model = replace_head(nn.Sequential(nn.Linear(4, 10)).to("meta"), 3)
    assert {t.device.type for t in model.parameters()} == {"meta"}


@pytest.mark.parametrize("how", [{}, {"example": IMAGE}])
def test_a_frozen_backbone_stays_frozen_and_the_new_head_trains(how):
    model = ResNet().requires_grad_(False)
    replace_head(model, 3, **how)
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {"fc.weight", "fc.bias"}


@pytest.mark.parametrize("how", [{}, {"example": IMAGE}, {"name": "fc"}])
def test_every_part_keeps_its_own_training_flag(how):
    model = ResNet().train()
    model.bn1.eval()
    model.fc.eval()
    replace_head(model, 3, **how)
    assert {name for name, m in model.named_modules() if not m.training} == {"bn1", "fc"}


def test_running_an_example_changes_no_statistics():
    model = ResNet().train()
    before = copy.deepcopy(model.bn1.state_dict())
    replace_head(model, 3, example=torch.ones(2, 3, 8, 8))
    assert all(torch.equal(value, before[name]) for name, value in model.bn1.state_dict().items())


def test_tracing_leaves_nothing_behind_and_draws_no_random_numbers():
    class Remembering(ResNet):
        def forward(self, x):
            self.last = x
            torch.rand(3)
            self.bn1.running_mean.add_(1)
            return super().forward(x)

    model = Remembering()
    torch.manual_seed(0)
    replace_head(model, 3)
    assert not hasattr(model, "last")
    assert model.bn1.running_mean.abs().sum() == 0
    torch.manual_seed(0)
    assert torch.equal(model.fc.weight, nn.Linear(8, 3).weight)


@pytest.mark.parametrize("how", [{}, {"example": IMAGE}, {"name": "fc"}])
@pytest.mark.parametrize("first", [nn.Linear(8, 5), RadialLinear(8, 5)])
def test_a_head_can_be_replaced_again(first, how):
    model = ResNet()
    model.fc = first
    replace_head(model, 3, **how)
    assert type(model.fc) is nn.Linear
    assert model(IMAGE).shape == (2, 3)


def test_a_layer_with_two_names_is_replaced_under_both():
    class Aliased(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 10)
            self.classifier = self.head

        def forward(self, x):
            return self.classifier(x)

    for how in ({}, {"example": POINTS}, {"name": "head"}):
        model = replace_head(Aliased(), 3, **how)
        assert model.head is model.classifier
        assert model(POINTS).shape == (2, 3)


def test_a_parametrised_linear_layer_is_a_classifier():
    model = nn.Sequential(nn.Linear(4, 6), nn.utils.parametrizations.weight_norm(nn.Linear(6, 10)))
    assert has_three_outputs(replace_head(model, 3)[1])


@pytest.mark.parametrize(
    ("prototypes", "outputs"), [(SimplexPrototypes(3), 2), (torch.ones(3, 5), 5), (AxisPrototypes(3, 2.0), 3)]
)
def test_the_new_head_has_as_many_outputs_as_the_prototypes_need(prototypes, outputs):
    model = replace_head(nn.Sequential(nn.Linear(4, 10)), 3, prototypes=prototypes)
    assert model[0].out_features == outputs
    assert RadialLayer(3, prototypes=prototypes).probs(model(POINTS)).shape == (2, 3)


def test_a_replaced_network_learns():
    torch.manual_seed(0)
    model = replace_head(FirstRegistered(), 3)
    y = torch.arange(60) % 3
    x = 3 * torch.eye(3, 4)[y] + 0.1 * torch.randn(60, 4)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        optimiser.zero_grad()
        RadialLoss(beta=2.0)(model(x), y).backward()
        optimiser.step()
    assert (model(x).argmax(1) == y).all()


def test_a_subclass_of_linear_is_a_classifier_though_its_forward_is_its_own():
    class Scaled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    assert has_three_outputs(replace_head(nn.Sequential(nn.Linear(4, 6), Scaled(6, 10)), 3)[1])


def test_an_example_may_lead_to_nan():
    model = replace_head(nn.Sequential(nn.Linear(4, 10), nn.Flatten()), 3, example=torch.full((2, 4), torch.nan))
    assert has_three_outputs(model[0])
