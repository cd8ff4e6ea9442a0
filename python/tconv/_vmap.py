"""Batching rules for ``torch.vmap``.

Activations that are batched alone fold into the layer's own batch. Where the weight (or its gradient) is
batched too, every example is a layer of its own: they become groups of one larger layer, which is how
PyTorch's own rule does it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._library import CONV_TRANSPOSE, GRAD_INPUT, GRAD_WEIGHT


def _in_front(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """The batched dimension first; an unbatched tensor repeats."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _as_groups(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """[N, C, …] for every example as [N, B·C, …]: example after example along the channels."""
    return _in_front(tensor, dim, size).movedim(0, 1).flatten(1, 2)


def _as_channels(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """[C, …] for every example as [B·C, …]."""
    return _in_front(tensor, dim, size).flatten(0, 1)


def _conv_transpose(
    info: Any,
    in_dims: tuple,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Sequence[int],
    groups: int,
    allow_tf32: bool,
) -> tuple[Tensor, int]:
    size = info.batch_size
    input_dim, weight_dim, bias_dim, *_ = in_dims
    if weight_dim is None and bias_dim is None:
        folded = input.movedim(input_dim, 0)
        output = CONV_TRANSPOSE(folded.flatten(0, 1), weight, bias, geometry, groups, allow_tf32)
        return output.unflatten(0, (size, folded.shape[1])), 0
    if weight_dim is None and input_dim is None:
        # Only the bias is batched: one run serves all of them.
        output = CONV_TRANSPOSE(input, weight, None, geometry, groups, allow_tf32)
        biases = bias.movedim(bias_dim, 0)
        return output + biases.view(size, 1, -1, *[1] * (input.dim() - 2)), 0
    output = CONV_TRANSPOSE(
        _as_groups(input, input_dim, size),
        _as_channels(weight, weight_dim, size),
        None if bias is None else _as_channels(bias, bias_dim, size),
        geometry,
        groups * size,
        allow_tf32,
    )
    return output.unflatten(1, (size, output.shape[1] // size)), 1


def _grad_input(
    info: Any,
    in_dims: tuple,
    gy: Tensor,
    weight: Tensor,
    geometry: Sequence[int],
    groups: int,
    allow_tf32: bool,
) -> tuple[Tensor, int]:
    size = info.batch_size
    gy_dim, weight_dim, *_ = in_dims
    if weight_dim is None:
        folded = gy.movedim(gy_dim, 0)
        gx = GRAD_INPUT(folded.flatten(0, 1), weight, geometry, groups, allow_tf32)
        return gx.unflatten(0, (size, folded.shape[1])), 0
    gx = GRAD_INPUT(
        _as_groups(gy, gy_dim, size),
        _as_channels(weight, weight_dim, size),
        geometry,
        groups * size,
        allow_tf32,
    )
    return gx.unflatten(1, (size, gx.shape[1] // size)), 1


def _grad_weight(
    info: Any,
    in_dims: tuple,
    input: Tensor,
    gy: Tensor,
    kernel_size: Sequence[int],
    geometry: Sequence[int],
    groups: int,
    allow_tf32: bool,
) -> tuple[Tensor, int]:
    size = info.batch_size
    input_dim, gy_dim, *_ = in_dims
    gw = GRAD_WEIGHT(
        _as_groups(input, input_dim, size),
        _as_groups(gy, gy_dim, size),
        kernel_size,
        geometry,
        groups * size,
        allow_tf32,
    )
    return gw.unflatten(0, (size, gw.shape[0] // size)), 0


torch.library.register_vmap(CONV_TRANSPOSE, _conv_transpose)
torch.library.register_vmap(GRAD_INPUT, _grad_input)
torch.library.register_vmap(GRAD_WEIGHT, _grad_weight)
