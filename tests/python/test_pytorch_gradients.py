"""The gradients of CUDA tensors, which are PyTorch's own operators, computed here for CPU tensors.

What calls them is the same on every device; only which tensors it is done for is changed.
"""

import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode

import tconv
from layers import PYTORCH, TCONV, random_layer, relative_error
from tconv import _autograd, _pytorch
from tconv._layer import Layer


@pytest.fixture
def by_pytorch(monkeypatch):
    """CPU tensors are treated as CUDA tensors are."""
    monkeypatch.setattr(_autograd, "_has_gradients", lambda tensor: False)


def packed(arguments):
    return [
        *arguments["stride"],
        *arguments["padding"],
        *arguments["output_padding"],
        *arguments["dilation"],
    ], arguments["groups"]


def order(tensor):
    """The strides that mean something."""
    return [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]


def derivatives(layer, function, second):
    operands = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in layer.operands]
    y = function(*operands)
    gy = torch.sin(torch.arange(y.numel(), dtype=y.dtype)).view(y.shape).requires_grad_(second)
    first = torch.autograd.grad(y, operands, gy, create_graph=second)
    if not second:
        return [y, *first]
    return [y, *first, *torch.autograd.grad([g.pow(2).sum() for g in first], [*operands[:2], gy])]


@pytest.mark.parametrize("second", [False, True])
def test_random_layers(by_pytorch, monkeypatch, second):
    for seed in range(30):  # with output padding of more than a stride among them
        layer = random_layer(seed, torch.float64)
        ours = derivatives(layer, layer.tconv, second)
        with monkeypatch.context() as undone:
            undone.setattr(_autograd, "_has_gradients", lambda tensor: True)
            expected = derivatives(layer, layer.tconv, second)
        for a, e in zip(ours, expected, strict=True):
            assert relative_error(a, e) < 1e-11, layer.about
            assert order(a) == order(e), layer.about


def test_the_operators_kernels():
    for seed in range(30):
        layer = random_layer(seed, torch.float64)
        geometry, groups = packed(layer.arguments)
        x, w = layer.input, layer.weight
        y = _pytorch.conv_transpose_kernel(x, w, layer.bias, geometry, groups, False)
        assert relative_error(y, layer.tconv(*layer.operands)) < 1e-12, layer.about
        gy = torch.randn_like(y)
        for kernel, operator, arguments in (
            (_pytorch.grad_input_kernel, torch.ops.tconv.conv_transpose_grad_input, (gy, w)),
            (_pytorch.grad_weight_kernel, torch.ops.tconv.conv_transpose_grad_weight, (x, gy, w.shape[2:])),
        ):
            ours = kernel(*arguments, geometry, groups, False)
            expected = operator(*arguments, geometry, groups, False)
            assert relative_error(ours, expected) < 1e-12, layer.about
            assert order(ours) == order(expected), layer.about


def test_the_operators_kernels_take_sizes_that_fit_only():
    x, w, gy = torch.randn(2, 4, 6), torch.randn(4, 3, 4), torch.randn(2, 3, 15)
    geometry = [2, 0, 1, 1]
    _pytorch.grad_input_kernel(gy, w, geometry, 1, False)
    for kernel, arguments in (
        (_pytorch.grad_input_kernel, (gy[..., 1:], w)),
        (_pytorch.grad_input_kernel, (gy[..., :3], w)),
        (_pytorch.grad_weight_kernel, (x, gy[..., 1:], [4])),
    ):
        with pytest.raises(RuntimeError, match="is not the output"):
            kernel(*arguments, geometry, 1, False)
    with pytest.raises(RuntimeError, match="channels"):
        _pytorch.grad_input_kernel(gy[:, 1:], w, geometry, 1, False)
    with pytest.raises(RuntimeError, match="same dtype"):
        _pytorch.grad_input_kernel(gy.double(), w, geometry, 1, False)


def test_one_call_of_pytorchs(by_pytorch):
    x, w, b = (torch.randn(size, requires_grad=True) for size in ((2, 4, 6), (4, 3, 4), (3,)))
    y = tconv.conv_transpose1d(x, w, b, 2)
    with profile() as record:
        y.sum().backward()
    calls = {event.key: event.count for event in record.key_averages()}
    assert calls["aten::convolution_backward"] == 1
    assert not {"aten::convolution", "aten::_convolution"} & set(calls)


@pytest.mark.parametrize("create_graph", [False, True])
def test_only_the_gradients_asked_for(by_pytorch, create_graph):
    for mask in range(1, 8):
        sizes = ((2, 4, 6), (4, 3, 4), (3,))
        operands = [torch.randn(size, requires_grad=bool(mask >> i & 1)) for i, size in enumerate(sizes)]
        tconv.conv_transpose1d(*operands, 2).sum().backward(create_graph=create_graph)
        assert [t.grad is not None for t in operands] == [t.requires_grad for t in operands]


