"""Fake kernels: the sizes, strides and refusals of the operators, without their work.

``torch.compile`` and ``torch.export`` run these instead of the real kernels, with sizes that may be symbols.
The refusals repeat those of ``python/csrc/problem.cpp``, which eager calls meet. One is left to the kernels:
whether ``grad_output`` has a size the layer can have. In a graph it has, and to ask it of symbols would tie them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ._layer import input_size, memory_format_of, output_size, unpack
from ._library import CONV_TRANSPOSE, EAGER, GRAD_INPUT, GRAD_WEIGHT

_DTYPES = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})


def _check(condition: bool | torch.SymBool, message: str) -> None:
    if condition is not True:
        torch._check(condition, lambda: message)  # of a size that is not known yet, when it is


def _check_positive(name: str, sizes: Sequence[int]) -> None:
    for dim, size in enumerate(sizes):
        _check(size > 0, f"{name} must be positive, got {size} in dimension {dim}")


def _check_same_kind(name: str, tensor: Tensor, reference_name: str, reference: Tensor) -> None:
    _check(
        tensor.device == reference.device,
        f"Expected all tensors to be on the same device, but {name} and {reference_name} are not",
    )
    _check(
        tensor.dtype == reference.dtype,
        f"expected {name} and {reference_name} to have the same dtype, but {name} is {tensor.dtype} and "
        f"{reference_name} is {reference.dtype}",
    )
    _check(tensor.dtype in _DTYPES, "tconv's operators take float32, float64, float16 and bfloat16 tensors only")


def _check_geometry(geometry: Sequence[int], groups: int) -> int:
    """Refuses parameters that no input makes valid; returns the dims."""
    _check(
        len(geometry) in (4, 8, 12),
        "geometry must hold stride, padding, output_padding and dilation of 1, 2 or 3 dimensions, but got "
        f"{geometry}",
    )
    for stride, padding, output_padding, dilation in zip(*unpack(geometry), strict=True):
        _check(stride > 0, f"non-positive stride is not supported, but got stride={stride}")
        _check(padding >= 0, f"negative padding is not supported, but got padding={padding}")
        _check(output_padding >= 0, f"negative output_padding is not supported, but got {output_padding=}")
        _check(dilation > 0, f"dilation should be greater than zero, but got dilation={dilation}")
        _check(
            output_padding < max(stride, dilation),
            "output padding must be smaller than either stride or dilation, but got "
            f"{output_padding=}, {stride=}, {dilation=}",
        )
    _check(groups > 0, f"non-positive groups is not supported, but got groups={groups}")
    return len(geometry) // 4


def _check_rank(name: str, tensor: Tensor, dims: int) -> None:
    _check(
        tensor.dim() == dims + 2,
        f"Expected {dims + 2}-dimensional {name} for a transposed convolution in {dims} dimensions, but got "
        f"{name} of size {list(tensor.shape)}",
    )


def _check_weight(weight: Tensor, dims: int, groups: int) -> None:
    _check_rank("weight", weight, dims)
    for size in weight.shape:
        _check(size > 0, f"non-empty weight tensor expected, but got weight of size {list(weight.shape)}")
    _check(
        weight.shape[0] % groups == 0,
        f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of "
        f"size {list(weight.shape)} instead",
    )


def _check_channels(name: str, tensor: Tensor, channels: int, weight: Tensor) -> None:
    _check(
        tensor.shape[1] == channels,
        f"Given transposed=1, weight of size {list(weight.shape)}, expected {name}{list(tensor.shape)} to have "
        f"{channels} channels, but got {tensor.shape[1]} channels instead",
    )


def _empty(like: Tensor, sizes: Sequence[int], *deciding: Tensor) -> Tensor:
    return torch.empty(sizes, dtype=like.dtype, device=like.device, memory_format=memory_format_of(*deciding))


def _conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Sequence[int],
    groups: int,
    allow_tf32: bool,
) -> Tensor:
    _check_same_kind("weight", weight, "input", input)
    dims = _check_geometry(geometry, groups)
    _check_rank("input", input, dims)
    _check_weight(weight, dims, groups)
    _check_channels("input", input, weight.shape[0], weight)
    out_channels = weight.shape[1] * groups
    if bias is not None:
        _check_same_kind("bias", bias, "input", input)
        _check(
            bias.dim() == 1 and bias.shape[0] == out_channels,
            f"Given transposed=1, weight of size {list(weight.shape)}, expected bias to be 1-dimensional with "
            f"{out_channels} elements, but got bias of size {list(bias.shape)} instead",
        )
    _check_positive("input size", input.shape[2:])
    spatial = output_size(geometry, input.shape[2:], weight.shape[2:])
    for dim, size in enumerate(spatial):
        _check(size >= 0, f"the output would have no elements in dimension {dim}: its size would be {size}")
    return _empty(input, [input.shape[0], out_channels, *spatial], input, weight)


def grad_input_sizes(gy: Tensor, weight: Tensor, geometry: Sequence[int], groups: int) -> list[int]:
    """Sizes of the gradient in the input, or a refusal."""
    _check_same_kind("weight", weight, "grad_output", gy)
    dims = _check_geometry(geometry, groups)
    _check_rank("grad_output", gy, dims)
    _check_weight(weight, dims, groups)
    _check_channels("grad_output", gy, weight.shape[1] * groups, weight)
    return [gy.shape[0], weight.shape[0], *input_size(geometry, gy.shape[2:], weight.shape[2:])]


def _grad_input(gy: Tensor, weight: Tensor, geometry: Sequence[int], groups: int, allow_tf32: bool) -> Tensor:
    return _empty(gy, grad_input_sizes(gy, weight, geometry, groups), gy, weight)


def grad_weight_sizes(
    input: Tensor, gy: Tensor, kernel_size: Sequence[int], geometry: Sequence[int], groups: int
) -> list[int]:
    """Sizes of the gradient in the weight, or a refusal."""
    _check_same_kind("grad_output", gy, "input", input)
    dims = _check_geometry(geometry, groups)
    _check_rank("input", input, dims)
    _check_rank("grad_output", gy, dims)
    _check(
        len(kernel_size) == dims,
        f"expected kernel_size to have {dims} values, but got {list(kernel_size)}",
    )
    _check_positive("kernel", kernel_size)
    _check_positive("input size", input.shape[2:])
    for name, tensor in (("in_channels", input), ("out_channels", gy)):
        channels = tensor.shape[1]
        _check(
            channels % groups == 0,
            f"{name} must be divisible by groups, got {channels} channels in {groups} groups",
        )
    _check(
        gy.shape[0] == input.shape[0],
        f"grad_output of size {list(gy.shape)} is not the output for input of size {list(input.shape)}",
    )
    return [input.shape[1], gy.shape[1] // groups, *kernel_size]


def _grad_weight(
    input: Tensor,
    gy: Tensor,
    kernel_size: Sequence[int],
    geometry: Sequence[int],
    groups: int,
    allow_tf32: bool,
) -> Tensor:
    return _empty(input, grad_weight_sizes(input, gy, kernel_size, geometry, groups), input, gy)


torch.library.register_fake(CONV_TRANSPOSE, _conv_transpose)
torch.library.register_fake(GRAD_INPUT, _grad_input)
torch.library.register_fake(GRAD_WEIGHT, _grad_weight)


def _mixed_devices(first: Tensor, second: Tensor, *_: object) -> Tensor:
    # Eager calls on meta tensors do not come this way: one of the operands is real.
    raise RuntimeError(
        "Expected all tensors to be on the same device, but some of input, weight, bias and the gradients are "
        "on the meta device and some are not"
    )


for _name in EAGER:
    torch.library.register_fake(f"tconv::_conv_transpose{_name}", _mixed_devices)
