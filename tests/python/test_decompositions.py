"""Programs that leave tconv behind: tconv's operators as PyTorch's."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import tconv
from layers import random_layer, relative_error


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = tconv.nn.ConvTranspose1d(4, 6, 4, 2, 1)
        self.two = tconv.nn.ConvTranspose1d(6, 3, 5, 2, 2, output_padding=2, dilation=3, bias=False)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


def targets(graph):
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def exported(model, x, **arguments):
    return torch.export.export(model, (x,), **arguments)


# PyTorch about itself, when it copies a program.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")

LENGTH = ({0: torch.export.Dim("batch", max=64), 2: torch.export.Dim("length", min=2, max=1000)},)


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_runs_without_tconv(tmp_path, strict, default):
    model, x = Net(), torch.randn(2, 4, 9)
    table = torch.export.default_decompositions() if default else {}
    table.update(tconv.decompositions())
    program = exported(model, x, dynamic_shapes=LENGTH, strict=strict).run_decompositions(table)
    assert not any("tconv" in target for target in targets(program.graph))
    assert targets(program.graph).count("aten.convolution.default") == 2
    torch.export.save(program, tmp_path / "program.pt2")
    inputs = [x, torch.randn(3, 4, 23)]
    torch.save((inputs, [model(x).detach() for x in inputs]), tmp_path / "expected.pt")
    script = (
        "import sys, torch\n"
        f"inputs, expected = torch.load({str(tmp_path / 'expected.pt')!r})\n"
        f"module = torch.export.load({str(tmp_path / 'program.pt2')!r}).module()\n"
        "for x, y in zip(inputs, expected):\n"
        "    torch.testing.assert_close(module(x), y)\n"
        "assert 'tconv' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("dims", [2, 3])
def test_memory_formats(dims):
    last = torch.channels_last if dims == 2 else torch.channels_last_3d
    model = getattr(tconv.nn, f"ConvTranspose{dims}d")(4, 6, 3, 2, groups=2)
    x = torch.randn(2, 4, *[5] * dims).contiguous(memory_format=last)
    program = exported(model, x).run_decompositions(tconv.decompositions())
    assert not any("tconv" in target for target in targets(program.graph))
    y = program.module()(x)
    torch.testing.assert_close(y, model(x))
    assert y.is_contiguous(memory_format=last)


@pytest.mark.parametrize("second", [False, True])
def test_gradients(second):
    for seed in range(12):
        layer = random_layer(seed, torch.float64)
        operands = [t.contiguous() for t in layer.operands]

        def step(*operands, layer=layer):
            operands = [t.detach().requires_grad_() for t in operands]
            first = torch.autograd.grad(layer.tconv(*operands).pow(2).sum(), operands, create_graph=second)
            if not second:
                return first
            return torch.autograd.grad(sum(g.pow(2).sum() for g in first), operands)

        graph = make_fx(step, decomposition_table=tconv.decompositions(), tracing_mode="symbolic")(*operands)
        assert not any("tconv" in target for target in targets(graph.graph)), layer.about
        for a, e in zip(graph(*operands), step(*operands), strict=True):
            assert relative_error(a, e) < 1e-11, layer.about


def test_the_table_is_the_callers():
    tconv.decompositions().clear()
    assert set(tconv.decompositions()) == {
        torch.ops.tconv.conv_transpose.default,
        torch.ops.tconv.conv_transpose_grad_input.default,
        torch.ops.tconv.conv_transpose_grad_weight.default,
    }
