import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as TF

from openradial import RadialLoss, replace_head
from openradial.errors import HeadError, OptionError
from tests.nn.lookalikes import IMAGE, POINTS, VGG, Forward, ResNet, SqueezeNet, Untraceable


def snapshot(model):
    """All that a failed call must leave alone."""
    parts = [(name, id(module), module.training, len(module._forward_hooks)) for name, module in model.named_modules()]
    tensors = {name: (id(t), t.requires_grad) for name, t in [*model.named_parameters(), *model.named_buffers()]}
    values = {name: t.clone() for name, t in model.state_dict().items() if not nn.parameter.is_lazy(t)}
    attributes = {name: set(vars(module)) for name, module in model.named_modules()}
    return parts, tensors, values, attributes


def assert_unchanged(model, before):
    parts, tensors, values, attributes = snapshot(model)
    assert (parts, tensors, attributes) == (before[0], before[1], before[3])
    assert all(torch.equal(values[name], value) for name, value in before[2].items())
    assert values.keys() == before[2].keys()


def refusal(model, *args, **kwargs):
    """The message of the error, after checking that the model is as before."""
    before = snapshot(model)
    with pytest.raises(HeadError) as caught:
        replace_head(model, *args, **kwargs)
    assert_unchanged(model, before)
    return str(caught.value)


def test_a_softmax_that_the_model_needs_elsewhere_is_not_taken_out():
    class Attentive(nn.Module):
        def __init__(self):
            super().__init__()
            self.softmax = nn.Softmax(dim=1)
            self.fc = nn.Linear(4, 10)

        def forward(self, x):
            return self.softmax(self.fc(x * self.softmax(x)))

    expected = (
        "after the classifier 'fc' comes 'softmax', a Softmax, but a radial layer needs the affine outputs as they "
        "are; remove it, or pass name= if it does no harm or another layer is the classifier"
    )
    assert refusal(Attentive(), 3) == expected
    assert refusal(Attentive(), 3, example=POINTS) == expected


@pytest.mark.parametrize(
    ("function", "called"),
    [
        (lambda o: TF.log_softmax(o, dim=1), "log_softmax"),
        (lambda o: TF.softmax(o, dim=1), "softmax"),
        (lambda o: o.softmax(-1), "softmax"),
        (torch.sigmoid, "sigmoid"),
        (lambda o: o + 1, "add"),
    ],
)
def test_a_function_that_forward_applies_to_the_outputs_is_found_without_running_it(function, called):
    assert refusal(Forward(function), 3) == (
        f"after the classifier 'fc2' comes {called!r}, a computation in forward, but a radial layer needs the affine "
        "outputs as they are; remove it, or pass name= if it does no harm or another layer is the classifier"
    )


def test_a_function_that_forward_applies_to_the_outputs_is_found_by_example():
    x = torch.ones(2, 4)
    assert refusal(Forward(lambda o: TF.softmax(o, dim=1)), 3, example=x) == (
        "after 'fc2' the model's forward still computes something (a softmax?), but a radial layer needs the affine "
        "outputs; remove it, or pass name= if it does no harm"
    )


def test_squeezenet_is_refused_because_of_its_relu():
    expected = (
        "after the classifier 'classifier.1' comes 'classifier.2', a ReLU, but a radial layer needs the affine outputs "
        "as they are; remove it, or pass name= if it does no harm or another layer is the classifier"
    )
    assert refusal(SqueezeNet(), 3) == expected
    assert refusal(SqueezeNet(), 3, example=IMAGE) == expected


@pytest.mark.parametrize("how", [{}, {"name": "classifier.1"}, {"example": IMAGE}])
def test_a_convolution_before_pooling_is_replaced_by_a_convolution(how):
    model = replace_head(SqueezeNet(last="pool"), 3, **how)
    assert isinstance(model.classifier[1], nn.Conv2d)
    assert RadialLoss()(model(IMAGE), torch.tensor([0, 1])).isfinite()


def test_token_wise_outputs_may_be_averaged():
    model = replace_head(Forward(lambda o: o.mean(1)), 3)
    assert model(torch.zeros(2, 7, 4)).shape == (2, 3)


