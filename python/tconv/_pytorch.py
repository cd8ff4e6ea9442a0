"""PyTorch's own operators at work: for gradients of CUDA tensors, for layers on machines the CUDA engine cannot be
used on, and for calls that failed (:mod:`tconv._retry`).

They obey PyTorch's switches: ``torch.backends.cudnn.benchmark``, ``deterministic`` and ``enabled``, and
``torch.use_deterministic_algorithms``. Two things are decided here and not by them:

- TF32, where a layer's ``precision`` says other than the switch.
- The dtype. Autocast would lower a ``convolution``, and a gradient is made of one; PyTorch's own operator for
  gradients it leaves alone. What autocast has to say was said when the layer ran.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from . import _fake, _formulas
from ._layer import Layer, memory_format_of, output_size
from ._library import GRAD_INPUT, GRAD_WEIGHT, LIBRARY

VERBOSE = os.environ.get("TCONV_VERBOSE", "0") not in ("", "0")

_switching = RLock()


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """PyTorch's switch for TF32 in convolutions, set for as long as a call is made.

    The switch is one for all threads, so it is touched only where it stands the other way, by one thread at a
    time. What it inherits from ``torch.backends.fp32_precision`` and its like it has as its own afterwards, as
    after PyTorch's own ``torch.backends.cudnn.flags``.
    """
    convolutions = torch.backends.cudnn.conv
    if (convolutions.fp32_precision == "tf32") == allowed:
        yield
        return
    with _switching:
        before = convolutions.fp32_precision
        convolutions.fp32_precision = "tf32" if allowed else "ieee"
        try:
            yield
        finally:
            convolutions.fp32_precision = before


@contextmanager
def _as_decided(layer: Layer, tensor: Tensor) -> Iterator[None]:
    matters = tensor.is_cuda and tensor.dtype == torch.float32
    with torch._C._DisableAutocast(), tf32(layer.allow_tf32) if matters else nullcontext():
        yield


def _say(which: str, input: Tensor, layer: Layer, in_channels: int, out_channels: int) -> None:
    """A line where TCONV_VERBOSE asks for it, like the engines' own."""
    if VERBOSE:
        print(
            f"tconv,pytorch,{which},fallback: no gradients in the CUDA engine,{str(input.dtype)[6:]},"
            f"{input.dim() - 2}d n{input.shape[0]} g{layer.groups} ci{in_channels} co{out_channels}",
            file=sys.stderr,
        )


def _formatted(gradient: Tensor, *deciding: Tensor) -> Tensor:
    """The memory format the fake kernels promise; PyTorch's differs in a few cases."""
    if gradient.dim() < 4:
        return gradient.contiguous()
    return gradient.contiguous(memory_format=memory_format_of(*deciding))


def conv_transpose(input: Tensor, weight: Tensor, bias: Tensor | None, layer: Layer) -> Tensor:
    """T: the layer."""
    with _as_decided(layer, input):
        return _formulas.conv_transpose(input, weight, bias, layer.geometry, layer.groups)


def gradients(
    gy: Tensor, input: Tensor, weight: Tensor, needs: Sequence[bool], layer: Layer
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The layer's gradients in input, weight and bias, those that are needed."""
    for which, needed in zip(("grad_input", "grad_weight", "grad_bias"), needs, strict=True):
        if needed:
            _say(which, input, layer, weight.shape[0], gy.shape[1])
    if gy.numel() == 0:
        zeros = torch.zeros_like(input), torch.zeros_like(weight), gy.new_zeros(gy.shape[1])
        return tuple(zero if needed else None for zero, needed in zip(zeros, needs, strict=True))
    with _as_decided(layer, gy):
        gx, gw, gb = _formulas.gradients(gy, input, weight, needs, layer.geometry, layer.groups)
    return (
        None if gx is None else _formatted(gx, input, weight),
        None if gw is None else _formatted(gw, input, weight),
        gb,
    )


def grad_input(gy: Tensor, weight: Tensor, layer: Layer) -> Tensor:
    """C: the adjoint of T in its input."""
    promised = _fake.grad_input_sizes(gy, weight, layer.geometry, layer.groups)
    spatial, kernel = promised[2:], weight.shape[2:]
    if min(spatial) <= 0 or output_size(layer.geometry, spatial, kernel) != list(gy.shape[2:]):
        raise RuntimeError(
            f"grad_output of size {list(gy.shape)} is not the output of a transposed convolution with weight of "
            f"size {list(weight.shape)}, stride, padding, output_padding and dilation {list(layer.geometry)}"
        )
    _say("grad_input", gy, layer, weight.shape[0], gy.shape[1])
    if gy.numel() == 0:
        return _formatted(gy.new_zeros(promised), gy, weight)
    with _as_decided(layer, gy):
        return _formatted(_formulas.grad_input(gy, weight, layer.geometry, layer.groups), gy, weight)


def grad_weight(input: Tensor, gy: Tensor, kernel_size: Sequence[int], layer: Layer) -> Tensor:
    """W: the adjoint of T in its weight."""
    promised = _fake.grad_weight_sizes(input, gy, kernel_size, layer.geometry, layer.groups)
    if output_size(layer.geometry, input.shape[2:], kernel_size) != list(gy.shape[2:]):
        raise RuntimeError(
            f"grad_output of size {list(gy.shape)} is not the output for input of size {list(input.shape)} with "
            f"kernel_size {list(kernel_size)} and stride, padding, output_padding and dilation "
            f"{list(layer.geometry)}"
        )
    _say("grad_weight", gy, layer, input.shape[1], gy.shape[1])
    if gy.numel() == 0:
        return _formatted(gy.new_zeros(promised), input, gy)
    with _as_decided(layer, gy):
        gw = _formulas.grad_weight(input, gy, kernel_size, layer.geometry, layer.groups)
    return _formatted(gw, input, gy)


def _as_kernel(function: Any) -> Any:
    """A function of a layer as the kernel of an operator, which takes the layer's parameters one by one."""

    def kernel(*args: Any) -> Tensor:
        *operands, geometry, groups, allow_tf32 = args
        return function(*operands, Layer(geometry, groups, allow_tf32))

    return kernel


conv_transpose_kernel = _as_kernel(conv_transpose)
grad_input_kernel = _as_kernel(grad_input)
grad_weight_kernel = _as_kernel(grad_weight)

LIBRARY.impl("_conv_transpose_by_pytorch", conv_transpose_kernel, "CUDA")
LIBRARY.impl(GRAD_INPUT, grad_input_kernel, "CUDA")
LIBRARY.impl(GRAD_WEIGHT, grad_weight_kernel, "CUDA")
