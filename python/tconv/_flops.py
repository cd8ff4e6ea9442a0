"""What :class:`torch.utils.flop_counter.FlopCounterMode` counts for tconv's operators: the same as for PyTorch's.

The counter's module is loaded by those who count, and may bring Triton along. So the formulas are registered when
it is imported, and it is not imported for them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

_COUNTER = "torch.utils.flop_counter"


def _register(counter: ModuleType) -> None:
    def swapped(shape: Sequence[int]) -> list[int]:
        return [shape[1], shape[0], *shape[2:]]

    @counter.register_flop_formula(torch.ops.tconv.conv_transpose)
    def conv_transpose(x: Sequence[int], w: Sequence[int], *_: Any, out_shape: Sequence[int], **__: Any) -> int:
        return counter.conv_flop_count(x, w, out_shape, transposed=True)

    @counter.register_flop_formula(torch.ops.tconv.conv_transpose_grad_input)
    def grad_input(gy: Sequence[int], w: Sequence[int], *_: Any, out_shape: Sequence[int], **__: Any) -> int:
        return counter.conv_flop_count(gy, w, out_shape, transposed=False)

    @counter.register_flop_formula(torch.ops.tconv.conv_transpose_grad_weight)
    def grad_weight(x: Sequence[int], gy: Sequence[int], *_: Any, out_shape: Sequence[int], **__: Any) -> int:
        return counter.conv_flop_count(swapped(gy), swapped(x), swapped(out_shape), transposed=False)


class _WhenImported(MetaPathFinder):
    """Lets the counter's module be found as ever, and registers the formulas once it has run."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _COUNTER or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_register(module: ModuleType) -> None:
            run(module)
            _register(module)

        spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec


if _COUNTER in sys.modules:
    _register(sys.modules[_COUNTER])
else:
    sys.meta_path.insert(0, _WhenImported())
