"""1,100 random layers against PyTorch: forward, all first and all second gradients."""

from dataclasses import replace

import pytest
import torch

from layers import RandomLayer, random_layer, relative_error

CHUNK = 50
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def derivatives(layer: RandomLayer, function, seed: int) -> list[torch.Tensor]:
    """y, the gradients of <y, u> and the gradients of <those, v> for fixed random u and v."""
    generator = torch.Generator().manual_seed(seed)

    def like(tensor):
        values = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        return values.to(layer.dtype).to(tensor.dtype)

    operands = [tensor.detach().requires_grad_() for tensor in layer.operands]
    output = function(*operands)
    cotangent = like(output).requires_grad_()
    first = torch.autograd.grad(output, operands, cotangent, create_graph=True)
    second = torch.autograd.grad(
        first, [*operands[:2], cotangent], [like(gradient) for gradient in first], allow_unused=True
    )
    return [output.detach(), *[g.detach() for g in first], *second]


@pytest.mark.parametrize("chunk", range(11))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["fp64", "fp32"])
def test_layers_and_gradients_equal_pytorchs(dtype, chunk):
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        layer = random_layer(seed, dtype)
        ours = derivatives(layer, layer.tconv, seed)
        # PyTorch in float64 on the same values: where few numbers are left of a long sum, two float32 results
        # differ by what both have lost. Contiguous, because its own gradients refuse some strides.
        reference = replace(
            layer,
            input=layer.input.double().contiguous(),
            weight=layer.weight.double().contiguous(),
            bias=None if layer.bias is None else layer.bias.double(),
        )
        theirs = derivatives(reference, layer.pytorch, seed)
        firsts = len(layer.operands)
        for position, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            name = (
                "output" if position == 0 else f"{'first' if position <= firsts else 'second'} gradient {position}"
            )
            assert (a is None) == (b is None), f"{name}, {layer.about}"
            if a is not None:
                error = relative_error(a.double(), b)
                assert error <= TOLERANCE[dtype], f"{name}: relative error {error:.3g}, {layer.about}"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_half_precisions_round_the_exact_result(dtype):
    # Sums are kept in fp32, so the error is that of rounding the result once.
    for seed in range(60):
        layer = random_layer(seed, dtype)
        ours = layer.tconv(*layer.operands)
        exact = layer.pytorch(*[tensor.double() for tensor in layer.operands])
        assert ours.dtype == dtype
        error = ((ours.double() - exact).abs() / (exact.abs() + 0.01 * exact.abs().max() + 1e-30)).max().item()
        assert error <= 1.05 * torch.finfo(dtype).eps, f"error {error:.3g}, {layer.about}"
