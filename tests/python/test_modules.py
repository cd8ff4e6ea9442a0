"""The modules beside PyTorch's: construction, initialisation, state, and what PyTorch's own tests ask of them.

The second half mirrors the ConvTranspose tests of PyTorch's test suite: module-info inputs, output_size,
unbatched and empty inputs, channels_last strides, determinism, large outputs.
"""

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch import nn

import tconv
from layers import relative_error

PAIRS = {
    dims: (getattr(nn, f"ConvTranspose{dims}d"), getattr(tconv.nn, f"ConvTranspose{dims}d")) for dims in (1, 2, 3)
}
dimensions = pytest.mark.parametrize("dims", [1, 2, 3])


def pair(dims, *args, **kwargs):
    """The same layer from either library, built after the same seed."""
    result = []
    for cls in PAIRS[dims]:
        torch.manual_seed(7)
        result.append(cls(*args, **kwargs))
    return result


@dimensions
def test_signature_is_inherited(dims):
    theirs, ours = PAIRS[dims]
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert inspect.signature(ours.forward).parameters.keys() == inspect.signature(theirs.forward).parameters.keys()


@dimensions
def test_same_seed_same_weights(dims):
    theirs, ours = pair(dims, 4, 6, 3, stride=2, groups=2)
    assert isinstance(ours, type(theirs))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value)
    assert repr(ours) == repr(theirs)


@dimensions
def test_state_dict_goes_either_way(dims):
    theirs, ours = PAIRS[dims][0](3, 4, 2), PAIRS[dims][1](3, 4, 2)
    x = torch.randn(1, 3, *[4] * dims)
    ours.load_state_dict(theirs.state_dict())
    assert relative_error(ours(x), theirs(x)) < 1e-6
    other = PAIRS[dims][0](3, 4, 2)
    other.load_state_dict(ours.state_dict())
    assert torch.equal(other(x), theirs(x))


def test_copies_and_pickles():
    _, ours = pair(2, 3, 4, 3, stride=2)
    ours.precision = "fp32"
    x = torch.randn(1, 3, 5, 5)
    saved = io.BytesIO()
    torch.save(ours, saved)
    saved.seek(0)
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(saved, weights_only=False)):
        assert type(twin) is tconv.nn.ConvTranspose2d
        assert twin.precision == "fp32"
        assert torch.equal(twin(x), ours(x))


def test_constructor_refuses_what_pytorchs_refuses():
    for arguments in ({"groups": 3}, {"padding_mode": "reflect"}):
        for cls in PAIRS[1]:
            with pytest.raises(ValueError):  # noqa: PT011  the words are PyTorch's
                cls(8, 6, 4, **arguments)


def test_dtype_and_device_arguments():
    assert tconv.nn.ConvTranspose1d(2, 2, 2, dtype=torch.float64).weight.dtype == torch.float64
    assert tconv.nn.ConvTranspose1d(2, 2, 2, device="meta").weight.is_meta
    module = tconv.nn.ConvTranspose1d(2, 2, 2).double()
    assert module(torch.randn(1, 2, 3, dtype=torch.float64)).dtype == torch.float64


@dimensions
def test_lazy_modules_become_ours(dims):
    lazy = getattr(tconv.nn, f"LazyConvTranspose{dims}d")(4, 3, stride=2)
    output = lazy(torch.randn(2, 5, *[4] * dims))
    assert type(lazy) is PAIRS[dims][1]
    assert lazy.in_channels == 5
    assert output.shape[1] == 4


# What PyTorch's test suite asks -------------------------------------------------------------------------------

