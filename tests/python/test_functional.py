"""The functional API: parameters as PyTorch takes them, and refusals as PyTorch gives them."""

import os
import subprocess
import sys

import numpy
import pytest
import torch
from torch.nn import functional as F

import tconv
from layers import PYTORCH, TCONV, laid_out, random_layer, relative_error

X, W, B = torch.randn(2, 8, 16), torch.randn(8, 6, 4), torch.randn(6)


@pytest.mark.parametrize(
    "arguments",
    [
        {"stride": 2},
        {"stride": (2,)},
        {"stride": [2], "padding": [1], "output_padding": [1], "dilation": [2]},
        {"stride": torch.Size([3])},
        {"stride": numpy.int64(2)},
        {"stride": torch.tensor(2)},
        {"stride": (numpy.int64(2),)},
        {"stride": 3, "output_padding": 2, "padding": 1, "groups": 1, "dilation": 2},
    ],
    ids=str,
)
def test_parameters_in_every_form(arguments):
    torch.testing.assert_close(
        tconv.conv_transpose1d(X, W, B, **arguments), F.conv_transpose1d(X, W, B, **arguments)
    )


def test_positions_are_pytorchs():
    arguments = (B, 2, 1, 1, 1, 2)
    torch.testing.assert_close(tconv.conv_transpose1d(X, W, *arguments), F.conv_transpose1d(X, W, *arguments))


@pytest.mark.parametrize("several", [False, True])
def test_a_tensor_that_changes_is_another_stride(several):
    stride = torch.tensor(2)
    given = (stride,) if several else stride
    assert torch.equal(tconv.conv_transpose1d(X, W, stride=given), tconv.conv_transpose1d(X, W, stride=2))
    stride.fill_(3)
    assert torch.equal(tconv.conv_transpose1d(X, W, stride=given), tconv.conv_transpose1d(X, W, stride=3))


@pytest.mark.parametrize("wrong", [(3.0,), (True,)])
def test_what_is_no_integer_is_refused_though_its_equal_was_taken(wrong):
    tconv.conv_transpose1d(X, W, stride=(int(wrong[0]),))
    with pytest.raises(TypeError, match="stride"):
        F.conv_transpose1d(X, W, stride=wrong)
    kind = type(wrong[0]).__name__
    with pytest.raises(
        TypeError, match=f"'stride' must be tuple of ints, but found element of type {kind} at pos 0"
    ):
        tconv.conv_transpose1d(X, W, stride=wrong)
    with pytest.raises(TypeError, match=f"'stride' must be tuple of ints, not {kind}"):
        tconv.conv_transpose1d(X, W, stride=wrong[0])


def test_one_value_serves_all_dimensions():
    x, w = torch.randn(1, 4, 3, 5, 2), torch.randn(4, 2, 2, 3, 2)
    for stride in (2, (2,), [2]):
        torch.testing.assert_close(
            tconv.conv_transpose3d(x, w, stride=stride), F.conv_transpose3d(x, w, stride=stride)
        )


