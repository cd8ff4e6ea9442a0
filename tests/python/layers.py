"""Random transposed convolutions, and what a test needs to compare them with PyTorch's."""

import random
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

import tconv

PYTORCH = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
TCONV = {1: tconv.conv_transpose1d, 2: tconv.conv_transpose2d, 3: tconv.conv_transpose3d}

LAYOUTS = ("contiguous", "channels_last", "sliced", "transposed", "expanded", "offset")


@dataclass
class RandomLayer:
    dims: int
    dtype: torch.dtype
    input: Tensor
    weight: Tensor
    bias: Tensor | None
    arguments: dict
    about: str

    @property
    def operands(self) -> list[Tensor]:
        return [self.input, self.weight] + ([] if self.bias is None else [self.bias])

    def pytorch(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return PYTORCH[self.dims](input, weight, bias, **self.arguments)

    def tconv(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return TCONV[self.dims](input, weight, bias, **self.arguments)


def laid_out(values: Tensor, layout: str) -> Tensor:
    """The same values with other strides."""
    if layout == "channels_last" and values.dim() in (4, 5):
        return values.contiguous(
            memory_format=torch.channels_last if values.dim() == 4 else torch.channels_last_3d
        )
    if layout == "sliced":
        wide = values.new_empty([2 * size for size in values.shape])
        view = wide[tuple(slice(0, 2 * size, 2) for size in values.shape)]
        return view.copy_(values)
    if layout == "transposed":
        return values.transpose(1, -1).contiguous().transpose(1, -1)
    if layout == "expanded" and values.shape[0] > 0:
        return values[:1].expand_as(values)
    if layout == "offset":
        flat = values.new_empty(values.numel() + 3)
        return flat[3:].view(values.shape).copy_(values)
    return values.contiguous()


def random_layer(seed: int, dtype: torch.dtype, device: str = "cpu", wide: bool = False) -> RandomLayer:
    """A layer that is valid by the definition of the operator, small enough for thousands of them.

    ``wide`` layers have the channels that tensor cores are used for. The values are the same on every device.
    """
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    dims = rng.choice((1, 1, 2, 2, 3))
    largest = {1: 40, 2: 9, 3: 5}[dims]

    groups = rng.choice((1, 1, 1, 2, 3, 4))
    group_in, group_out = rng.choice((1, 2, 3, 5, 8)), rng.choice((1, 1, 2, 3, 7, 16))
    if wide:
        group_in, group_out = rng.choice((16, 24, 33, 64, 100)), rng.choice((9, 16, 32, 70, 128))
    while True:
        spatial = [rng.randint(1, largest) for _ in range(dims)]
        kernel = [rng.randint(1, 5 if dims < 3 else 3) for _ in range(dims)]
        stride = [rng.randint(1, 4) for _ in range(dims)]
        dilation = [rng.choice((1, 1, 2, 3)) for _ in range(dims)]
        padding = [rng.randint(0, 3) for _ in range(dims)]
        output_padding = [rng.randrange(max(s, d)) for s, d in zip(stride, dilation, strict=True)]
        output = [
            (i - 1) * s - 2 * p + d * (k - 1) + op + 1
            for i, s, p, d, k, op in zip(spatial, stride, padding, dilation, kernel, output_padding, strict=True)
        ]
        if min(output) > 0:
            break

    batch = rng.randint(1, 3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    layout, weight_layout = rng.choice(LAYOUTS), rng.choice(LAYOUTS[:4])
    arguments = {
        "stride": tuple(stride),
        "padding": tuple(padding),
        "output_padding": tuple(output_padding),
        "dilation": tuple(dilation),
        "groups": groups,
    }
    return RandomLayer(
        dims=dims,
        dtype=dtype,
        input=laid_out(normal(batch, groups * group_in, *spatial), layout),
        weight=laid_out(normal(groups * group_in, group_out, *kernel), weight_layout),
        bias=normal(groups * group_out) if rng.random() < 0.7 else None,
        arguments=arguments,
        about=f"seed {seed}: input {[batch, groups * group_in, *spatial]} {layout}, "
        f"weight {[groups * group_in, group_out, *kernel]} {weight_layout}, {arguments}",
    )


def relative_error(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, against the largest value: cancellation makes single small values meaningless."""
    assert ours.shape == theirs.shape, f"shape {list(ours.shape)} instead of {list(theirs.shape)}"
    assert ours.dtype == theirs.dtype
    if theirs.numel() == 0:
        return 0.0
    scale = theirs.abs().max().item() or 1.0
    return (ours - theirs).abs().max().item() / scale


def norm_error(ours: Tensor, exact: Tensor) -> float:
    """The difference against the exact result, both by their norms. NaN where an element is none."""
    assert ours.shape == exact.shape, f"shape {list(ours.shape)} instead of {list(exact.shape)}"
    return ((ours.double().cpu() - exact).norm() / (exact.norm() + 1e-300)).item()
