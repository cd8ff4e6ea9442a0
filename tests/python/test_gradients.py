"""Derivatives by finite differences, forward mode, and the transforms of torch.func."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._pytree import tree_leaves

import tconv
from layers import PYTORCH, TCONV

CASES = {
    "1d": (1, (2, 4, 5), (4, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    "1d dilated": (1, (1, 2, 4), (2, 2, 3), {"stride": 2, "dilation": 3, "output_padding": 2}),
    "1d depthwise": (1, (2, 3, 4), (3, 1, 2), {"groups": 3, "stride": 3}),
    "2d grouped": (2, (1, 4, 3, 2), (4, 2, 2, 3), {"stride": (2, 1), "padding": (0, 1), "groups": 2}),
    "3d": (3, (1, 2, 2, 2, 3), (2, 2, 2, 1, 2), {"stride": (1, 2, 1), "padding": (1, 0, 0)}),
}


def operands(case, requires_grad=True):
    dims, input_shape, weight_shape, arguments = CASES[case]
    tensors = [
        torch.randn(input_shape, dtype=torch.float64),
        torch.randn(weight_shape, dtype=torch.float64),
        torch.randn(weight_shape[1] * arguments.get("groups", 1), dtype=torch.float64),
    ]
    return (
        lambda *a: TCONV[dims](*a, **arguments),
        lambda *a: PYTORCH[dims](*a, **arguments),
        [tensor.requires_grad_(requires_grad) for tensor in tensors],
    )


@pytest.mark.parametrize("case", CASES)
def test_gradcheck(case):
    ours, _, tensors = operands(case)
    assert gradcheck(ours, tensors, check_forward_ad=True, check_batched_grad=True)
    assert gradcheck(ours, tensors[:2])


@pytest.mark.parametrize("case", CASES)
def test_gradgradcheck(case):
    ours, _, tensors = operands(case)
    assert gradgradcheck(ours, tensors, check_fwd_over_rev=True, check_batched_grad=True)


def test_third_derivative():
    ours, theirs, (x, w, b) = operands("2d grouped")  # PyTorch's has none with output padding

    def third(function):
        value = function(x, w, b).pow(3).sum()
        (g1,) = torch.autograd.grad(value, x, create_graph=True)
        (g2,) = torch.autograd.grad(g1.pow(2).sum(), w, create_graph=True)
        return torch.autograd.grad(g2.pow(2).sum(), (x, w, b))

    for a, e in zip(third(ours), third(theirs), strict=True):
        torch.testing.assert_close(a, e)


def test_only_the_gradients_asked_for():
    ours, _, (x, w, b) = operands("1d", requires_grad=False)
    for mask in range(1, 8):
        tensors = [t.detach().requires_grad_(bool(mask >> i & 1)) for i, t in enumerate((x, w, b))]
        ours(*tensors).sum().backward()
        assert [t.grad is not None for t in tensors] == [bool(mask >> i & 1) for i in range(3)]


def test_no_graph_without_gradients():
    ours, _, tensors = operands("1d")
    with torch.no_grad():
        assert not ours(*tensors).requires_grad
    with torch.inference_mode():
        assert ours(*tensors).is_inference()


def test_inputs_changed_in_place_are_noticed():
    ours, _, (x, w, b) = operands("1d")
    x = x.detach()
    y = ours(x, w, b)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


TRANSFORMS = {
    "grad": lambda f, x, w, b: grad(lambda *a: f(*a).pow(2).sum(), (0, 1, 2))(x, w, b),
    "grad of grad": lambda f, x, w, b: grad(lambda u: grad(lambda v: f(v, w, b).pow(3).sum())(u).pow(2).sum())(x),
    "vjp": lambda f, x, w, b: vjp(f, x, w, b)[1](torch.ones_like(f(x, w, b))),
    "jvp": lambda f, x, w, b: jvp(f, (x, w, b), (x + 1, w * 2, b - 1)),
    "jvp of the bias": lambda f, x, w, b: jvp(lambda v: f(x, w, v), (b,), (b + 1,)),
    "jacrev": lambda f, x, w, b: jacrev(f, (0, 1, 2))(x, w, b),
    "jacfwd": lambda f, x, w, b: jacfwd(f, (0, 1, 2))(x, w, b),
    "hessian": lambda f, x, w, b: hessian(lambda v: f(v, w, b).pow(3).sum())(x),
    "per-sample gradients": lambda f, x, w, b: vmap(grad(lambda w, v: f(v, w, b).pow(2).sum()), in_dims=(None, 0))(
        w, torch.stack([x, x + 1, x * 2])
    ),
    "ensemble": lambda f, x, w, b: vmap(grad(lambda w, v: f(v, w, b).pow(2).sum()), in_dims=(0, None))(
        torch.stack([w, w + 1, w * 2]), x
    ),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("case", ["1d", "2d grouped"])
def test_torch_func(case, transform):
    ours, theirs, tensors = operands(case, requires_grad=False)
    actual = tree_leaves(TRANSFORMS[transform](ours, *tensors))
    expected = tree_leaves(TRANSFORMS[transform](theirs, *tensors))
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e)


@pytest.mark.parametrize("in_dims", [(0, None, None), (None, 0, None), (None, None, 0), (1, 0, None), (2, 1, 0)])
@pytest.mark.parametrize("case", ["1d", "1d depthwise", "2d grouped"])
def test_vmap(case, in_dims):
    ours, theirs, tensors = operands(case, requires_grad=False)
    batched = [
        t if dim is None else torch.stack([t, t + 1, t * 2, t - 1], dim)
        for t, dim in zip(tensors, in_dims, strict=True)
    ]
    torch.testing.assert_close(vmap(ours, in_dims)(*batched), vmap(theirs, in_dims)(*batched))


def test_functional_call_of_a_module():
    module = tconv.nn.ConvTranspose1d(3, 4, 4, 2)
    parameters = {name: p.detach() * 2 for name, p in module.named_parameters()}
    x = torch.randn(2, 3, 5)
    gradients = grad(lambda p: functional_call(module, p, (x,)).pow(2).sum())(parameters)
    assert set(gradients) == {"weight", "bias"}


def test_dual_tensors():
    ours, theirs, (x, w, b) = operands("1d", requires_grad=False)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        for function in (ours, theirs):
            _, tangent = forward_ad.unpack_dual(function(dual, w, b))
            assert tangent is not None
        torch.testing.assert_close(
            forward_ad.unpack_dual(ours(dual, w, b)).tangent, forward_ad.unpack_dual(theirs(dual, w, b)).tangent
        )


def test_gradient_penalty_step_equals_pytorchs():
    # WGAN-GP: the gradient of a gradient's norm.
    def step(layer):
        x = torch.linspace(-1, 1, 2 * 3 * 6, dtype=torch.float64).view(2, 3, 6).requires_grad_()
        (g,) = torch.autograd.grad(layer(x).tanh().sum(), x, create_graph=True)
        penalty = (g.flatten(1).norm(dim=1) - 1).square().mean()
        return torch.autograd.grad(penalty, list(layer.parameters()), allow_unused=True)

    theirs = torch.nn.ConvTranspose1d(3, 2, 4, 2, dtype=torch.float64)
    ours = tconv.nn.ConvTranspose1d(3, 2, 4, 2, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict())
    for a, e in zip(step(ours), step(theirs), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("which", ["input", "weight", "bias", "input and bias"])
def test_a_gradient_that_is_constant_can_be_differentiated_again(which):
    # It does not depend on what it is the gradient of. PyTorch's is part of the graph all the same.
    results = []
    for function in (PYTORCH[1], TCONV[1]):
        torch.manual_seed(1)
        tensors = {"input": torch.randn(2, 3, 5), "weight": torch.randn(3, 4, 3), "bias": torch.randn(4)}
        wanted = [tensors[name].requires_grad_() for name in which.split(" and ")]
        first = torch.autograd.grad(function(*tensors.values()).sum(), wanted, create_graph=True)
        tracked = [g.requires_grad for g in first]
        again = None
        if tracked[0]:  # the bias's alone is not, and PyTorch's is not either
            again = torch.autograd.grad(first[0].sum(), wanted, allow_unused=True, retain_graph=True)
            first[0].sum().backward()
        results.append((first, tracked, again, [t.grad for t in wanted]))
    torch.testing.assert_close(results[1][0], results[0][0])
    assert results[1][1:] == results[0][1:]


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_have_pytorchs_memory_format(dims, create_graph):
    last = torch.channels_last if dims == 2 else torch.channels_last_3d
    formats = (torch.contiguous_format, last)
    for x_format in formats:
        for w_format in formats:
            for gy_format in formats:
                strides = []
                for function in (PYTORCH[dims], TCONV[dims]):
                    x = torch.randn(2, 4, *[5] * dims).contiguous(memory_format=x_format).requires_grad_()
                    w = torch.randn(4, 3, *[3] * dims).contiguous(memory_format=w_format).requires_grad_()
                    y = function(x, w, stride=2)
                    gy = torch.randn(y.shape).contiguous(memory_format=gy_format)
                    gradients = torch.autograd.grad(y, (x, w), gy, create_graph=create_graph)
                    strides.append([t.stride() for t in (y, *gradients)])
                assert strides[1] == strides[0], (x_format, w_format, gy_format)
