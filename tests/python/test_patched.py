"""tconv.patched: PyTorch's functions, for as long as a with statement lasts."""

import sys
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import _len_torch_function_stack
from torch.utils._python_dispatch import TorchDispatchMode

import tconv
from layers import PYTORCH, TCONV, random_layer, relative_error


class Net(nn.Module):
    """Calls a function in a forward of its own, and a module."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 5))
        self.up = nn.ConvTranspose1d(3, 2, 4, 2)

    def forward(self, x):
        return self.up(F.conv_transpose1d(x, self.weight, stride=2).relu())


@pytest.fixture
def net():
    torch._dynamo.reset()
    return Net()


X = torch.randn(2, 4, 9)


class Recorder(TorchDispatchMode):
    """The transposed convolutions that ran, by whose they were."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        if "conv" in name:
            self.seen.append(name.split(".")[0] + ("" if "grad" not in name and "backward" not in name else "'"))
        return function(*args, **(kwargs or {}))


def test_functions_and_modules(net):
    expected = net(X)
    with Recorder() as record, tconv.patched():
        actual = net(X)
    assert record.seen == ["tconv", "tconv"]
    torch.testing.assert_close(actual, expected)
    with Recorder() as record:
        net(X)
    assert record.seen == ["aten", "aten"]


def test_gradients_are_tconvs_after_it(net):
    with tconv.patched():
        y = net(X)
    with Recorder() as record:
        gradients = torch.autograd.grad(y.sum(), list(net.parameters()))
    assert set(record.seen) == {"tconv'"}
    for a, e in zip(gradients, torch.autograd.grad(net(X).sum(), list(net.parameters())), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_every_way_to_name_the_function(dims):
    x, w, b = torch.randn(2, 4, *[4] * dims), torch.randn(4, 3, *[3] * dims), torch.randn(6)
    arguments = {"bias": b, "stride": 2, "padding": 1, "output_padding": 1, "groups": 2, "dilation": 1}
    expected = TCONV[dims](x, w, **arguments)
    with tconv.patched():
        for function in (PYTORCH[dims], getattr(torch, f"conv_transpose{dims}d")):
            assert torch.equal(function(x, w, **arguments), expected)
            assert torch.equal(function(input=x, weight=w, **arguments), expected)
            assert torch.equal(function(x, w, *arguments.values()), expected)


def test_random_layers():
    for seed in range(20):
        layer = random_layer(seed, torch.float64)
        expected = layer.pytorch(*layer.operands)
        with tconv.patched():
            assert relative_error(layer.pytorch(*layer.operands), expected) < 1e-12, layer.about


def test_what_tconv_does_not_compute_is_pytorchs():
    x, w = torch.randn(1, 2, 5).cfloat(), torch.randn(2, 3, 3).cfloat()
    expected = F.conv_transpose1d(x, w)
    with tconv.patched(), tconv.patched():
        assert torch.equal(F.conv_transpose1d(x, w), expected)


def test_nothing_is_left(net):
    functions = [F.conv_transpose1d, torch.conv_transpose1d]
    with tconv.patched(), tconv.patched(precision="fp32"):
        assert [F.conv_transpose1d, torch.conv_transpose1d] == functions
    with pytest.raises(RuntimeError, match="channels"), tconv.patched():
        net(X[:, 1:])
    assert _len_torch_function_stack() == 0
    with Recorder() as record:
        net(X)
    assert record.seen == ["aten", "aten"]


def test_other_threads_are_left_alone(net):
    seen = []

    def work():
        with Recorder() as record:
            net(X)
        seen.extend(record.seen)

    with tconv.patched():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == ["aten", "aten"]


def test_precision(monkeypatch):
    given = []
    table = {F.conv_transpose1d: lambda *args, precision: given.append(precision)}
    monkeypatch.setattr(sys.modules["tconv.patched"], "_TCONV", table)
    with tconv.patched(precision="fp32"):
        F.conv_transpose1d(X, torch.randn(4, 3, 5))
        with tconv.patched():
            F.conv_transpose1d(X, torch.randn(4, 3, 5))
    assert given == ["fp32", None]
    with pytest.raises(ValueError, match="precision"):
        tconv.patched(precision="fp8")


def test_subclasses_that_change_what_functions_mean_keep_their_say():
    class Named(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    with tconv.patched():
        assert F.conv_transpose1d(X.as_subclass(Named), torch.randn(4, 3, 5)) == "conv_transpose1d"


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_compile(net, where):
    graphs = []

    def backend(graph, _):
        graphs.append({str(node.target) for node in graph.graph.nodes})
        return graph.forward

    def inside(x):
        with tconv.patched():
            return net(x)

    compiled = torch.compile(inside if where == "inside" else net, backend=backend, fullgraph=True)
    with tconv.patched():
        actual = compiled(X)
    torch.testing.assert_close(actual, net(X))
    assert "tconv.conv_transpose.default" in graphs[0]
    if where == "outside":  # a guard: without it, another graph
        compiled(X)
        assert len(graphs) == 2
        assert not any("tconv" in target for target in graphs[1])


@pytest.mark.parametrize("strict", [True, False])
def test_export(net, strict):
    with tconv.patched():
        program = torch.export.export(net, (X,), strict=strict)
    targets = [str(node.target) for node in program.graph.nodes]
    assert targets.count("tconv.conv_transpose.default") == 2
    torch.testing.assert_close(program.module()(X), net(X))


def test_torch_func(net):
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters, x):
        return torch.func.functional_call(net, parameters, (x[None],)).pow(2).sum()

    per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0))
    expected = per_sample(parameters, X)
    with tconv.patched():
        actual = per_sample(parameters, X)
    for name in parameters:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-4, atol=1e-4)
