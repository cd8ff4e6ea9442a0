"""The parameters of a layer as the operators take them.

``geometry`` is stride, padding, output_padding and dilation, one after the other: ``4 * dims`` integers in one
list. Each list an operator takes costs an eager call half a microsecond, so there is one and not four.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import index

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from ._library import layer_number

Integers = int | Sequence[int]


def _expanded(function: str, name: str, value: Integers, dims: int) -> list[int]:
    """``value`` once per dimension, or the refusal PyTorch has for it."""
    several = isinstance(value, (list, tuple, torch.Size))
    values = list(value) if several else [value]
    for position, item in enumerate(values):
        # Symbolic integers of torch.compile stay symbolic: asking them for their index would fix them.
        if isinstance(item, (int, torch.SymInt)) and not isinstance(item, bool):
            continue
        if isinstance(item, bool) or not hasattr(item, "__index__"):
            kind = type(item).__name__
            found = f", but found element of type {kind} at pos {position}" if several else f", not {kind}"
            raise TypeError(f"{function}(): argument '{name}' must be tuple of ints{found}")
        values[position] = index(item)
    if len(values) == 1:
        return values * dims
    if len(values) != dims:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {dims} values to match the "
            f"convolution dimensions, but got {name}={values}"
        )
    return values


def pack(
    dims: int,
    stride: Integers,
    padding: Integers,
    output_padding: Integers,
    dilation: Integers,
) -> list[int]:
    """The geometry of a layer, from parameters given as PyTorch takes them."""
    function = f"conv_transpose{dims}d"
    return (
        _expanded(function, "stride", stride, dims)
        + _expanded(function, "padding", padding, dims)
        + _expanded(function, "output_padding", output_padding, dims)
        + _expanded(function, "dilation", dilation, dims)
    )


class Layer:
    """What a call must know of its layer besides the tensors."""

    __slots__ = ("allow_tf32", "geometry", "groups", "number")

    def __init__(
        self,
        geometry: Sequence[int],
        groups: int,
        allow_tf32: bool,
        number: int | None = None,
    ) -> None:
        self.geometry = geometry
        self.groups = groups
        self.allow_tf32 = allow_tf32
        self.number = number
        """Of the layer in the operator library's table, by which eager calls name it."""


def _make_layer(
    dims: int,
    stride: Integers,
    padding: Integers,
    output_padding: Integers,
    dilation: Integers,
    groups: int,
    allow_tf32: bool,
) -> Layer:
    if type(groups) is not int:
        raise TypeError(f"conv_transpose{dims}d(): argument 'groups' must be int, not {type(groups).__name__}")
    geometry = pack(dims, stride, padding, output_padding, dilation)
    return Layer(geometry, groups, allow_tf32, layer_number(geometry, groups, allow_tf32))


_known_layer = lru_cache(maxsize=1024, typed=True)(_make_layer)  # typed: True must not pass for a 1 seen before


def _can_be_looked_up(value: Integers) -> bool:
    """Of what is no plain integer: whether it is found again by its value alone.

    A tensor is found by what object it is, whatever it holds by then, and (2.0, 2.0) as (2, 2).
    """
    if type(value) is not tuple:
        return False
    for item in value:  # noqa: SIM110  all() takes three times as long, and every call of a module comes here
        if type(item) is not int:
            return False
    return True


def numbered_layer(
    dims: int,
    stride: Integers,
    padding: Integers,
    output_padding: Integers,
    dilation: Integers,
    groups: int,
    allow_tf32: bool,
) -> Layer:
    """The layer with these parameters, as eager calls need it. Layers repeat from call to call."""
    known = (
        (type(stride) is int or _can_be_looked_up(stride))
        and (type(padding) is int or _can_be_looked_up(padding))
        and (type(output_padding) is int or _can_be_looked_up(output_padding))
        and (type(dilation) is int or _can_be_looked_up(dilation))
    )
    find = _known_layer if known else _make_layer
    return find(dims, stride, padding, output_padding, dilation, groups, allow_tf32)


def unpack(geometry: Sequence[int]) -> tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]:
    """stride, padding, output_padding and dilation of a geometry."""
    dims = len(geometry) // 4
    return (
        geometry[:dims],
        geometry[dims : 2 * dims],
        geometry[2 * dims : 3 * dims],
        geometry[3 * dims :],
    )


def output_size(geometry: Sequence[int], input_size: Sequence[int], kernel: Sequence[int]) -> list[int]:
    """Spatial size of the output."""
    stride, padding, output_padding, dilation = unpack(geometry)
    return [
        (input_size[d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel[d] - 1) + output_padding[d] + 1
        for d in range(len(stride))
    ]


def input_size(geometry: Sequence[int], output_size: Sequence[int], kernel: Sequence[int]) -> list[int]:
    """Spatial size of the input: the inverse of :func:`output_size`."""
    stride, padding, output_padding, dilation = unpack(geometry)
    return [
        (output_size[d] - 1 - output_padding[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1)) // stride[d] + 1
        for d in range(len(stride))
    ]


def memory_format_of(*deciding: Tensor) -> torch.memory_format:
    """The memory format PyTorch's convolutions choose: channels_last if any operand is."""
    formats = {suggest_memory_format(tensor) for tensor in deciding} - {torch.contiguous_format}
    return formats.pop() if formats else torch.contiguous_format