MODULE_INPUTS = [
    {"kernel_size": 3, "stride": 1},
    {"kernel_size": 3, "stride": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
    {"kernel_size": 3, "stride": 1, "dilation": 2, "bias": False},
    {"kernel_size": 2, "stride": 3, "output_padding": 2, "bias": False},
    {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2, "output_padding": 1, "groups": 2},
    {"kernel_size": 1, "stride": 1, "groups": 2},
]


@dimensions
@pytest.mark.parametrize("arguments", MODULE_INPUTS, ids=str)
def test_module_info_inputs(dims, arguments):
    theirs, ours = pair(dims, 4, 4, dtype=torch.float64, **arguments)
    x = torch.randn(2, 4, *[7, 5, 3][:dims], dtype=torch.float64)
    results = []
    for module in (theirs, ours):
        input = x.clone().requires_grad_()
        output = module(input)
        output.pow(2).sum().backward()
        results.append([output, input.grad, *[p.grad for p in module.parameters()]])
    for a, b in zip(*results, strict=True):
        assert relative_error(b, a) < 1e-12


@dimensions
def test_output_size(dims):
    theirs, ours = pair(dims, 3, 4, 3, stride=3, padding=1)
    x = torch.randn(2, 3, *[4] * dims)
    smallest = theirs(x).shape[-1]
    for extra in range(3):
        for output_size in ([smallest + extra] * dims, [2, 4, *[smallest + extra] * dims]):
            expected = theirs(x, output_size=output_size)
            assert expected.shape[-1] == smallest + extra
            assert relative_error(ours(x, output_size=output_size), expected) < 1e-6
            assert relative_error(ours(x, torch.Size(output_size)), expected) < 1e-6
    for wrong in ([smallest - 1] * dims, [smallest + 3] * dims, [smallest] * (dims + 1)):
        for module in (theirs, ours):
            with pytest.raises(ValueError, match=r"output.size"):
                module(x, output_size=wrong)


def test_output_size_of_a_downsampled_input():
    # As in PyTorch's test_ConvTranspose2d_output_size: the way up meets the size before the way down.
    for height, width in ((12, 13), (9, 8), (7, 7)):
        x = torch.randn(1, 4, height, width)
        down = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        up = tconv.nn.ConvTranspose2d(4, 4, 3, stride=2, padding=1)
        assert up(down(x), output_size=x.size()).shape == x.shape


@dimensions
def test_unbatched_input(dims):
    theirs, ours = pair(dims, 3, 4, 3, stride=2)
    x = torch.randn(3, *[5] * dims)
    assert relative_error(ours(x), theirs(x)) < 1e-6
    assert relative_error(ours(x), ours(x[None])[0]) == 0
    size = [theirs(x).shape[-1] + 1] * dims
    assert ours(x, output_size=size).shape == theirs(x, output_size=size).shape


@dimensions
def test_empty_batch(dims):
    theirs, ours = pair(dims, 3, 4, 3, stride=2)
    x = torch.randn(0, 3, *[5] * dims, requires_grad=True)
    y = ours(x)
    assert y.shape == theirs(x).shape
    y.sum().backward()
    assert x.grad.shape == x.shape
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in ours.parameters())


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("which", ["input", "weight", "both", "neither"])
def test_channels_last_strides(dims, which):
    theirs, ours = pair(dims, 4, 6, 3, stride=2, padding=1)
    last = torch.channels_last if dims == 2 else torch.channels_last_3d
    x = torch.randn(2, 4, *[5] * dims)
    if which in ("input", "both"):
        x = x.to(memory_format=last)
    if which in ("weight", "both"):
        theirs, ours = theirs.to(memory_format=last), ours.to(memory_format=last)
    outputs, gradients = [], []
    for module in (theirs, ours):
        input = x.clone().requires_grad_()
        output = module(input)
        output.backward(torch.ones_like(output))
        outputs.append(output)
        gradients.append((input.grad, module.weight.grad))
    assert outputs[1].is_contiguous(memory_format=last) == (which != "neither")
    assert outputs[1].stride() == outputs[0].stride()
    assert relative_error(outputs[1], outputs[0]) < 1e-6
    for a, b in zip(*gradients, strict=True):
        assert b.stride() == a.stride()
        assert relative_error(b, a) < 1e-5


