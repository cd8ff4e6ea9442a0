"""Random layers of the kinds that users run, for bench.py --random and ../cpu.py --random.

A seed gives the same layers everywhere, and the first of a longer list are those of a shorter one. Sizes are
log-uniform: as many layers lie between 32 and 64 as between 512 and 1024. Half of all channels are powers of two
and most others multiples of 8, half of all images multiples of 8; the rest are what comes.

| kind       | share | what                                                                                     |
|------------|------:|------------------------------------------------------------------------------------------|
| vocoder    |  20 % | 1D, strides 2 to 10, k = 2s or s to 2s + 1, 16 to 1024 channels, lengths 32 to 200,000   |
| unet       |  20 % | 2D and 3D, k = s = 2, in 3D at times not along the depth, 32 to 1024 channels            |
| gan        |  20 % | 2D, k4 s2 p1, k3 s2 p1 op1, k5 s2 p2 op1, and k4 s1 of one pixel; up to 1024 channels    |
| superres   |  10 % | 2D, 1 to 12 output channels, k up to 9, strides 2 to 4                                   |
| stride1    |  10 % | 1D, 2D and 3D, k 1 to 7 (11 in 1D, 5 in 3D)                                              |
| dilated    |   6 % | 1D, 2D and 3D, dilations 2 to 4, strides 1 to 3                                          |
| depthwise  |   5 % | 1D, 2D and 3D, one channel a group, strides 1 to 4                                       |
| grouped    |   4 % | 1D, 2D and 3D, 2 to 32 groups                                                            |
| odd        |   5 % | anything: other parameters in every dimension, channels and sizes of no shape            |

Layers are kept to what a GPU does in milliseconds, see `bounded`, or to other bounds that are asked for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from problems import Problem

MIN_FLOPS, MAX_FLOPS = 1e7, 3e11
MAX_TENSOR_BYTES = 1.5e9
"""Of x, the weight and y each, in fp32."""
MAX_PRODUCTS = 1e10
"""What the float64 result adds up in memory: taps times positions times output channels."""


class Draw:
    """Random numbers as layers have them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def integer(self, low: int, high: int) -> int:
        return low + int(self.random.random() * (high - low + 1))

    def one_of(self, *choices: object) -> object:
        return choices[self.integer(0, len(choices) - 1)]

    def size(self, low: int, high: int) -> int:
        """Log-uniform, both ends included."""
        return min(high, int(low * ((high + 1) / low) ** self.random.random()))

    def channels(self, low: int, high: int) -> int:
        count, form = self.size(low, high), self.random.random()
        if form < 0.5:
            count = 1 << round(math.log2(count))
        elif form < 0.9:
            count = max(8, round(count / 8) * 8)
        return min(max(count, low), high)

    def image(self, dims: int, low: int, high: int) -> list[int]:
        """Half of them square, others within a factor of two."""
        side = self.size(low, high)
        if self.chance(0.5) and side >= 8:
            side = side // 8 * 8
        if self.chance(0.5):
            return [side] * dims
        return [side, *(self.size(max(1, side // 2), min(high, side * 2)) for _ in range(dims - 1))]

    def spatial(self, dims: int) -> list[int]:
        low, high = {1: (32, 200_000), 2: (4, 512), 3: (2, 96)}[dims]
        return self.image(dims, low, high)


def layer(
    dims: int,
    batch: int,
    channels: tuple[int, int],
    spatial: list[int],
    kernel: int | list[int],
    stride: int | list[int] = 1,
    padding: int | list[int] = 0,
    output_padding: int | list[int] = 0,
    dilation: int | list[int] = 1,
    groups: int = 1,
) -> Problem:
    """One number stands for all dimensions. The name comes later."""

    def all_of(value: int | list[int]) -> list[int]:
        return value if isinstance(value, list) else [value] * dims

    parameters = map(all_of, (kernel, stride, padding, output_padding, dilation))
    return Problem("", dims, batch, *channels, groups, spatial, *parameters)


def upsampling(kernel: int, stride: int) -> tuple[int, int]:
    """Padding and output padding with which a stride of two or more multiplies a size."""
    padding = (kernel - stride + 1) // 2
    return padding, 2 * padding - (kernel - stride)


def vocoder(draw: Draw) -> Problem:
    stride = draw.integer(2, 10)
    kernel = 2 * stride if draw.chance(0.6) else draw.integer(stride, 2 * stride + 1)
    # Causal decoders cut the ends off themselves.
    padding = (0, 0) if draw.chance(0.25) else upsampling(kernel, stride)
    into = draw.channels(16, 1024)
    out = max(16, into // 2) if draw.chance(0.7) else draw.channels(16, 1024)
    return layer(1, draw.size(1, 32), (into, out), draw.spatial(1), kernel, stride, *padding)


def unet(draw: Draw) -> Problem:
    dims = draw.integer(2, 3)
    into = draw.channels(32, 1024)
    out = max(32, into // 2) if draw.chance(0.7) else into
    kernel = [1, 2, 2] if dims == 3 and draw.chance(0.25) else [2] * dims
    return layer(dims, draw.size(1, 32 if dims == 2 else 8), (into, out), draw.spatial(dims), kernel, list(kernel))


def gan(draw: Draw) -> Problem:
    into = draw.channels(16, 1024)
    out = draw.one_of(max(16, into // 2), max(16, into // 2), into, 1 if draw.chance(0.3) else 3)
    batch = draw.size(1, 128)
    if draw.chance(0.1):
        return layer(2, batch, (into, out), [1, 1], 4)
    form = draw.one_of((4, 2, 1, 0), (4, 2, 1, 0), (3, 2, 1, 1), (5, 2, 2, 1))
    return layer(2, batch, (into, out), draw.image(2, 1, 256), *form)


def superres(draw: Draw) -> Problem:
    stride = draw.integer(2, 4)
    kernel = draw.integer(stride, 9)
    channels = draw.channels(8, 256), draw.one_of(1, 3, 3, 4, 12)
    return layer(
        2, draw.size(1, 16), channels, draw.image(2, 16, 512), kernel, stride, *upsampling(kernel, stride)
    )


def stride1(draw: Draw) -> Problem:
    dims = draw.integer(1, 3)
    kernel = draw.one_of(3, draw.integer(1, {1: 11, 2: 7, 3: 5}[dims]))
    padding = draw.one_of(0, kernel // 2)
    channels = draw.channels(8, 512), draw.channels(8, 512)
    return layer(dims, draw.size(1, 32), channels, draw.spatial(dims), kernel, 1, padding)


def dilated(draw: Draw) -> Problem:
    dims, stride, dilation = draw.integer(1, 3), draw.integer(1, 3), draw.integer(2, 4)
    kernel = draw.integer(2, {1: 7, 2: 5, 3: 3}[dims])
    padding = draw.one_of(0, dilation * (kernel - 1) // 2)
    output_padding = draw.integer(0, stride - 1)
    channels = draw.channels(8, 512), draw.channels(8, 512)
    return layer(
        dims, draw.size(1, 32), channels, draw.spatial(dims), kernel, stride, padding, output_padding, dilation
    )


def strided(draw: Draw, dims: int) -> tuple[int, int, int, int]:
    """Kernel, stride, padding and output padding of layers with groups."""
    stride = draw.integer(1, 4)
    if stride == 1:
        kernel = draw.one_of(3, 5, 7) if dims < 3 else 3
        return kernel, 1, kernel // 2, 0
    kernel = draw.one_of(2 * stride, stride, stride + 1)
    return kernel, stride, *upsampling(kernel, stride)


def depthwise(draw: Draw) -> Problem:
    dims, channels = draw.integer(1, 3), draw.channels(16, 1024)
    form, batch = strided(draw, dims), draw.size(1, 32)
    return layer(dims, batch, (channels, channels), draw.spatial(dims), *form, groups=channels)


def grouped(draw: Draw) -> Problem:
    dims, groups = draw.integer(1, 3), 1 << draw.integer(1, 5)
    channels = groups * draw.channels(2, 128), groups * draw.channels(2, 128)
    form, batch = strided(draw, dims), draw.size(1, 32)
    return layer(dims, batch, channels, draw.spatial(dims), *form, groups=groups)


def odd(draw: Draw) -> Problem:
    dims = draw.integer(1, 3)

    def each(low: int, high: int) -> list[int]:
        return [draw.integer(low, high) for _ in range(dims)]

    kernel, stride, padding = each(1, {1: 13, 2: 7, 3: 4}[dims]), each(1, 5), each(0, 2)
    dilation = each(1, 3) if draw.chance(0.3) else [1] * dims
    output_padding = [draw.integer(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True)]
    channels = draw.size(1, 512), draw.size(1, 512)
    low, high = {1: (32, 200_000), 2: (4, 512), 3: (2, 96)}[dims]
    spatial = [draw.size(low, high) for _ in range(dims)]
    return layer(dims, draw.size(1, 32), channels, spatial, kernel, stride, padding, output_padding, dilation)


KINDS: dict[Callable[[Draw], Problem], int] = {
    vocoder: 20,
    unet: 20,
    gan: 20,
    superres: 10,
    stride1: 10,
    dilated: 6,
    depthwise: 5,
    grouped: 4,
    odd: 5,
}
"""With their shares, in percent."""


def bounded(problem: Problem) -> bool:
    """Whether there are outputs, enough work to time, and little enough for hundreds of layers in minutes."""
    p = problem
    if min(p.output_shape) < 1 or not MIN_FLOPS <= p.flops <= MAX_FLOPS:
        return False
    shapes = ((p.batch, p.in_channels, *p.spatial), p.weight_shape, p.output_shape)
    products = p.flops / 2 / (p.in_channels // p.groups)
    return max(map(math.prod, shapes)) * 4 <= MAX_TENSOR_BYTES and products <= MAX_PRODUCTS


def random_layers(count: int, seed: int, within: Callable[[Problem], bool] = bounded) -> list[Problem]:
    """Named by their kind and their place in the list."""
    draw = Draw(seed)
    layers = []
    for number in range(count):
        kind = draw.random.choices(list(KINDS), list(KINDS.values()))[0]
        problem = kind(draw)
        while not within(problem):
            problem = kind(draw)
        problem.name = f"{kind.__name__}-{number}"
        layers.append(problem)
    return layers