@pytest.mark.parametrize("batch", [2, 0])
@pytest.mark.parametrize("create_graph", [False, True])
def test_an_output_without_elements(by_pytorch, batch, create_graph):
    sizes = ((batch, 3, 1, 5), (3, 4, 2, 2), (4,))
    operands = [torch.randn(size, requires_grad=True) for size in sizes]
    y = tconv.conv_transpose2d(*operands, padding=(1, 0))
    for operand, gradient in zip(
        operands, torch.autograd.grad(y.sum(), operands, create_graph=create_graph), strict=True
    ):
        assert gradient.shape == operand.shape
        assert not gradient.any()


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_memory_formats(by_pytorch, dims, create_graph):
    last = torch.channels_last if dims == 2 else torch.channels_last_3d
    formats = (torch.contiguous_format, last)
    for x_format, w_format, gy_format in [(x, w, g) for x in formats for w in formats for g in formats]:
        strides = []
        for function in (PYTORCH[dims], TCONV[dims]):
            x = torch.randn(2, 4, *[5] * dims).contiguous(memory_format=x_format).requires_grad_()
            w = torch.randn(4, 3, *[3] * dims).contiguous(memory_format=w_format).requires_grad_()
            y = function(x, w, stride=2)
            gy = torch.randn(y.shape).contiguous(memory_format=gy_format)
            gradients = torch.autograd.grad(y, (x, w), gy, create_graph=create_graph)
            strides.append([t.stride() for t in (y, *gradients)])
        assert strides[1] == strides[0], (x_format, w_format, gy_format)


class TestAutocast:
    """Backward inside torch.autocast has the dtype the layer ran in, as PyTorch's has."""

    def gradients(self, within, create_graph=False):
        torch.manual_seed(4)
        x, w, b = (torch.randn(size, requires_grad=True) for size in ((2, 8, 6), (8, 3, 4), (3,)))
        y = tconv.conv_transpose1d(x, w, b, 2)
        gy = torch.randn(y.shape, requires_grad=create_graph)
        with torch.autocast("cpu", torch.bfloat16, enabled=within):
            first = torch.autograd.grad(y, (x, w, b), gy, create_graph=create_graph)
            if not create_graph:
                return first
            return [*first, *torch.autograd.grad([g.pow(2).sum() for g in first], (x, w, gy))]

    @pytest.mark.parametrize("create_graph", [False, True])
    def test_backward_by_pytorch(self, by_pytorch, create_graph):
        for a, e in zip(self.gradients(True, create_graph), self.gradients(False, create_graph), strict=True):
            assert torch.equal(a, e)

    @pytest.mark.parametrize("create_graph", [False, True])
    def test_backward_by_the_engine(self, create_graph):
        for a, e in zip(self.gradients(True, create_graph), self.gradients(False, create_graph), strict=True):
            assert torch.equal(a, e)

    def test_the_operators_kernels(self):
        x, w, gy = torch.randn(2, 4, 6), torch.randn(4, 3, 4), torch.randn(2, 3, 14)
        rest = ([2, 0, 0, 1], 1, False)
        calls = (
            (_pytorch.conv_transpose_kernel, (x, w, None)),
            (_pytorch.grad_input_kernel, (gy, w)),
            (_pytorch.grad_weight_kernel, (x, gy, [4])),
        )
        for kernel, arguments in calls:
            expected = kernel(*arguments, *rest)
            with torch.autocast("cpu", torch.bfloat16):
                assert torch.equal(kernel(*arguments, *rest), expected)


class TestTF32:
    """The layer's precision reaches every call, and PyTorch's switch is as it was afterwards."""

    @pytest.fixture(params=[True, False])
    def switch(self, request):
        convolutions = torch.backends.cudnn.conv
        before = convolutions.fp32_precision
        convolutions.fp32_precision = "tf32" if request.param else "ieee"
        yield request.param
        convolutions.fp32_precision = before

    @staticmethod
    def allowed():
        return torch.backends.cudnn.conv.fp32_precision == "tf32"

    @pytest.mark.parametrize("wanted", [True, False])
    def test_set_and_set_back(self, switch, wanted):
        with _pytorch.tf32(wanted):
            assert self.allowed() is wanted
        assert self.allowed() is switch
        with pytest.raises(ZeroDivisionError), _pytorch.tf32(wanted):
            raise ZeroDivisionError
        assert self.allowed() is switch

    def test_one_thread_at_a_time(self, switch):
        def work():
            for _ in range(200):
                with _pytorch.tf32(not switch):
                    assert self.allowed() is not switch

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert self.allowed() is switch

    @pytest.mark.parametrize("wanted", [True, False])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    def test_calls_for_cuda_tensors(self, switch, wanted, dtype):
        # Fake tensors have no memory and need no GPU, but know where they are.
        seen = []

        class Recorder(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                if "convolution" in str(function):
                    seen.append((str(function), TestTF32.allowed()))
                return function(*args, **(kwargs or {}))

        layer = Layer([2, 0, 0, 1], 1, wanted)
        with FakeTensorMode(), Recorder():
            x, w, gy = (torch.empty(s, device="cuda", dtype=dtype) for s in ((2, 4, 6), (4, 3, 4), (2, 3, 14)))
            _pytorch.conv_transpose(x, w, None, layer)
            _pytorch.grad_input(gy, w, layer)
            _pytorch.grad_weight(x, gy, [4], layer)
            _pytorch.gradients(gy, x, w, (True, True, True), layer)
        expected = wanted if dtype == torch.float32 else switch  # it means nothing to the others
        forward, backward = "aten.convolution.default", "aten.convolution_backward.default"
        assert seen == [(name, expected) for name in (forward, forward, backward, backward)]
        assert self.allowed() is switch

    def test_cpu_tensors_leave_the_switch_alone(self, switch, monkeypatch):
        monkeypatch.setattr(_pytorch, "tf32", None)
        _pytorch.conv_transpose(
            torch.randn(1, 2, 3), torch.randn(2, 2, 2), None, Layer([1, 0, 0, 1], 1, not switch)
        )
