"""KernelBench level 1, problem 72: 3D strided padded grouped (3D).

PyTorch computes grouped layers in true fp32, so "fp32" is what agrees with it.
"""

from torch import Tensor, nn

import tconv


class ModelNew(nn.Module):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple,
        stride: tuple = (1, 1, 1),
        padding: tuple = (0, 0, 0),
        output_padding: tuple = (0, 0, 0),
        groups: int = 1,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.conv_transpose3d = tconv.nn.ConvTranspose3d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            groups=groups,
            bias=bias,
        )
        self.conv_transpose3d.precision = "fp32"

    def forward(self, x: Tensor) -> Tensor:
        return self.conv_transpose3d(x)
