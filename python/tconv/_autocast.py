"""Autocast: under ``torch.autocast`` the layer runs in the lower precision, as PyTorch's own does.

Calls that arrive through PyTorch's dispatcher meet the kernels registered here. A plain eager call is cast by
:func:`eager_conv_transpose` and stays one, so that a module can keep its weight, cast and packed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from . import _autograd
from ._layer import Layer
from ._library import CONV_TRANSPOSE, LIBRARY


def _is_lowered(tensor: Tensor, device_type: str) -> bool:
    # float64 is left alone, like everywhere in autocast: whoever uses it means it.
    if tensor.dtype == torch.float64 or not tensor.is_floating_point():
        return False
    return tensor.device.type == device_type


def _cast(tensor: Tensor | None, device_type: str, dtype: torch.dtype) -> Tensor | None:
    return tensor.to(dtype) if tensor is not None and _is_lowered(tensor, device_type) else tensor


def eager_conv_transpose(
    input: Tensor, weight: Tensor, bias: Tensor | None, layer: Layer, owner: torch.nn.Module | None
) -> Tensor:
    """T of plain tensors, with nobody watching but autocast."""
    device_type = input.device.type
    if not torch.is_autocast_enabled(device_type):  # for another kind of device
        return _autograd.eager_conv_transpose(input, weight, bias, layer, owner)
    dtype = torch.get_autocast_dtype(device_type)
    input, bias = _cast(input, device_type, dtype), _cast(bias, device_type, dtype)
    wanted = dtype if _is_lowered(weight, device_type) and weight.dtype != dtype else None
    return _autograd.eager_conv_transpose(input, weight, bias, layer, owner, wanted)


def _register(device_type: str, key: str) -> None:
    exclude = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def kernel(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        geometry: Sequence[int],
        groups: int,
        allow_tf32: bool,
    ) -> Tensor:
        dtype = torch.get_autocast_dtype(device_type)
        tensors = [_cast(tensor, device_type, dtype) for tensor in (input, weight, bias)]
        with torch._C._ExcludeDispatchKeyGuard(exclude):
            return CONV_TRANSPOSE(*tensors, geometry, groups, allow_tf32)

    LIBRARY.impl(CONV_TRANSPOSE, kernel, key)


_register("cpu", "AutocastCPU")
_register("cuda", "AutocastCUDA")
