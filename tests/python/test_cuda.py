"""CUDA tensors: the same API, whatever computes them. Skipped where there is no GPU."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import tconv
from layers import random_layer, relative_error
from test_kernelbench import PROBLEMS, load

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_random_layers(dtype):
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    for seed in range(40):
        layer = random_layer(seed, torch.float64)
        layer.arguments["precision"] = "fp32"
        ours = [t.to("cuda", dtype).requires_grad_() for t in layer.operands]
        theirs = [t.detach().double().cpu().contiguous().requires_grad_() for t in ours]
        output = layer.tconv(*ours)
        del layer.arguments["precision"]
        expected = layer.pytorch(*theirs)
        cotangent = torch.randn_like(expected)
        first = torch.autograd.grad(output, ours, cotangent.to("cuda", dtype), create_graph=True)
        second = torch.autograd.grad([g.sum() for g in first[:2]], ours[:2], allow_unused=True)
        expected_first = torch.autograd.grad(expected, theirs, cotangent, create_graph=True)
        expected_second = torch.autograd.grad([g.sum() for g in expected_first[:2]], theirs[:2], allow_unused=True)
        for a, e in zip((output, *first, *second), (expected, *expected_first, *expected_second), strict=True):
            if e is not None and dtype != torch.float32:
                assert relative_error(a.detach().cpu().double(), e.detach()) <= tolerance, layer.about
            elif e is not None:
                # grad-weight is PyTorch's, with PyTorch's TF32 switch
                assert relative_error(a.detach().cpu().double(), e.detach()) <= 3e-3, layer.about


def test_precision_is_what_was_asked_for():
    x, w = torch.randn(4, 64, 128, device="cuda"), torch.randn(64, 64, 4, device="cuda")
    exact = tconv.conv_transpose1d(x.double(), w.double(), stride=2)
    errors = {
        p: relative_error(tconv.conv_transpose1d(x, w, stride=2, precision=p).double(), exact)
        for p in ("fp32", "tf32")
    }
    assert errors["fp32"] < 2e-6
    assert errors["tf32"] < 2e-3


def test_modules_autocast_and_compile():
    torch._dynamo.reset()
    module = tconv.nn.ConvTranspose2d(8, 6, 4, 2, 1).cuda()
    reference = nn.ConvTranspose2d(8, 6, 4, 2, 1).cuda()
    reference.load_state_dict(module.state_dict())
    x = torch.randn(2, 8, 9, 9, device="cuda").to(memory_format=torch.channels_last)
    torch.testing.assert_close(module(x), reference(x), rtol=1e-3, atol=1e-3)
    with torch.autocast("cuda", torch.float16):
        assert module(x).dtype == torch.float16
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), reference(x), rtol=1e-3, atol=1e-3)


def test_devices_must_agree():
    with pytest.raises(RuntimeError, match="same device"):
        tconv.conv_transpose1d(torch.randn(1, 2, 3, device="cuda"), torch.randn(2, 2, 2))
    with pytest.raises(RuntimeError, match="same device"):
        tconv.conv_transpose1d(torch.randn(1, 2, 3), torch.randn(2, 2, 2, device="cuda"))


@pytest.mark.parametrize("number", PROBLEMS)
def test_kernelbench_within_its_tolerance(number):
    dims, arguments, theirs, spatial = PROBLEMS[number]
    torch.manual_seed(42)
    reference = getattr(nn, f"ConvTranspose{dims}d")(*arguments[:3], bias=False, **theirs).cuda()
    torch.manual_seed(42)
    model = load(number)(*arguments).cuda()
    x = torch.rand(2, arguments[0], *[4 * size for size in spatial], device="cuda")
    with torch.no_grad():
        torch.testing.assert_close(model(x), reference(x), rtol=1e-4, atol=1e-4)


def test_verbose_says_what_computed():
    script = (
        "import torch, tconv; x = torch.randn(1, 2, 5, device='cuda');"
        "tconv.conv_transpose1d(x, torch.randn(2, 3, 3, device='cuda'))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TCONV_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert any(
        line.startswith(("tconv,pytorch,forward,fallback", "tconv,cuda,forward"))
        for line in result.stderr.splitlines()
    )
