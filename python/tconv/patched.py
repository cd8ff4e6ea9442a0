"""PyTorch's functions, computed by tconv for as long as a ``with`` lasts."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ._precision import Precision, check_precision
from .functional import conv_transpose1d, conv_transpose2d, conv_transpose3d

__all__ = ["patched"]

# torch.nn.functional's are these very objects.
_TCONV = {
    torch.conv_transpose1d: conv_transpose1d,
    torch.conv_transpose2d: conv_transpose2d,
    torch.conv_transpose3d: conv_transpose3d,
}


class _Patched(TorchFunctionMode):
    def __init__(self, precision: Precision | None) -> None:
        super().__init__()
        self.precision = precision

    def __torch_function__(
        self, func: Callable[..., Any], types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        ours = _TCONV.get(func)
        if ours is None or types:  # subclasses of Tensor that have a say in what functions mean have it
            return func(*args, **(kwargs or {}))
        return ours(*args, precision=self.precision, **(kwargs or {}))


def patched(*, precision: Precision | None = None) -> AbstractContextManager:
    """Within ``with tconv.patched():`` PyTorch's transposed convolutions are computed by tconv.

    That is every call of ``torch.nn.functional.conv_transpose1d``, ``2d`` and ``3d`` by this thread, in whatever
    module or function: for models that call them in a ``forward`` of their own, which :func:`tconv.convert` leaves
    alone. Gradients are tconv's too, also where backward runs outside. Nothing is replaced in PyTorch, and nothing
    is left afterwards.

    Every call of a PyTorch function within takes one or two microseconds more, so convert what is a module.
    """
    check_precision(precision)
    return _Patched(precision)
