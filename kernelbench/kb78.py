"""KernelBench level 1, problem 78: 2D padded asymmetric kernel (2D).

PyTorch computes this one in TF32 by default, so "tf32" is what agrees with it.
"""

from torch import Tensor, nn

import tconv


class ModelNew(nn.Module):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple,
        stride: tuple = (1, 1),
        padding: tuple = (0, 0),
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.conv_transpose2d = tconv.nn.ConvTranspose2d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            bias=bias,
        )
        self.conv_transpose2d.precision = "tf32"

    def forward(self, x: Tensor) -> Tensor:
        return self.conv_transpose2d(x)
