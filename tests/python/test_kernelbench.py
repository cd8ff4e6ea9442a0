"""The KernelBench models: signatures, weights and outputs of the benchmark's problems.

The benchmark's sizes take a GPU; the layers are the benchmark's, the inputs shorter.
"""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

FOLDER = Path(__file__).parents[2] / "kernelbench"

# Problem: dims, the benchmark's constructor arguments, what PyTorch's module gets of them, input size here.
PROBLEMS = {
    57: (2, (64, 64, 3), {}, (12, 10)),
    58: (3, (32, 16, (3, 5, 7)), {}, (3, 4, 5)),
    61: (3, (48, 48, 3), {}, (4, 4, 4)),
    64: (1, (128, 128, 3), {}, (70,)),
    65: (2, (64, 64, (3, 7)), {}, (9, 11)),
    68: (3, (32, 64, (3, 5, 5)), {}, (4, 3, 5)),
    69: (2, (64, 128, (3, 5)), {}, (8, 12)),
    70: (3, (48, 24, 3), {}, (5, 4, 6)),
    71: (2, (32, 32, 3), {}, (11, 15)),
    72: (
        3,
        (32, 32, (3, 5, 7), (2, 2, 2), (1, 2, 3), (1, 1, 1), 4),
        {"stride": (2, 2, 2), "padding": (1, 2, 3), "output_padding": (1, 1, 1), "groups": 4},
        (4, 5, 6),
    ),
    # The benchmark's group count arrives as output_padding, which its model ignores.
    73: (3, (32, 32, 3, 2, 1, 4), {"stride": 2, "padding": 1}, (4, 5, 6)),
    74: (1, (32, 64, 5, 1, 0, 3), {"dilation": 3}, (130,)),
    75: (
        2,
        (32, 64, (3, 5), (2, 3), (1, 2), (2, 1), 4),
        {"stride": (2, 3), "padding": (1, 2), "dilation": (2, 1), "groups": 4},
        (9, 12),
    ),
    77: (3, (32, 64, 3, 2, 1, 2), {"stride": 2, "padding": 1, "dilation": 2}, (4, 5, 5)),
    78: (2, (32, 32, (3, 7), (1, 1), (1, 3)), {"padding": (1, 3)}, (12, 16)),
    79: (1, (32, 64, 3, 2, 1, 2), {"stride": 2, "padding": 1, "dilation": 2}, (131,)),
    81: (2, (32, 64, 3, 5, 1, 2), {"stride": 5, "padding": 1, "dilation": 2}, (7, 9)),
}


def load(number):
    spec = importlib.util.spec_from_file_location(f"kb{number}", FOLDER / f"kb{number}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew


def test_there_is_one_for_every_problem():
    assert {path.stem for path in FOLDER.glob("kb*.py")} == {f"kb{number}" for number in PROBLEMS}


@pytest.mark.parametrize("number", PROBLEMS)
def test_model(number):
    dims, arguments, theirs, spatial = PROBLEMS[number]
    torch.manual_seed(42)
    reference = getattr(nn, f"ConvTranspose{dims}d")(*arguments[:3], bias=False, **theirs)
    torch.manual_seed(42)
    model = load(number)(*arguments)
    assert len(list(model.parameters())) == 1
    assert torch.equal(next(model.parameters()), reference.weight)
    x = torch.rand(2, arguments[0], *spatial)
    with torch.no_grad():
        torch.testing.assert_close(model(x), reference(x), rtol=1e-4, atol=1e-4)
