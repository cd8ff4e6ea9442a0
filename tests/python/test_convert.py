"""tconv.convert and tconv.revert: what they switch, what they keep, what they leave alone."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, remove_weight_norm
from torch.nn.utils import weight_norm as old_weight_norm
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrizations import weight_norm as new_weight_norm

import tconv

X = torch.randn(2, 4, 9)


def model():
    return nn.Sequential(
        nn.Conv1d(4, 4, 3),
        nn.ConvTranspose1d(4, 6, 4, 2),
        nn.ModuleDict({"up": nn.ConvTranspose1d(6, 3, 3)})["up"],
        nn.ReLU(),
    )


def test_switches_every_transposed_convolution_and_says_so():
    net = nn.Module()
    net.one, net.two, net.three = (
        nn.ConvTranspose1d(2, 2, 2),
        nn.Sequential(nn.ConvTranspose2d(2, 2, 2)),
        nn.ConvTranspose3d(2, 2, 2),
    )
    net.other = nn.Conv1d(2, 2, 2)
    report = tconv.convert(net)
    assert [name for name, _ in report.changed] == ["one", "two.0", "three"]
    assert len(report) == 3
    assert report.skipped == []
    assert "two.0: tconv.nn.ConvTranspose2d(2, 2, kernel_size=(2, 2)" in str(report)
    assert type(net.one) is tconv.nn.ConvTranspose1d
    assert type(net.two[0]) is tconv.nn.ConvTranspose2d
    assert type(net.three) is tconv.nn.ConvTranspose3d
    assert type(net.other) is nn.Conv1d
    assert len(tconv.convert(net)) == 0  # nothing is left to do

    assert len(tconv.revert(net)) == 3
    assert type(net.one) is nn.ConvTranspose1d


@pytest.mark.parametrize("switch", [tconv.convert, tconv.revert])
def test_a_report_taken_for_the_model_says_what_to_do(switch):
    report = switch(model())
    with pytest.raises(TypeError, match="in place; go on with the model itself"):
        report(X)
    for use in (lambda: report.to("cpu"), lambda: report.state_dict(), lambda: report.eval()):
        with pytest.raises(AttributeError, match="in place; go on with the model itself"):
            use()
    assert not hasattr(report, "forward")
    assert copy.deepcopy(report) == pickle.loads(pickle.dumps(report)) == report


def test_where_chooses():
    net, asked = model(), []

    def where(name, module):
        asked.append((name, type(module)))
        return module.stride == (2,)

    report = tconv.convert(net, where=where)
    assert asked == [("1", nn.ConvTranspose1d), ("2", nn.ConvTranspose1d)]
    assert [name for name, _ in report.changed] == ["1"]
    assert report.skipped == [("2", "where() does not choose it")]
    assert type(net[1]) is tconv.nn.ConvTranspose1d
    assert type(net[2]) is nn.ConvTranspose1d
    report = tconv.convert(net, where=lambda name, module: name != "1")
    assert [name for name, _ in report.changed] == ["2"]
    assert report.skipped == []  # what is tconv's already is not left alone
    report = tconv.revert(net, where=lambda name, module: name == "2")
    assert [name for name, _ in report.changed] == ["2"]
    assert [name for name, _ in report.skipped] == ["1"]


def test_where_that_fails_leaves_the_model_as_it_was():
    net = model()
    with pytest.raises(KeyError):
        tconv.convert(net, where=lambda name, module: {"1": True}[name])
    assert type(net[1]) is nn.ConvTranspose1d
    with pytest.raises(TypeError, match="where must be a function of a name and a module, got str"):
        tconv.convert(net, where="decoder")


def test_precision_of_the_layers_chosen():
    net = model()
    report = tconv.convert(net, where=lambda name, module: name == "1", precision="fp32")
    assert str(report).splitlines()[1].endswith("in fp32")
    assert net[1].precision == "fp32"
    assert "precision" not in vars(net[2])
    assert len(tconv.convert(net, precision="tf32")) == 1  # the other; the precision is of both
    assert [layer.precision for layer in (net[1], net[2])] == ["tf32", "tf32"]
    tconv.convert(net)
    assert net[1].precision == "tf32"
    with pytest.raises(ValueError, match="precision must be None, 'fp32' or 'tf32', got 'fp8'"):
        tconv.convert(model(), precision="fp8")


def test_the_model_itself_may_be_one():
    layer = nn.ConvTranspose1d(4, 4, 3)
    expected = layer(X)
    report = tconv.convert(layer)
    assert "(the model itself)" in str(report)
    torch.testing.assert_close(layer(X), expected)


def test_outputs_gradients_and_identity_stay():
    net = model()
    modules, parameters = list(net.modules()), list(net.parameters())
    expected = net(X)
    gradients = torch.autograd.grad(expected.sum(), parameters)
    tconv.convert(net)
    assert all(a is b for a, b in zip(net.modules(), modules, strict=True))
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    actual = net(X)
    torch.testing.assert_close(actual, expected)
    for a, e in zip(torch.autograd.grad(actual.sum(), parameters), gradients, strict=True):
        torch.testing.assert_close(a, e)


def test_hooks_stay():
    def calls_of(net):
        calls = []
        for name in ("1", "2"):
            layer = net[int(name)]
            layer.register_forward_pre_hook(lambda module, args, name=name: calls.append(name + " pre"))
            layer.register_forward_hook(lambda module, args, output, name=name: calls.append(name + " forward"))
            layer.register_full_backward_pre_hook(
                lambda module, go, name=name: calls.append(name + " backward pre")
            )
            layer.register_full_backward_hook(lambda module, gi, go, name=name: calls.append(name + " backward"))
            layer.weight.register_hook(lambda g, name=name: calls.append(name + " weight"))
        net[1].note = "kept"
        return calls

    theirs, ours = model(), model()
    expected, actual = calls_of(theirs), calls_of(ours)
    tconv.convert(ours)
    for net in (theirs, ours):
        net(X).sum().backward()
    assert expected[:4] == ["1 pre", "1 forward", "2 pre", "2 forward"]
    assert len(expected) == 10
    assert actual == expected
    assert ours[1].note == "kept"


@pytest.mark.parametrize("weight_norm", [old_weight_norm, new_weight_norm], ids=["hooks", "parametrization"])
def test_weight_norm_of_either_kind(weight_norm):
    def build():
        torch.manual_seed(3)
        net = model()
        weight_norm(net[1])
        return net

    plain, net = build(), build()
    assert [name for name, _ in tconv.convert(net).changed] == ["1", "2"]
    assert isinstance(net[1], tconv.nn.ConvTranspose1d)
    assert list(net.state_dict()) == list(plain.state_dict())

    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (plain, net)]
    for _ in range(3):
        for m, optimizer in zip((plain, net), optimizers, strict=True):
            optimizer.zero_grad()
            m(X).pow(2).mean().backward()
            optimizer.step()
    torch.testing.assert_close(net(X), plain(X))
    net.load_state_dict(plain.state_dict())
    plain.load_state_dict(net.state_dict())

    # Taking the norm off leaves a tconv layer, whichever came first.
    expected = net(X)
    if weight_norm is old_weight_norm:
        remove_weight_norm(net[1])
    else:
        parametrize.remove_parametrizations(net[1], "weight")
    assert type(net[1]) is tconv.nn.ConvTranspose1d
    torch.testing.assert_close(net(X), expected)


@pytest.mark.parametrize("weight_norm", [old_weight_norm, new_weight_norm], ids=["hooks", "parametrization"])
def test_revert_under_weight_norm(weight_norm):
    net = model()
    tconv.convert(net)
    weight_norm(net[1])
    expected = net(X)
    assert len(tconv.revert(net)) == 2
    assert not isinstance(net[1], tconv.nn.ConvTranspose1d)
    torch.testing.assert_close(net(X), expected)


def test_other_parametrizations():
    class Doubled(nn.Module):
        def forward(self, value):
            return 2 * value

    net = model()
    parametrize.register_parametrization(net[1], "weight", Doubled())
    parametrize.register_parametrization(net[1], "bias", Doubled())
    net[2] = spectral_norm(net[2])
    net.eval()
    expected = net(X)
    twin = copy.deepcopy(net)
    tconv.convert(net)
    torch.testing.assert_close(net(X), expected)
    assert isinstance(net[1], tconv.nn.ConvTranspose1d)
    assert parametrize.is_parametrized(net[1], "bias")
    # The copy, which shared its class with the original, is untouched.
    assert not isinstance(twin[1], tconv.nn.ConvTranspose1d)
    torch.testing.assert_close(copy.deepcopy(net)(X), expected)


class Causal(nn.ConvTranspose1d):
    def forward(self, x):
        return super().forward(x)[..., : -self.kernel_size[0] + 1]


class Named(nn.ConvTranspose1d):
    pass


def test_classes_with_a_forward_of_their_own_are_left_alone_and_named():
    net = nn.Sequential(Causal(4, 4, 3), nn.ConvTranspose1d(4, 4, 3))
    expected = net(X)
    report = tconv.convert(net)
    assert [name for name, _ in report.changed] == ["1"]
    assert [name for name, _ in report.skipped] == ["0"]
    assert "Causal has a forward of its own" in str(report)
    torch.testing.assert_close(net(X), expected)
    report = tconv.revert(net)
    assert [name for name, _ in report.changed] == ["1"]
    assert report.skipped == []


@pytest.mark.parametrize("compiled", ["script", "trace"])
def test_modules_compiled_by_jit_are_left_alone_and_named(compiled):
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ConvTranspose2d(4, 3, 4))
    x = torch.randn(1, 4, 5, 5)
    report = tconv.convert(torch.jit.script(model) if compiled == "script" else torch.jit.trace(model, x))
    assert len(report) == 0
    assert [name for name, why in report.skipped] == ["1"]
    assert "torch.jit" in str(report)


def test_classes_that_inherit_pytorchs_forward_are_switched():
    net = nn.Sequential(Named(4, 4, 3), new_weight_norm(Named(4, 4, 3)))
    expected = net(X)
    assert len(tconv.convert(net)) == 2
    assert all(isinstance(layer, Named) for layer in net)
    assert net[0].forward.__func__ is tconv.nn.ConvTranspose1d.forward
    torch.testing.assert_close(net(X), expected)
    twin = pickle.loads(pickle.dumps(net[0]))
    assert type(twin) is type(net[0])
    assert torch.equal(twin(X), net[0](X))
    assert len(tconv.convert(net)) == 0
    assert len(tconv.revert(net)) == 2
    assert type(net[0]) is Named
    torch.testing.assert_close(net(X), expected)


def test_shared_modules_and_empty_models():
    layer = nn.ConvTranspose1d(4, 4, 3)
    net = nn.Sequential(layer, layer)
    assert len(tconv.convert(net)) == 1
    assert type(net[1]) is tconv.nn.ConvTranspose1d
    assert str(tconv.convert(nn.Linear(2, 2))) == "0 transposed convolution(s) switched, 0 left alone"


def test_lazy_modules():
    net = nn.Sequential(nn.LazyConvTranspose1d(4, 3))
    assert len(tconv.convert(net)) == 1
    net(X)
    assert type(net[0]) is tconv.nn.ConvTranspose1d


def test_converted_models_copy_and_pickle():
    net = model()
    tconv.convert(net)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert type(twin[1]) is tconv.nn.ConvTranspose1d
        assert torch.equal(twin(X), net(X))


def test_optimizer_made_before_goes_on():
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    tconv.convert(net)
    before = net[1].weight.detach().clone()
    net(X).sum().backward()
    optimizer.step()
    assert not torch.equal(net[1].weight, before)


def test_a_class_with_its_own_output_padding_is_left_alone():
    class Longer(torch.nn.ConvTranspose1d):
        def _output_padding(self, *args, **kwargs):
            return [1]

    model = torch.nn.Sequential(Longer(3, 4, 4, 2, 1))
    x = torch.randn(1, 3, 5)
    before = model(x)
    report = tconv.convert(model)
    assert len(report) == 0
    assert len(report.skipped) == 1
    assert torch.equal(model(x), before)


def test_a_replaced_forward_is_left_alone():
    layer = torch.nn.ConvTranspose1d(3, 4, 3)
    original = layer.forward
    layer.forward = lambda x: original(x) * 2
    report = tconv.convert(layer)
    assert len(report) == 0
    assert "replaced by another on the module itself" in str(report)


def with_hook(module):
    """What accelerate's add_hook_to_module does to a module."""
    module._hf_hook, module._old_forward = object(), module.forward
    module.forward = lambda *args, **kwargs: module._old_forward(*args, **kwargs)
    return module


