"""tconv's operators as PyTorch's, for programs that are to run where tconv is not."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import _formulas
from ._library import CONV_TRANSPOSE, GRAD_INPUT, GRAD_WEIGHT

__all__ = ["decompositions"]


def _conv_transpose(
    input: Tensor, weight: Tensor, bias: Tensor | None, geometry: Sequence[int], groups: int, allow_tf32: bool
) -> Tensor:
    return _formulas.conv_transpose(input, weight, bias, geometry, groups)


def _grad_input(gy: Tensor, weight: Tensor, geometry: Sequence[int], groups: int, allow_tf32: bool) -> Tensor:
    return _formulas.grad_input(gy, weight, geometry, groups)


def _grad_weight(
    input: Tensor,
    gy: Tensor,
    kernel_size: Sequence[int],
    geometry: Sequence[int],
    groups: int,
    allow_tf32: bool,
) -> Tensor:
    return _formulas.grad_weight(input, gy, kernel_size, geometry, groups)


def decompositions() -> dict[torch._ops.OpOverload, Callable[..., Tensor]]:
    """A table of decompositions of tconv's operators, to PyTorch's ``convolution`` and ``convolution_backward``.

    With it an exported program leaves tconv behind, and runs where tconv is not installed::

        program = torch.export.export(model, (x,)).run_decompositions(tconv.decompositions())
        torch.export.save(program, "model.pt2")

    It is then computed by PyTorch, in TF32 where PyTorch's switch allows it. Where a back end wants PyTorch's
    operators decomposed as well, begin with ``table = torch.export.default_decompositions()`` and
    ``table.update(tconv.decompositions())``.
    """
    return {CONV_TRANSPOSE: _conv_transpose, GRAD_INPUT: _grad_input, GRAD_WEIGHT: _grad_weight}
