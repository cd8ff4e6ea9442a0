"""torch.compile, torch.export and torch.jit.trace."""

import io

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import tconv


class Decoder(nn.Module):
    def __init__(self, library):
        super().__init__()
        self.one = library.ConvTranspose1d(4, 6, 4, 2, 1)
        self.two = library.ConvTranspose1d(6, 3, 5, 3, 2, output_padding=1, dilation=2, bias=False)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


@pytest.fixture
def pair():
    torch._dynamo.reset()
    theirs, ours = Decoder(nn), Decoder(tconv.nn)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def check(compiled, ours, theirs, lengths):
    for length in lengths:
        x = torch.randn(2, 4, length, requires_grad=True)
        actual, expected = compiled(x), theirs(x)
        torch.testing.assert_close(actual, expected)
        assert actual.stride() == expected.stride()
        cotangent = torch.randn_like(expected)
        for a, e in zip(
            torch.autograd.grad(actual, [x, *ours.parameters()], cotangent),
            torch.autograd.grad(expected, [x, *theirs.parameters()], cotangent),
            strict=True,
        ):
            torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4)


def test_inductor_full_graph_with_dynamic_shapes(pair):
    theirs, ours = pair
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(ours, fullgraph=True, dynamic=True, backend=counter)
    check(compiled, ours, theirs, (7, 8, 13, 21))
    assert counter.frame_count == 1  # one graph for every length


def test_automatic_dynamic_shapes(pair):
    theirs, ours = pair
    counter = CompileCounterWithBackend("aot_eager")
    check(torch.compile(ours, fullgraph=True, backend=counter), ours, theirs, (7, 8, 13, 21))
    assert counter.frame_count == 2  # the first length, then all others


def test_without_gradients(pair):
    theirs, ours = pair
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 4, 9)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), theirs(x))
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), theirs(x))


def test_channels_last_stays():
    torch._dynamo.reset()
    module = tconv.nn.ConvTranspose2d(3, 5, 3, 2)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 3, 6, 7).to(memory_format=torch.channels_last)
    assert compiled(x).is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(compiled(x), module(x))


def test_output_size_with_dynamic_shapes():
    torch._dynamo.reset()
    module = tconv.nn.ConvTranspose2d(3, 5, 3, 2)
    compiled = torch.compile(
        lambda x, like: module(x, output_size=like.shape), fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for height in (6, 7, 9):
        x, like = torch.randn(2, 3, height, 7), torch.empty(2, 5, 2 * height + 2, 15)
        torch.testing.assert_close(compiled(x, like), module(x, output_size=like.shape))


def test_functional_with_unbatched_input_and_list_arguments():
    torch._dynamo.reset()
    w = torch.randn(3, 2, 4)
    compiled = torch.compile(
        lambda x: tconv.conv_transpose1d(x, w, stride=[2], precision="fp32"), fullgraph=True, backend="aot_eager"
    )
    x = torch.randn(3, 8)
    torch.testing.assert_close(compiled(x), tconv.conv_transpose1d(x, w, stride=2))


def test_autocast_inside(pair):
    theirs, ours = pair
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 4, 9)
    with torch.autocast("cpu", torch.bfloat16):
        actual, expected = compiled(x), theirs(x)
    assert actual.dtype == torch.bfloat16
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)


def test_double_backward_of_a_compiled_function_is_refused_or_right(pair):
    # torch.compile has no second derivatives; what it compiles must not return wrong ones.
    _, ours = pair
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 4, 9, requires_grad=True)
    (g,) = torch.autograd.grad(compiled(x).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        g.sum().backward()


@pytest.mark.parametrize("of", ["the old switch", "the new one"])
def test_pytorchs_tf32_switch_is_a_guard(of):
    from tconv._precision import allow_tf32

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(lambda x: x + allow_tf32(None), fullgraph=True, backend=counter)
    before = torch.backends.cudnn.allow_tf32
    try:
        for allowed in (True, False, True, False):
            if of == "the old switch":
                torch.backends.cudnn.allow_tf32 = allowed
            else:
                torch.backends.cudnn.conv.fp32_precision = "tf32" if allowed else "ieee"
            assert compiled(torch.zeros(())) == allowed
    finally:
        torch.backends.cudnn.allow_tf32 = before
    assert counter.frame_count == 2


@pytest.mark.parametrize("strict", [True, False])
def test_export(pair, strict):
    theirs, ours = pair
    batch, length = torch.export.Dim("batch", max=64), torch.export.Dim("length", min=2, max=1000)
    program = torch.export.export(
        ours, (torch.randn(2, 4, 9),), dynamic_shapes=({0: batch, 2: length},), strict=strict
    )
    saved = io.BytesIO()
    torch.export.save(program, saved)
    saved.seek(0)
    loaded = torch.export.load(saved)
    assert "tconv.conv_transpose.default" in {str(node.target) for node in loaded.graph.nodes}
    x = torch.randn(3, 4, 23)
    torch.testing.assert_close(loaded.module()(x), theirs(x))


def test_trace(pair):
    theirs, ours = pair
    traced = torch.jit.trace(ours, torch.randn(2, 4, 9))
    x = torch.randn(1, 4, 11)
    torch.testing.assert_close(traced(x), theirs(x))
    saved = io.BytesIO()
    torch.jit.save(traced, saved)
    saved.seek(0)
    torch.testing.assert_close(torch.jit.load(saved)(x), theirs(x))
