"""Which products of float32 tensors may be formed in TF32 on a GPU."""

from types import ModuleType
from typing import Literal

import torch

Precision = Literal["fp32", "tf32"]


class _Switches(ModuleType):
    """PyTorch's switches as an attribute of a module, on which ``torch.compile`` guards.

    A graph is traced anew when the attribute it has read changes.
    """

    @property
    def allow_tf32(self) -> bool:
        # Answers for torch.backends.cudnn.allow_tf32 and for the newer fp32_precision settings alike, and,
        # other than allow_tf32, may be asked whichever of the two a program has used.
        return torch.backends.cudnn.conv.fp32_precision == "tf32"


_switches = _Switches("tconv._precision._switches")


def check_precision(precision: Precision | None) -> None:
    if precision not in (None, "fp32", "tf32"):
        raise ValueError(f"precision must be None, 'fp32' or 'tf32', got {precision!r}")


def allow_tf32(precision: Precision | None) -> bool:
    """``None`` follows PyTorch's switches."""
    if precision is None:
        return _switches.allow_tf32
    check_precision(precision)
    return precision == "tf32"
