"""tconv's operators written in PyTorch's: the same values on any device, and nothing of tconv's in them.

Output padding of a stride or more, which a larger dilation allows, is more than the gradients of PyTorch's
operator are made for: the convolution that runs the layer backwards sees further positions behind the input's last
one. Such a layer is one with a longer input, zero at the end, and what is left of the output padding.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ._layer import unpack

_aten = torch.ops.aten


class _Regular(NamedTuple):
    """A layer whose output padding is smaller than its stride."""

    stride: Sequence[int]
    padding: Sequence[int]
    output_padding: Sequence[int]
    dilation: Sequence[int]
    further: Sequence[int]
    """How many positions its input has behind the last one given."""

    def lengthened(self, input: Tensor) -> Tensor:
        if not any(self.further):
            return input
        return _aten.constant_pad_nd(input, [size for last in reversed(self.further) for size in (0, last)])

    def shortened(self, gradient: Tensor) -> Tensor:
        for dim, further in enumerate(self.further, 2):
            if further:
                gradient = gradient.narrow(dim, 0, gradient.shape[dim] - further)
        return gradient


def _regular(geometry: Sequence[int]) -> _Regular:
    stride, padding, output_padding, dilation = unpack(geometry)
    return _Regular(
        stride,
        padding,
        [p % s for p, s in zip(output_padding, stride, strict=True)],
        dilation,
        [p // s for p, s in zip(output_padding, stride, strict=True)],
    )


def conv_transpose(
    input: Tensor, weight: Tensor, bias: Tensor | None, geometry: Sequence[int], groups: int
) -> Tensor:
    """T: the layer."""
    layer = _regular(geometry)
    return _aten.convolution(
        layer.lengthened(input),
        weight,
        bias,
        layer.stride,
        layer.padding,
        layer.dilation,
        True,
        layer.output_padding,
        groups,
    )


def grad_input(gy: Tensor, weight: Tensor, geometry: Sequence[int], groups: int) -> Tensor:
    """C: the adjoint of T in its input, which is a convolution."""
    layer = _regular(geometry)
    none = [0] * len(layer.stride)
    gx = _aten.convolution(gy, weight, None, layer.stride, layer.padding, layer.dilation, False, none, groups)
    return layer.shortened(gx)


def grad_weight(
    input: Tensor, gy: Tensor, kernel_size: Sequence[int], geometry: Sequence[int], groups: int
) -> Tensor:
    """W: the adjoint of T in its weight."""
    weight = input.new_empty([input.shape[1], gy.shape[1] // groups, *kernel_size])  # only its sizes are read
    return gradients(gy, input, weight, (False, True, False), geometry, groups)[1]


def gradients(
    gy: Tensor,
    input: Tensor,
    weight: Tensor,
    needs: Sequence[bool],
    geometry: Sequence[int],
    groups: int,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The layer's gradients in its input, its weight and its bias, those that are needed, in one call."""
    layer = _regular(geometry)
    gx, gw, gb = _aten.convolution_backward(
        gy,
        layer.lengthened(input),
        weight,
        [weight.shape[1] * groups],
        layer.stride,
        layer.padding,
        layer.dilation,
        True,
        layer.output_padding,
        groups,
        list(needs),
    )
    needs_input, needs_weight, needs_bias = needs
    return (
        layer.shortened(gx) if needs_input else None,
        gw if needs_weight else None,
        gb if needs_bias else None,
    )
