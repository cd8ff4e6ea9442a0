"""``conv_transpose1d``, ``2d`` and ``3d`` with the signatures and the meaning of ``torch.nn.functional``."""

import sys
from collections.abc import Callable
from operator import index
from typing import Any

import torch
from torch import Tensor
from torch.fx import Proxy
from torch.nn import functional as F

from . import _autocast
from ._autograd import PLAIN, autocast_enabled, eager_conv_transpose, needs_dispatcher, watched
from ._layer import Integers, numbered_layer, pack
from ._library import CONV_TRANSPOSE
from ._precision import Precision, allow_tf32, check_precision
from ._pytorch import VERBOSE

__all__ = ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]

_DTYPES = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
_STRIDED = torch.strided
_PYTORCH = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Integers = 1,
    padding: Integers = 0,
    output_padding: Integers = 0,
    groups: int = 1,
    dilation: Integers = 1,
    *,
    precision: Precision | None = None,
) -> Tensor:
    """A transposed convolution over ``(N, C, L)`` or ``(C, L)``; see :func:`torch.nn.functional.conv_transpose1d`.

    ``precision`` chooses how products of float32 tensors are formed on a GPU: ``"fp32"``, ``"tf32"``, or
    ``None`` to follow PyTorch's switches. On a CPU they are always formed in fp32.
    """
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation, precision)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Integers = 1,
    padding: Integers = 0,
    output_padding: Integers = 0,
    groups: int = 1,
    dilation: Integers = 1,
    *,
    precision: Precision | None = None,
) -> Tensor:
    """A transposed convolution over ``(N, C, H, W)`` or ``(C, H, W)``; see :func:`conv_transpose1d`."""
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation, precision)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Integers = 1,
    padding: Integers = 0,
    output_padding: Integers = 0,
    groups: int = 1,
    dilation: Integers = 1,
    *,
    precision: Precision | None = None,
) -> Tensor:
    """A transposed convolution over ``(N, C, D, H, W)`` or ``(C, D, H, W)``; see :func:`conv_transpose1d`."""
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation, precision)


def _conv_transpose(
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Integers,
    padding: Integers,
    output_padding: Integers,
    groups: int,
    dilation: Integers,
    precision: Precision | None,
    owner: torch.nn.Module | None = None,
) -> Tensor:
    """All dimensions in one. ``owner`` is the module whose parameter the weight is: it may keep it packed."""
    if (
        type(input) is Tensor
        and type(weight) in PLAIN
        and (bias is None or type(bias) in PLAIN)
        and ((input.is_cpu and precision is None) or input.is_cuda)
        and input.dim() == dims + 2
        and input.dtype in _DTYPES
        and input.layout is _STRIDED
        and not watched()
    ):
        tf32 = input.is_cuda and allow_tf32(precision)
        try:
            layer = numbered_layer(dims, stride, padding, output_padding, dilation, groups, tf32)
        except TypeError:  # what is no integer is refused below
            pass
        else:
            if autocast_enabled():
                return _autocast.eager_conv_transpose(input, weight, bias, layer, owner)
            return eager_conv_transpose(input, weight, bias, layer, owner)
    return _general_conv_transpose(
        dims, input, weight, bias, stride, padding, output_padding, groups, dilation, precision
    )


def _general_conv_transpose(
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Integers,
    padding: Integers,
    output_padding: Integers,
    groups: int,
    dilation: Integers,
    precision: Precision | None,
) -> Tensor:
    """Everything but the plain eager call, which :func:`_conv_transpose` has let through."""
    if isinstance(input, Proxy) or isinstance(weight, Proxy):
        # torch.fx traces by values that stand for tensors: the call is noted, and made when the graph runs.
        arguments = (input, weight, bias, stride, padding, output_padding, groups, dilation)
        tracer = (input if isinstance(input, Proxy) else weight).tracer
        return tracer.create_proxy("call_function", _FUNCTIONS[dims], arguments, {"precision": precision})
    _check_types(dims, input, weight, bias, groups)
    if not isinstance(groups, (int, torch.SymInt)):
        groups = index(groups)
    check_precision(precision)
    tf32 = input.is_cuda and allow_tf32(precision)
    served = input.is_cpu or input.is_cuda or input.is_meta
    dense = all(t is None or t.layout is _STRIDED for t in (input, weight, bias))
    if not served or input.dtype not in _DTYPES or not dense:
        return _by_pytorch(dims, input, weight, bias, stride, padding, output_padding, groups, dilation)
    rank = input.dim()
    if rank not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to conv_transpose{dims}d, but got "
            f"input of size: {list(input.shape)}"
        )
    batched = input if rank == dims + 2 else input.unsqueeze(0)
    if input.is_meta or needs_dispatcher() or type(input) is not Tensor or type(weight) not in PLAIN:
        geometry = pack(dims, stride, padding, output_padding, dilation)
        output = CONV_TRANSPOSE(batched, weight, bias, geometry, groups, tf32)
    else:
        layer = numbered_layer(dims, stride, padding, output_padding, dilation, groups, tf32)
        output = eager_conv_transpose(batched, weight, bias, layer)
    return output if rank == dims + 2 else output.squeeze(0)


_FUNCTIONS = {1: conv_transpose1d, 2: conv_transpose2d, 3: conv_transpose3d}


def _check_types(dims: int, input: Any, weight: Any, bias: Any, groups: Any) -> None:
    """Takes subclasses of Tensor, refuses everything that is none with PyTorch's words."""
    for position, (name, value) in enumerate((("input", input), ("weight", weight), ("bias", bias)), 1):
        if not isinstance(value, Tensor) and not (name == "bias" and value is None):
            raise TypeError(
                f"conv_transpose{dims}d(): argument '{name}' (position {position}) must be Tensor, "
                f"not {type(value).__name__}"
            )
    if isinstance(groups, bool) or not (isinstance(groups, torch.SymInt) or hasattr(groups, "__index__")):
        raise TypeError(f"conv_transpose{dims}d(): argument 'groups' must be int, not {type(groups).__name__}")
    if "torch.distributed.tensor" in sys.modules:
        from . import _sharding  # noqa: F401  registers the rules DTensor needs


def _by_pytorch(dims: int, input: Tensor, *args: Any) -> Tensor:
    """PyTorch's own operator, for the dtypes, devices and layouts tconv does not compute."""
    if VERBOSE and not torch.compiler.is_compiling():
        print(
            f"tconv,pytorch,forward,fallback: no engine for {input.dtype} {input.layout} on {input.device.type}",
            file=sys.stderr,
        )
    operator: Callable[..., Tensor] = _PYTORCH[dims]
    return operator(input, *args)
