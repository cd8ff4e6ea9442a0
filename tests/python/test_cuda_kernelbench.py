"""KernelBench's own check: its models against ours, at its sizes, on the GPU. Skipped where there is none.

The benchmark builds its ``Model`` and our ``ModelNew`` after the same seed, gives both the same inputs for five
seeds, and compares whole outputs at atol = rtol = 1e-4.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from test_kernelbench import PROBLEMS, load

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

SIZES = {
    problem["name"]: [problem["batch"], problem["in_channels"], *problem["spatial"]]
    for problem in json.loads((Path(__file__).parents[2] / "bench" / "problems.json").read_text())["problems"]
}


class Model(nn.Module):
    """The benchmark's reference: one module of PyTorch's and nothing else."""

    def __init__(self, dims, in_channels, out_channels, kernel_size, **arguments):
        super().__init__()
        layer = getattr(nn, f"ConvTranspose{dims}d")
        self.layer = layer(in_channels, out_channels, kernel_size, bias=False, **arguments)

    def forward(self, x):
        return self.layer(x)


def models(number):
    dims, arguments, theirs, _ = PROBLEMS[number]
    torch.manual_seed(42)
    model = Model(dims, *arguments[:3], **theirs).cuda()
    torch.manual_seed(42)
    return model, load(number)(*arguments).cuda()


@pytest.mark.parametrize("number", PROBLEMS)
def test_five_seeds(number):
    model, ours = models(number)
    for seed in range(5):
        torch.manual_seed(seed)
        x = torch.rand(SIZES[f"kb{number}"], device="cuda")
        with torch.no_grad():
            expected, actual = model(x), ours(x)
        assert actual.shape == expected.shape
        assert torch.allclose(actual, expected, atol=1e-4, rtol=1e-4), (actual - expected).abs().max().item()
        del expected, actual  # gigabytes


@pytest.mark.parametrize("number", [64, 74, 79, 81])
def test_gradients_of_the_mission_layers(number):
    model, ours = models(number)
    channels, spatial = PROBLEMS[number][1][0], PROBLEMS[number][3]
    x = torch.rand(2, channels, *[4 * size for size in spatial], device="cuda", requires_grad=True)
    expected, actual = model(x), ours(x)
    cotangent = torch.rand_like(expected)
    for a, e in zip(
        torch.autograd.grad(actual, [x, *ours.parameters()], cotangent),
        torch.autograd.grad(expected, [x, *model.parameters()], cotangent),
        strict=True,
    ):
        torch.testing.assert_close(a, e, atol=1e-4, rtol=1e-4)
