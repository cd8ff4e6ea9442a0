"""``ConvTranspose1d``, ``2d`` and ``3d``: PyTorch's modules, computed by tconv.

They subclass PyTorch's and change nothing but ``forward``: constructor, initialisation, parameters,
``state_dict`` and repr are inherited, so checkpoints go either way and ``isinstance`` checks hold.
"""

from typing import Any

import torch
from torch import Tensor

from ._packed import PackedWeight, let_go
from .functional import _conv_transpose

__all__ = [
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]


class _Forward:
    """The forward pass of a transposed convolution of any dimension."""

    precision: str | None = None
    """``None`` follows PyTorch's TF32 switches; set ``"fp32"`` or ``"tf32"`` on a module to decide there."""

    keep_packed_weight: bool = True
    """Whether a module in eval mode keeps its weight in the order the GPU's kernels read, until PyTorch counts a
    change of it or the mode is set anew. Set it to ``False`` where weights change between two calls without
    either, through ``weight.data`` say."""

    _packed: PackedWeight | None = None

    def train(self, mode: bool = True) -> Any:
        let_go(self)
        return super().train(mode)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.__dict__.pop("_packed", None)  # the weight moves: its packings would only hold memory
        return super()._apply(*args, **kwargs)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if self.padding_mode != "zeros":
            raise ValueError("Only `zeros` padding mode is supported for " + type(self).__name__)
        output_padding = self.output_padding
        if output_size is not None:
            output_padding = self._output_padding(
                input,
                output_size,
                self.stride,
                self.padding,
                self.kernel_size,
                len(self.kernel_size),
                self.dilation,
            )
            output_padding = tuple(output_padding)
        # Module.__getattr__ takes long enough to show on small layers. A weight that is no parameter, but made
        # by a parametrization or a hook, is where it always is.
        parameters = self._parameters
        weight = parameters.get("weight")
        bias = parameters["bias"] if "bias" in parameters else self.bias  # noqa: SIM401
        owner = self if weight is not None and self.keep_packed_weight else None
        return _conv_transpose(
            len(self.kernel_size),
            input,
            self.weight if weight is None else weight,
            bias,
            self.stride,
            self.padding,
            output_padding,
            self.groups,
            self.dilation,
            self.precision,
            owner,
        )


class ConvTranspose1d(_Forward, torch.nn.ConvTranspose1d):
    """:class:`torch.nn.ConvTranspose1d`, computed by tconv."""


class ConvTranspose2d(_Forward, torch.nn.ConvTranspose2d):
    """:class:`torch.nn.ConvTranspose2d`, computed by tconv."""


class ConvTranspose3d(_Forward, torch.nn.ConvTranspose3d):
    """:class:`torch.nn.ConvTranspose3d`, computed by tconv."""


class LazyConvTranspose1d(_Forward, torch.nn.LazyConvTranspose1d):
    """:class:`torch.nn.LazyConvTranspose1d`; becomes a :class:`ConvTranspose1d` when it sees its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_Forward, torch.nn.LazyConvTranspose2d):
    """:class:`torch.nn.LazyConvTranspose2d`; becomes a :class:`ConvTranspose2d` when it sees its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_Forward, torch.nn.LazyConvTranspose3d):
    """:class:`torch.nn.LazyConvTranspose3d`; becomes a :class:`ConvTranspose3d` when it sees its first input."""

    cls_to_become = ConvTranspose3d
