"""The registrations of the three operators, by PyTorch's own checker, and what is true of any implementation."""

import subprocess
import sys

import pytest
import torch
from torch.library import opcheck

import tconv
from layers import PYTORCH, TCONV

OPS = torch.ops.tconv
GEOMETRY = {1: [2, 1, 1, 1], 2: [2, 1, 1, 0, 1, 0, 1, 2], 3: [1, 2, 1, 0, 0, 1, 0, 1, 0, 1, 1, 2]}
KERNEL = {1: [4], 2: [3, 2], 3: [2, 3, 2]}
SPATIAL = {1: [6], 2: [5, 4], 3: [3, 2, 4]}
FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}


def operands(dims, dtype=torch.float32, groups=2, channels_last=False):
    x = torch.randn(2, 2 * groups, *SPATIAL[dims], dtype=dtype)
    w = torch.randn(2 * groups, 3, *KERNEL[dims], dtype=dtype)
    b = torch.randn(3 * groups, dtype=dtype)
    if channels_last:
        x = x.contiguous(memory_format=FORMATS[dims])
    y = OPS.conv_transpose(x, w, b, GEOMETRY[dims], groups, False)
    gy = torch.randn_like(y)
    return [tensor.requires_grad_() for tensor in (x, w, b, gy)]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_opcheck(dims, channels_last):
    if channels_last and dims == 1:
        pytest.skip("1D has no channels_last")
    x, w, b, gy = operands(dims, channels_last=channels_last)
    rest = (GEOMETRY[dims], 2, False)
    opcheck(OPS.conv_transpose.default, (x, w, b, *rest))
    opcheck(OPS.conv_transpose.default, (x, w, None, *rest))
    opcheck(OPS.conv_transpose_grad_input.default, (gy, w, *rest))
    opcheck(OPS.conv_transpose_grad_weight.default, (x, gy, KERNEL[dims], *rest))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_each_operator_is_the_adjoint_of_the_others(dims):
    x, w, _, gy = (t.detach() for t in operands(dims, torch.float64))
    rest = (GEOMETRY[dims], 2, False)
    with_y = (OPS.conv_transpose(x, w, None, *rest) * gy).sum()
    with_x = (OPS.conv_transpose_grad_input(gy, w, *rest) * x).sum()
    with_w = (OPS.conv_transpose_grad_weight(x, gy, KERNEL[dims], *rest) * w).sum()
    torch.testing.assert_close(with_x, with_y, rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(with_w, with_y, rtol=1e-13, atol=1e-12)


def test_operators_take_sizes_that_fit_only():
    x, w, b, gy = (t.detach() for t in operands(1))
    with pytest.raises(RuntimeError, match="is not the output"):
        OPS.conv_transpose_grad_input(gy[:, :, :-1], w, GEOMETRY[1], 2, False)
    with pytest.raises(RuntimeError, match="is not the output"):
        OPS.conv_transpose_grad_weight(x, gy[:, :, :-1], KERNEL[1], GEOMETRY[1], 2, False)
    with pytest.raises(RuntimeError, match="kernel_size"):
        OPS.conv_transpose_grad_weight(x, gy, [4, 4], GEOMETRY[1], 2, False)
    with pytest.raises(RuntimeError, match="geometry"):
        OPS.conv_transpose(x, w, b, [1, 1, 1], 2, False)
    with pytest.raises(IndexError, match="layer number"):
        OPS._conv_transpose(x, w, b, 10**9)


X, W, B, GY = (t.detach() for t in operands(1))
LAYER = (GEOMETRY[1], 2)
REFUSED = [
    (OPS.conv_transpose, (X[:, :1], W, B, *LAYER), "to have 4 channels, but got 1 channels"),
    (OPS.conv_transpose, (X, W, B[:1], *LAYER), "expected bias to be 1-dimensional with 6 elements"),
    (OPS.conv_transpose, (X, W, B, [0, 1, 0, 1], 2), "non-positive stride"),
    (OPS.conv_transpose, (X, W, B, [1, -1, 0, 1], 2), "negative padding"),
    (OPS.conv_transpose, (X, W, B, [1, 0, -1, 1], 2), "negative output_padding"),
    (OPS.conv_transpose, (X, W, B, [1, 0, 1, 1], 2), "output padding must be smaller"),
    (OPS.conv_transpose, (X, W, B, [1, 0, 0, 0], 2), "dilation should be greater than zero"),
    (OPS.conv_transpose, (X, W, B, [1, 40, 0, 1], 2), "no elements in dimension 0"),
    (OPS.conv_transpose, (X, W, B, [1, 0, 0], 2), "geometry must hold"),
    (OPS.conv_transpose, (X, W, B, GEOMETRY[1], 0), "non-positive groups"),
    (OPS.conv_transpose, (X, W, B, GEOMETRY[1], 3), "divisible by 3"),
    (OPS.conv_transpose, (X.double(), W, B, *LAYER), "weight and input to have the same dtype"),
    (OPS.conv_transpose, (X, W, B.double(), *LAYER), "bias and input to have the same dtype"),
    (OPS.conv_transpose, (X.int(), W.int(), None, *LAYER), "take float32, float64, float16 and bfloat16"),
    (OPS.conv_transpose, (X[0], W, B, *LAYER), "Expected 3-dimensional input"),
    (OPS.conv_transpose, (X, W[0], B, *LAYER), "Expected 3-dimensional weight"),
    (OPS.conv_transpose, (X, W[..., :0], B, *LAYER), "non-empty weight"),
    (OPS.conv_transpose, (X, W[:, :0], B[:0], *LAYER), "non-empty weight"),
    (OPS.conv_transpose, (X[:, :0], W[:0], B, *LAYER), "non-empty weight"),
    (OPS.conv_transpose, (X[..., :0], W, B, *LAYER), "input size must be positive, got 0 in dimension 0"),
    (OPS.conv_transpose_grad_input, (GY, W[..., :0], *LAYER), "non-empty weight"),
    (OPS.conv_transpose_grad_input, (GY[:, :1], W, *LAYER), "to have 6 channels, but got 1 channels"),
    (OPS.conv_transpose_grad_weight, (X, GY, [0], *LAYER), "kernel must be positive, got 0 in dimension 0"),
    (OPS.conv_transpose_grad_weight, (X, GY, [4, 4], *LAYER), "kernel_size to have 1 values"),
    (OPS.conv_transpose_grad_weight, (X[..., :0], GY, [4], *LAYER), "input size must be positive"),
    (OPS.conv_transpose_grad_weight, (X, GY[:1], [4], *LAYER), "is not the output for input"),
    (OPS.conv_transpose_grad_weight, (X[:, :3], GY, [4], *LAYER), "in_channels must be divisible by groups"),
    (OPS.conv_transpose_grad_weight, (X, GY[:, :5], [4], *LAYER), "out_channels must be divisible by groups"),
]


@pytest.mark.parametrize(("operator", "arguments", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_fake_kernels_refuse_what_the_kernels_refuse(operator, arguments, words):
    from torch._subclasses import FakeTensorMode

    with pytest.raises(RuntimeError, match=words):
        operator(*arguments, False)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        with pytest.raises(RuntimeError, match=words):
            operator(*fake, False)


def test_meta_tensors():
    module = tconv.nn.ConvTranspose2d(3, 5, 3, stride=2, device="meta")
    assert module(torch.empty(2, 3, 4, 5, device="meta")).shape == (2, 5, 9, 11)


def test_dispatch_modes_see_the_operators():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    module = tconv.nn.ConvTranspose1d(3, 4, 3)
    with Recorder():
        module(torch.randn(1, 3, 5)).sum().backward()
    assert "tconv.conv_transpose.default" in seen
    assert "tconv.conv_transpose_grad_weight.default" in seen


def test_negative_views_are_materialised():
    x = torch.randn(1, 3, 5, dtype=torch.complex64).conj().imag
    w = torch.randn(3, 2, 3)
    assert x.is_neg()
    torch.testing.assert_close(
        tconv.conv_transpose1d(x, w), torch.nn.functional.conv_transpose1d(x.clone().resolve_neg(), w)
    )


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_flop_counter_counts_what_it_counts_for_pytorch(dims, groups):
    from torch.utils.flop_counter import FlopCounterMode

    for wanted in ("", "x", "w", "xw"):
        totals = []
        for function in (PYTORCH[dims], TCONV[dims]):
            x = torch.randn(2, 2 * groups, *SPATIAL[dims], requires_grad="x" in wanted)
            w = torch.randn(2 * groups, 3, *KERNEL[dims], requires_grad="w" in wanted)
            with FlopCounterMode(display=False) as counter:
                y = function(x, w, stride=2, groups=groups)
                if wanted:
                    y.sum().backward()
            totals.append(counter.get_total_flops())
        assert totals[1] == totals[0] > 0


@pytest.mark.parametrize("first", ["tconv", "torch.utils.flop_counter"])
def test_the_flop_counter_is_not_loaded_for_its_formulas(first):
    second = {"tconv": "torch.utils.flop_counter", "torch.utils.flop_counter": "tconv"}[first]
    script = (
        f"import sys, torch, {first}\n"
        f"loaded = 'torch.utils.flop_counter' in sys.modules\n"
        f"import {second}\n"
        "from torch.utils.flop_counter import flop_registry\n"
        "assert torch.ops.tconv.conv_transpose in flop_registry\n"
        f"assert loaded == ({first!r} != 'tconv'), loaded"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