REFUSED = {
    "stride 0": ({"stride": 0}, RuntimeError, "stride"),
    "stride -1": ({"stride": -1}, RuntimeError, "stride"),
    "padding -1": ({"padding": -1}, RuntimeError, "padding"),
    "dilation 0": ({"dilation": 0}, RuntimeError, "dilation"),
    "output_padding -1": ({"output_padding": -1}, RuntimeError, "output_padding"),
    "output_padding too large": ({"output_padding": 1}, RuntimeError, "output padding"),
    "groups 0": ({"groups": 0}, RuntimeError, "groups"),
    "groups -1": ({"groups": -1}, RuntimeError, "groups"),
    "groups 3": ({"groups": 3}, RuntimeError, "divisible by 3"),
    "no output left": ({"padding": 40}, RuntimeError, "output"),
    "two strides in 1D": ({"stride": (1, 1)}, RuntimeError, "stride"),
    "no stride": ({"stride": []}, RuntimeError, "stride"),
    "huge stride": ({"stride": 2**62}, RuntimeError, None),
    "float stride": ({"stride": 1.0}, TypeError, "stride"),
    "float in a tuple": ({"padding": (0.5,)}, TypeError, "padding"),
    "bool stride": ({"stride": True}, TypeError, "stride"),
    "string": ({"dilation": "a"}, TypeError, "dilation"),
    "None": ({"output_padding": None}, TypeError, "output_padding"),
    "float groups": ({"groups": 1.0}, TypeError, "groups"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_parameters_refused_like_pytorch_refuses_them(case):
    arguments, exception, words = REFUSED[case]
    with pytest.raises(exception):
        F.conv_transpose1d(X, W, B, **arguments)
    for weight in (W, W.clone().requires_grad_()):
        with pytest.raises(exception, match=words):
            tconv.conv_transpose1d(X, weight, B, **arguments)


TENSORS_REFUSED = {
    "channels": ((X[:, :7], W, B), RuntimeError, "to have 8 channels"),
    "bias size": ((X, W, B[:5]), RuntimeError, "bias"),
    "bias rank": ((X, W, B[None]), RuntimeError, "bias"),
    "input rank 4": ((X[None], W, B), RuntimeError, "Expected 2D .unbatched. or 3D .batched. input"),
    "input rank 1": ((X[0, 0], W, B), RuntimeError, "Expected 2D .unbatched. or 3D .batched. input"),
    "weight rank": ((X, W[..., None], B), RuntimeError, "weight"),
    "dtypes of input and weight": ((X.double(), W, B), RuntimeError, "dtype"),
    "empty input": ((X[:, :, :0], W, B), RuntimeError, "input"),
    "empty kernel": ((X, W[:, :, :0], B), RuntimeError, "weight"),
    "no out channels": ((X, W[:, :0], B[:0]), RuntimeError, "weight"),
    "no in channels": ((X[:, :0], W[:0], B), RuntimeError, "weight"),
    "integer input, float weight": ((X.long(), W, B), RuntimeError, None),
    "bool": ((X.bool(), W.bool(), B.bool()), NotImplementedError, None),
    "no weight": ((X, None, B), TypeError, "weight"),
    "numpy": ((X.numpy(), W, B), TypeError, "input"),
    "number for bias": ((X, W, 3), TypeError, "bias"),
}


@pytest.mark.parametrize("case", TENSORS_REFUSED)
def test_tensors_refused_like_pytorch_refuses_them(case):
    tensors, exception, words = TENSORS_REFUSED[case]
    with pytest.raises(exception):
        F.conv_transpose1d(*tensors)
    with pytest.raises(exception, match=words):
        tconv.conv_transpose1d(*tensors)


def test_bias_of_another_dtype_is_refused():
    # PyTorch lets some of these through, depending on the processor.
    for tensors in ((X, W, B.double()), (X.half(), W.half(), B)):
        with pytest.raises(RuntimeError, match="bias"):
            tconv.conv_transpose1d(*tensors)


def test_devices_must_agree():
    for tensors in ((X, W.to("meta"), B), (X.to("meta"), W, B), (X, W, B.to("meta"))):
        with pytest.raises(RuntimeError, match="same device"):
            tconv.conv_transpose1d(*tensors)


def test_requires_grad_is_for_floats():
    with pytest.raises(RuntimeError, match="floating point"):
        tconv.conv_transpose1d(X.long().requires_grad_(), W, B)


def test_precision():
    expected = F.conv_transpose1d(X, W, B)
    for precision in (None, "fp32", "tf32"):  # on a CPU all are fp32
        torch.testing.assert_close(tconv.conv_transpose1d(X, W, B, precision=precision), expected)
    with pytest.raises(ValueError, match="precision"):
        tconv.conv_transpose1d(X, W, B, precision="fp8")


def test_precision_follows_pytorchs_switches():
    from tconv._precision import allow_tf32

    before = torch.backends.cudnn.allow_tf32
    try:
        for allowed in (False, True):
            torch.backends.cudnn.allow_tf32 = allowed
            assert allow_tf32(None) is allowed
        assert allow_tf32("fp32") is False
        torch.backends.cudnn.conv.fp32_precision = "ieee"
        assert allow_tf32(None) is False
        torch.backends.cudnn.conv.fp32_precision = "tf32"
        assert allow_tf32(None) is True
    finally:
        torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.complex128])
def test_other_dtypes_are_pytorchs(dtype):
    x, w, b = (t.mul(4).to(dtype) for t in (X, W, B))
    torch.testing.assert_close(tconv.conv_transpose1d(x, w, b, 2), F.conv_transpose1d(x, w, b, 2))


def test_verbose_names_the_engine_and_the_fallback():
    script = (
        "import torch, tconv; w = torch.randn(2, 3, 3); tconv.conv_transpose1d(torch.randn(1, 2, 5), w);"
        "tconv.conv_transpose1d(torch.randn(1, 2, 5).cfloat(), w.cfloat())"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TCONV_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in result.stderr.splitlines() if line.startswith("tconv,")]
    assert lines[0].startswith("tconv,cpu,forward,"), result.stderr
    assert lines[1].startswith("tconv,pytorch,forward,fallback"), result.stderr
    assert len(lines) == 2


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "sliced", "transposed", "expanded"])
def test_every_stride_of_every_operand(dims, layout):
    x, w = torch.randn(2, 6, *[4] * dims), torch.randn(6, 2, *[3] * dims)
    b = torch.randn(8)[::2]
    expected = PYTORCH[dims](laid_out(x, layout).contiguous(), w, b, stride=2, groups=2)
    actual = TCONV[dims](laid_out(x, layout), laid_out(w, "sliced"), b, stride=2, groups=2)
    assert relative_error(actual, expected) < 1e-6