def test_modules_with_hooks_of_accelerate_are_left_alone_and_say_why():
    net = model()
    with_hook(net[1])
    report = tconv.convert(net)
    assert [name for name, _ in report.changed] == ["2"]
    assert [name for name, _ in report.skipped] == ["1"]
    assert "accelerate's hooks" in str(report)


def test_hooks_of_accelerate_after_the_conversion():
    net = model()
    expected = net(X)
    tconv.convert(net)
    with_hook(net[1])
    assert net[1]._old_forward.__func__ is tconv.nn.ConvTranspose1d.forward
    torch.testing.assert_close(net(X), expected)
    assert [name for name, _ in tconv.revert(net).skipped] == ["1"]


def test_a_subclass_of_a_lazy_layer_becomes_tconvs():
    class Lazy(torch.nn.LazyConvTranspose1d):
        pass

    model = torch.nn.Sequential(Lazy(4, 3))
    tconv.convert(model)
    assert model(torch.randn(1, 3, 4)).shape == (1, 4, 6)
    assert type(model[0]) is tconv.nn.ConvTranspose1d


def test_symbolic_tracing():
    model = torch.nn.Sequential(torch.nn.ConvTranspose1d(3, 4, 3, stride=2))
    tconv.convert(model)
    traced = torch.fx.symbolic_trace(model)
    x = torch.randn(2, 3, 7)
    assert any(node.target is tconv.conv_transpose1d for node in traced.graph.nodes)
    assert torch.equal(traced(x), model(x))


def test_groups_of_another_integer_type():
    layer = torch.nn.ConvTranspose1d(4, 4, 3, groups=np.int64(2))
    x = torch.randn(1, 4, 5)
    before = layer(x)
    tconv.convert(layer)
    torch.testing.assert_close(layer(x), before)


def test_what_is_no_module_is_refused():
    for switch in (tconv.convert, tconv.revert):
        with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got int"):
            switch(3)