def test_two_heads_are_ambiguous():
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.age = nn.Linear(4, 5)
            self.name = nn.Linear(4, 10)

        def forward(self, x):
            return self.age(x), self.name(x)

    expected = "the model returns the results of several affine layers, 'age', 'name'; choose one with name="
    assert refusal(TwoHeads(), 3) == expected
    assert replace_head(TwoHeads(), 3, name="age").age.out_features == 3


def test_an_untraceable_model_whose_name_and_position_disagree_is_ambiguous():
    model = Untraceable(order=("body", "classifier"), classifier=nn.Linear(6, 10), body=nn.Linear(4, 6))
    assert refusal(model, 3) == (
        "the classifier may be 'classifier' (by its name) or 'body' (by its position); choose with name=, or pass "
        "example=, an input to run through the model"
    )
    assert replace_head(model, 3, example=POINTS).classifier.out_features == 3


@pytest.mark.parametrize("late", [nn.ReLU(), nn.Softmax(-1)])
def test_an_untraceable_model_with_a_late_registered_activation_asks_for_an_example(late):
    model = Untraceable(order=("body", "late", "top"), body=nn.Linear(4, 6), top=nn.Linear(6, 10), late=late)
    assert refusal(model, 3) == (
        f"'late', a {type(late).__name__}, is registered after the classifier 'top' and may change its outputs; pass "
        "example=, an input to run through the model, or name='top' if it does not"
    )
    assert replace_head(copy.deepcopy(model), 3, name="top").top.out_features == 3
    replace_head(model, 3, example=POINTS)
    assert model.late is late
    assert model.top.out_features == 3


def test_an_untraceable_model_may_end_in_pooling():
    model = replace_head(Untraceable(top=nn.Linear(4, 10), pool=nn.AvgPool1d(1)), 3)
    assert model(POINTS).shape == (2, 3)


@pytest.mark.parametrize(
    "build", [nn.Sequential, lambda *parts: Untraceable(**{f"p{i}": p for i, p in enumerate(parts)})]
)
def test_a_model_that_ends_in_another_layer_with_parameters_is_refused(build):
    model = build(nn.Linear(4, 10), nn.BatchNorm1d(10))
    prefix = "p" if isinstance(model, Untraceable) else ""
    assert refusal(model, 3) == (
        f"the last layer with parameters is '{prefix}1', a BatchNorm1d, not an affine layer; pass name= (one of "
        f"'{prefix}0') or example=, an input to run through the model"
    )


def test_a_model_without_parameters_is_refused():
    assert refusal(nn.Sequential(nn.ReLU(), nn.Flatten()), 3) == (
        "the model has no parameters, so it has no classifier to replace; add a linear layer at its end"
    )


def test_a_model_whose_result_comes_from_no_affine_layer_is_refused():
    class Aside(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 10)

        def forward(self, x):
            self.fc(x)
            return x.flatten(1)

    assert refusal(Aside(), 3) == (
        "no affine layer lies between the model's input and its result; pass name= (one of 'fc')"
    )


def test_a_model_that_returns_no_tensor_is_refused():
    class Silent(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 10)

        def forward(self, x):
            self.fc(x)

    assert refusal(Silent(), 3) == "the model returns no tensor, so it has no classifier; pass name="


def test_an_example_on_which_no_affine_layer_runs_is_refused():
    model = Untraceable(order=("flat",), flat=nn.Flatten(), fc=nn.Linear(4, 10))
    assert refusal(model, 3, example=POINTS) == (
        "no affine layer ran on the example, so there is no classifier to replace; pass name="
    )


def test_a_layer_that_runs_twice_is_no_classifier():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = nn.Linear(4, 4)

        def forward(self, x):
            return self.step(self.step(x))

    assert refusal(Recurrent(), 3) == "'step' runs more than once in forward, so it is not a classifier; pass name="
    assert refusal(Recurrent(), 3, example=POINTS) == (
        "'step' ran more than once on the example, so it is not a classifier; pass name="
    )


def test_an_example_that_does_not_fit_is_reported_with_its_error():
    message = refusal(ResNet(), 3, example=torch.zeros(2, 4, 8, 8))
    assert message.startswith("the example does not run through the model (RuntimeError: ")
    assert message.endswith(
        "; pass an input batch as forward takes it: a tensor, a tuple of positional or a dict of keyword arguments"
    )


