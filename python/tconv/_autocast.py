"""Autocast: under ``torch.autocast`` the layer runs in the lower precision, as PyTorch's own does."""

from collections.abc import Sequence

import torch
from torch import Tensor

from . import _retry
from ._layer import Layer
from ._library import CONV_TRANSPOSE, LIBRARY


def _cast(tensor: Tensor | None, device_type: str, dtype: torch.dtype) -> Tensor | None:
    # float64 is left alone, like everywhere in autocast: whoever uses it means it.
    if tensor is None or tensor.dtype == torch.float64 or not tensor.is_floating_point():
        return tensor
    return tensor.to(dtype) if tensor.device.type == device_type else tensor


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
            try:
                return CONV_TRANSPOSE(*tensors, geometry, groups, allow_tf32)
            except RuntimeError as error:
                return _retry.conv_transpose(error, *tensors, Layer(geometry, groups, allow_tf32))

    LIBRARY.impl(CONV_TRANSPOSE, kernel, key)


_register("cpu", "AutocastCPU")
_register("cuda", "AutocastCUDA")
