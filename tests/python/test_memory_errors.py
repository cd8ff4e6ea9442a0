"""Memory that runs out is PyTorch's own error, whichever way a call takes."""

import pytest
import torch
from torch import nn

import tconv
from tconv import _autograd, _pytorch

# Operands that take next to no memory, of results that no machine has memory for.
MANY = 1 << 44
X = torch.zeros(1, 2, 64).expand(MANY, 2, 64)
W = torch.randn(2, 3, 4)
GEOMETRY = [2, 0, 0, 1]
WORDS = "allocate memory|not enough memory"


def refused():
    """PyTorch's own error; on a CPU it is a RuntimeError."""
    return pytest.raises(RuntimeError, match=WORDS)


def test_pytorchs_own():
    with refused():
        nn.functional.conv_transpose1d(X, W, stride=2)


@pytest.mark.parametrize("grad", [True, False])
def test_eager(grad):
    with refused():
        tconv.conv_transpose1d(X, W.clone().requires_grad_(grad), stride=2)
    with refused(), torch.no_grad():
        tconv.conv_transpose1d(X, W.clone().requires_grad_(grad), stride=2)


def test_autocast():
    x = torch.zeros(1, 2, 64, dtype=torch.bfloat16).expand(MANY, 2, 64)  # what needs no cast takes no memory
    with refused(), torch.autocast("cpu", torch.bfloat16):
        tconv.conv_transpose1d(x, W, stride=2)
    with refused(), torch.autocast("cpu", torch.bfloat16):
        torch.ops.tconv.conv_transpose(x, W, None, GEOMETRY, 1, False)


@pytest.mark.parametrize("grad", [True, False])
def test_operators(grad):
    w = W.clone().requires_grad_(grad)
    gy = torch.zeros(1, 3, 130).expand(MANY, 3, 130)
    with refused():
        torch.ops.tconv.conv_transpose(X, w, None, GEOMETRY, 1, False)
    with refused():
        torch.ops.tconv.conv_transpose_grad_input(gy, w, GEOMETRY, 1, False)


@pytest.mark.parametrize("grad", [True, False])
def test_compile(grad):
    torch._dynamo.reset()
    w = W.clone().requires_grad_(grad)
    compiled = torch.compile(lambda x: tconv.conv_transpose1d(x, w, stride=2), backend="aot_eager", fullgraph=True)
    with refused():
        compiled(X)


def test_torch_func():
    with refused():
        torch.func.vmap(lambda x: tconv.conv_transpose1d(x, W, stride=2))(X)
    with refused():
        torch.func.grad(lambda w: tconv.conv_transpose1d(X, w, stride=2).sum())(W)
    with refused():
        torch.func.jvp(lambda w: tconv.conv_transpose1d(X, w, stride=2), (W,), (W,))


class Sub(torch.Tensor):
    pass


def test_subclasses():
    with refused():
        tconv.conv_transpose1d(X.as_subclass(Sub), W, stride=2)


@pytest.mark.parametrize("create_graph", [True, False])
def test_gradients(create_graph, monkeypatch):
    # Forward has memory: its output is as small as x is; the gradient in x is not.
    x = torch.zeros(1, 2, 64).expand(MANY, 2, 64).requires_grad_()
    small = torch.zeros(1, 3, 130).expand(MANY, 3, 130)
    monkeypatch.setattr(_autograd, "run_conv_transpose", lambda *_: small.view_as(small))
    w = W.clone().requires_grad_(create_graph)
    y = tconv.conv_transpose1d(x, w, stride=2)
    with refused():
        torch.autograd.grad(y, x, small, create_graph=create_graph)


def test_other_errors_are_not_asked_again(monkeypatch):
    for name in ("conv_transpose", "grad_input", "grad_weight", "gradients"):
        monkeypatch.setattr(_pytorch, name, None)
    monkeypatch.setattr(_autograd, "_BY_PYTORCH", None)
    x = torch.randn(1, 2, 5)
    with pytest.raises(RuntimeError, match="to have 2 channels"):
        torch.ops.tconv.conv_transpose(x[:, :1], W, None, GEOMETRY, 1, False)
    with pytest.raises(RuntimeError, match="is not the output"):
        torch.ops.tconv.conv_transpose_grad_weight(x, x, [3], GEOMETRY, 1, False)
