"""The two models of the examples, written as their users write them: plain PyTorch, no word of tconv."""

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


class ResidualBlock(nn.Module):
    """Dilated convolutions, each added to what it reads."""

    def __init__(self, channels: int, kernel_size: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            weight_norm(nn.Conv1d(channels, channels, kernel_size, dilation=d, padding=d * (kernel_size - 1) // 2))
            for d in dilations
        )

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions:
            x = x + convolution(nn.functional.leaky_relu(x, 0.1))
        return x


class Vocoder(nn.Module):
    """A HiFi-GAN-style generator: mel spectrogram in, waveform out, upsampled 8 x 8 x 2 x 2 = 256 times.

    All of its transposed convolutions are weight-normed, as in the model it follows.
    """

    def __init__(
        self,
        mels: int = 40,
        channels: int = 64,
        upsampling: tuple[tuple[int, int], ...] = ((8, 16), (8, 16), (2, 4), (2, 4)),
        normalise: object = weight_norm,
    ) -> None:
        super().__init__()
        self.entry = weight_norm(nn.Conv1d(mels, channels, 7, padding=3))
        self.upsamplers, self.blocks = nn.ModuleList(), nn.ModuleList()
        for stride, kernel_size in upsampling:
            layer = nn.ConvTranspose1d(
                channels, channels // 2, kernel_size, stride, padding=(kernel_size - stride) // 2
            )
            self.upsamplers.append(normalise(layer))
            channels //= 2
            self.blocks.append(ResidualBlock(channels, 3, (1, 3)))
        self.exit = weight_norm(nn.Conv1d(channels, 1, 7, padding=3))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.entry(mel)
        for upsampler, block in zip(self.upsamplers, self.blocks, strict=True):
            x = block(upsampler(nn.functional.leaky_relu(x, 0.1)))
        return torch.tanh(self.exit(nn.functional.leaky_relu(x)))


class DoubleConvolution(nn.Sequential):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
        )


class UNet(nn.Module):
    """A U-Net for segmentation: each step up is a transposed convolution, told the size it has to meet."""

    def __init__(self, in_channels: int = 1, classes: int = 3, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            DoubleConvolution(a, b) for a, b in zip([in_channels, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(DoubleConvolution(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else nn.functional.max_pool2d(x, 2))
            skipped.append(x)
        skipped.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            other = skipped.pop()
            x = merge(torch.cat([other, up(x, output_size=other.shape[-2:])], dim=1))
        return self.head(x)