def test_an_unknown_name_lists_the_affine_layers():
    assert refusal(VGG(), 3, name="fc") == (
        "the model has no layer named 'fc'; its affine layers are: 'classifier.0', 'classifier.3', 'classifier.6'"
    )
    assert refusal(nn.Sequential(nn.ReLU()), 3, name="fc") == (
        "the model has no layer named 'fc'; its affine layers are: none"
    )


def test_a_name_of_a_container_lists_what_is_in_it():
    assert refusal(VGG(), 3, name="classifier") == (
        "'classifier' is a Sequential, expected nn.Linear or a 1x1 nn.Conv2d; pass another name=, its affine layers "
        "are: 'classifier.0', 'classifier.3', 'classifier.6'"
    )


@pytest.mark.parametrize("lazy", [nn.LazyLinear(10), nn.LazyConv2d(10, 1)])
def test_a_lazy_classifier_must_run_first(lazy):
    model = nn.Sequential(nn.Identity(), lazy)
    assert refusal(model, 3) == ("'1' is lazy and does not know its inputs yet; run one batch through the model first")


def test_a_bare_layer_is_called_the_model_itself():
    assert refusal(nn.LazyConv2d(10, 1), 3).startswith("the model itself is lazy")
    assert replace_head(nn.Conv2d(3, 10, 1), 3)(IMAGE).shape == (2, 3, 8, 8)


class DistributedDataParallel(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


@pytest.mark.parametrize(
    ("wrap", "kind"),
    [
        (nn.DataParallel, "DataParallel"),
        (DistributedDataParallel, "DistributedDataParallel"),
        (lambda model: torch.compile(model, backend="eager"), "OptimizedModule"),
        (type("FullyShardedDataParallel", (DistributedDataParallel,), {}), "FullyShardedDataParallel"),
    ],
)
def test_a_wrapped_model_is_to_be_wrapped_afterwards(wrap, kind):
    assert refusal(wrap(nn.Sequential(nn.Linear(4, 10))), 3) == (
        f"the model is wrapped in {kind}; replace the head first and wrap the model afterwards"
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_model_is_to_be_scripted_afterwards():
    model = torch.jit.script(nn.Sequential(nn.Linear(4, 10)))
    with pytest.raises(HeadError) as caught:
        replace_head(model, 3)
    assert str(caught.value) == (
        "the model is wrapped in RecursiveScriptModule; replace the head first and wrap the model afterwards"
    )


def test_something_that_is_no_module_is_refused():
    with pytest.raises(HeadError) as caught:
        replace_head("resnet18", 3)
    assert str(caught.value) == "expected an nn.Module, got str; pass the network itself"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"prototypes": torch.eye(4)},
            "num_classes and prototypes must agree: num_classes=3 but 4 prototypes; pass num_classes=4",
        ),
        ({"num_classes": 0}, "num_classes must be a whole number of at least 1, got 0"),
    ],
)
def test_a_wrong_option_leaves_the_model_alone(options, message):
    model = nn.Sequential(nn.Linear(4, 10), nn.Softmax(-1))
    before = snapshot(model)
    with pytest.raises(OptionError) as caught:
        replace_head(model, **{"num_classes": 3, **options})
    assert str(caught.value) == message
    assert_unchanged(model, before)


class AttentionLast(Untraceable):
    def forward(self, x):
        return self.attention(self.body(x), x, x)[0] if x.sum() >= 0 else x


def test_the_projection_inside_attention_is_no_classifier():
    model = AttentionLast(body=nn.Linear(4, 4), attention=nn.MultiheadAttention(4, 1))
    assert refusal(model, 3) == (
        "the last layer with parameters is 'attention', a MultiheadAttention, not an affine layer; pass name= (one of "
        "'body') or example=, an input to run through the model"
    )


def test_a_grouped_convolution_is_no_affine_map():
    model = nn.Sequential(nn.Conv2d(4, 10, 1), nn.Conv2d(10, 10, 1, groups=2))
    assert refusal(model, 3).startswith("the last layer with parameters is '1', a Conv2d")
