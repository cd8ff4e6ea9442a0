"""PyTorch's own errors, where a call has failed for a reason PyTorch has the better words for.

The operator library talks to PyTorch through its Stable ABI, which tells that a call has failed but not how. When
memory runs out, or an operator of PyTorch's own fails, the library says so with ``CallFailed``
(``python/csrc/call_failed.hpp``), and the call is made once more here, by PyTorch alone: it raises its own error,
a ``torch.OutOfMemoryError`` with its account of the memory, or it gets by with what there is.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from . import _pytorch
from ._layer import Layer, unpack

_WORDS = "tconv: the call failed"


def unless_failed(error: RuntimeError) -> None:
    """Raises an error that PyTorch has no better words for."""
    if _WORDS not in str(error):
        raise error


def conv_transpose(
    error: RuntimeError, input: Tensor, weight: Tensor, bias: Tensor | None, layer: Layer
) -> Tensor:
    """The layer by PyTorch, where the library's call ended in ``error``; other errors are raised as they are.

    Weights that are not dense no kernel of the library takes, and PyTorch says so in its own words.
    """
    if weight.layout is not torch.strided or (bias is not None and bias.layout is not torch.strided):
        stride, padding, output_padding, dilation = unpack(layer.geometry)
        pytorch = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(stride) - 1]
        return pytorch(input, weight, bias, stride, padding, output_padding, layer.groups, dilation)
    unless_failed(error)
    return _pytorch.conv_transpose(input, weight, bias, layer)