def test_any_number_of_threads():
    def run():
        results = []
        for seed in range(40):
            layer = random_layer(seed, torch.float32, wide=seed % 2 == 0)
            operands = [t.detach().clone().requires_grad_() for t in layer.operands]
            y = layer.tconv(*operands)
            results.append((layer.about, y, *torch.autograd.grad(y, operands, torch.ones_like(y))))
        return results

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = run()
        torch.set_num_threads(3)
        together, again = run(), run()
    finally:
        torch.set_num_threads(before)
    for (about, *one), (_, *several), (_, *repeated) in zip(alone, together, again, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, several, strict=True)), about
        assert all(torch.equal(a, b) for a, b in zip(several, repeated, strict=True)), about


def test_python_threads_share_the_caches():
    from concurrent.futures import ThreadPoolExecutor

    layers = [random_layer(seed, torch.float64) for seed in range(24)]
    expected = [layer.pytorch(*layer.operands) for layer in layers]

    def check(turn):
        layer, want = layers[turn % 24], expected[turn % 24]
        assert relative_error(layer.tconv(*layer.operands), want) < 1e-12

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, range(400)))


def test_more_lengths_than_are_remembered():
    # The caches of plans and bindings are bounded; what they forget is made again.
    w, x = torch.randn(2, 2, 3), torch.randn(1, 2, 2600)
    expected = F.conv_transpose1d(x, w)
    for length in [*range(1, 2600), 1, 2, 3]:
        y = tconv.conv_transpose1d(x[..., :length], w)
        assert y.shape[-1] == length + 2
        torch.testing.assert_close(y[..., :length], expected[..., :length])  # what lies behind misses later inputs
        if length < 9 or length % 97 == 0:
            torch.testing.assert_close(y, F.conv_transpose1d(x[..., :length], w))


EMPTY_OUTPUTS = {
    "1d": (1, (2, 3, 1), (3, 4, 2), {"padding": 1}),
    "1d strided": (1, (1, 4, 2), (4, 1, 3), {"stride": 3, "padding": 3, "groups": 4}),
    "2d": (2, (2, 3, 1, 5), (3, 4, 2, 2), {"padding": (1, 0)}),
    "2d, no batch": (2, (0, 3, 1, 5), (3, 4, 2, 2), {"padding": (1, 0)}),
    "3d": (3, (2, 3, 2, 1, 2), (3, 4, 2, 2, 2), {"padding": (0, 1, 0)}),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", EMPTY_OUTPUTS)
def test_an_output_without_elements(case, bias):
    dims, input_size, weight_size, arguments = EMPTY_OUTPUTS[case]
    outputs, gradients = [], []
    for function in (PYTORCH[dims], TCONV[dims]):
        sizes = (input_size, weight_size, (weight_size[1] * arguments.get("groups", 1),))[: 3 if bias else 2]
        operands = [torch.randn(size, requires_grad=True) for size in sizes]
        outputs.append(function(*operands, **arguments))
        gradients.append(torch.autograd.grad(outputs[-1].sum(), operands))
    assert outputs[1].shape == outputs[0].shape
    assert outputs[1].numel() == 0
    for theirs, ours in zip(*gradients, strict=True):
        assert ours.shape == theirs.shape
        assert not ours.any()


def test_an_output_of_less_than_no_elements_is_refused():
    with pytest.raises(RuntimeError, match="no elements in dimension 0"):
        tconv.conv_transpose1d(X[:, :, :1], W, padding=3)
    with pytest.raises(RuntimeError, match="input size must be positive"):
        tconv.conv_transpose1d(X[:, :, :0], W)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("which", ["weight", "bias", "both"])
def test_sparse_parameters_are_refused_like_pytorch_refuses_them(which, grad):
    weight = W.to_sparse() if which != "bias" else W
    bias = B.to_sparse() if which != "weight" else B
    x = X.clone().requires_grad_(grad)
    for input in (x, x[0]):
        with pytest.raises(RuntimeError) as theirs:
            F.conv_transpose1d(input, weight, bias)
        with pytest.raises(RuntimeError) as ours:
            tconv.conv_transpose1d(input, weight, bias)
        assert ours.type is theirs.type
        assert str(ours.value) == str(theirs.value)