def test_ambiguous_strides_are_pytorchs():
    # Sizes of one make the order of the strides ambiguous.
    for shape in ((2, 1, 5, 5), (2, 3, 1, 1), (1, 1, 1, 1), (2, 3, 1, 4), (1, 3, 4, 1)):
        for make in (torch.Tensor.contiguous, lambda t: t.to(memory_format=torch.channels_last)):
            theirs, ours = pair(2, shape[1], 4, 2)
            x = make(torch.randn(shape))
            assert ours(x).stride() == theirs(x).stride(), (shape, x.stride())


@dimensions
def test_deterministic(dims):
    ours = PAIRS[dims][1](6, 5, 3, stride=2)
    x = torch.randn(4, 6, *[[300], [20, 20], [7, 7, 7]][dims - 1], requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        runs = []
        for _ in range(3):
            output = ours(x)
            runs.append([output, *torch.autograd.grad(output.pow(2).sum(), [x, *ours.parameters()])])
    finally:
        torch.use_deterministic_algorithms(False)
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], run, strict=True))


def test_large_output():
    # As in PyTorch's test_conv_transposed_large: parts of a large output equal small ones.
    module = tconv.nn.ConvTranspose2d(1, 1, 1, 1, bias=False)
    nn.init.ones_(module.weight)
    x = torch.randn(1, 1, 2048, 1024)
    assert torch.equal(module(x), x)

    module = tconv.nn.ConvTranspose1d(2, 3, 4, stride=2, padding=1)
    x = torch.randn(1, 2, 1_000_000)
    y = module(x)
    assert y.shape == (1, 3, 2_000_000)
    for start in (0, 499_000, 999_000):
        part = module(x[:, :, start : start + 1000])
        torch.testing.assert_close(y[:, :, 2 * start + 4 : 2 * start + 1996], part[:, :, 4:1996])


def test_tensor_with_huge_expanded_batch():
    # Strides of zero: one sample of memory, many of them computed.
    module = tconv.nn.ConvTranspose1d(2, 3, 3)
    x = torch.randn(1, 2, 9)
    y = module(x.expand(500, 2, 9))
    assert torch.equal(y, module(x).expand_as(y))


def test_zero_weight_gives_the_bias():
    module = tconv.nn.ConvTranspose2d(3, 4, 3, stride=4)
    nn.init.zeros_(module.weight)
    y = module(torch.randn(2, 3, 5, 5))
    assert torch.equal(y, module.bias.view(1, 4, 1, 1).expand_as(y))


def test_nan_and_infinity_propagate():
    for value in (float("nan"), float("inf")):
        theirs, ours = pair(1, 2, 2, 3, stride=2)
        x = torch.randn(1, 2, 6)
        x[0, 1, 3] = value
        assert torch.equal(ours(x).isfinite(), theirs(x).isfinite())


def test_autocast_as_pytorchs():
    theirs, ours = pair(1, 4, 6, 4, stride=2)
    x = torch.randn(2, 4, 9)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            expected, actual = theirs(x), ours(x)
        assert actual.dtype == expected.dtype == dtype
        torch.testing.assert_close(actual, expected, rtol=1e-2, atol=1e-2)
        actual.float().pow(2).sum().backward()
        assert ours.weight.grad.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert ours.double()(x.double()).dtype == theirs.double()(x.double()).dtype == torch.float64


def test_checkpointing():
    from torch.utils.checkpoint import checkpoint

    module = tconv.nn.ConvTranspose1d(3, 4, 4, 2)
    x = torch.randn(2, 3, 7, requires_grad=True)
    expected = torch.autograd.grad(module(x).pow(2).sum(), [x, *module.parameters()])
    actual = torch.autograd.grad(
        checkpoint(module, x, use_reentrant=False).pow(2).sum(), [x, *module.parameters()]
    )
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
