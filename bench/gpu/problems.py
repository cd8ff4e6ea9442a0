"""The benchmark problems of bench/problems.json, and their float64 results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

PRECISIONS = {
    "tf32": torch.float32,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
}


def memory_format(dims: int, last: bool) -> torch.memory_format:
    if not last:
        return torch.contiguous_format
    return torch.channels_last if dims == 2 else torch.channels_last_3d


@dataclass
class Problem:
    name: str
    dims: int
    batch: int
    in_channels: int
    out_channels: int
    groups: int
    spatial: list[int]
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    output_padding: list[int]
    dilation: list[int]

    def __str__(self) -> str:
        """As TCONV_VERBOSE writes layers: n16 g1 ci32 co64 k3 s2 p1 op0 d2 131072->262145."""

        def joined(values: Iterable[int]) -> str:
            return "x".join(map(str, values))

        return (
            f"n{self.batch} g{self.groups} ci{self.in_channels} co{self.out_channels} k{joined(self.kernel)} "
            f"s{joined(self.stride)} p{joined(self.padding)} op{joined(self.output_padding)} "
            f"d{joined(self.dilation)} {joined(self.spatial)}->{joined(self.output_shape[2:])}"
        )

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.in_channels, self.out_channels // self.groups, *self.kernel)

    @property
    def output_shape(self) -> tuple[int, ...]:
        size = [
            (i - 1) * s - 2 * p + d * (k - 1) + o + 1
            for i, s, p, d, k, o in zip(
                self.spatial,
                self.stride,
                self.padding,
                self.dilation,
                self.kernel,
                self.output_padding,
                strict=True,
            )
        ]
        return (self.batch, self.out_channels, *size)

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * math.prod(self.spatial) * math.prod(self.weight_shape)

    def bytes(self, element: int) -> int:
        """Input, weight and output, once each."""
        x = self.batch * self.in_channels * math.prod(self.spatial)
        return element * (x + math.prod(self.weight_shape) + math.prod(self.output_shape))


def read_problems(path: Path, names: list[str]) -> list[Problem]:
    """All problems of a file, or those named."""
    fields = Problem.__dataclass_fields__
    problems = [
        Problem(**{k: v for k, v in p.items() if k in fields}) for p in json.loads(path.read_text())["problems"]
    ]
    return named(problems, names)


def named(problems: list[Problem], names: list[str]) -> list[Problem]:
    """All of them without names."""
    known = {p.name: p for p in problems}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no problem {unknown[0]!r}; known are {', '.join(known)}")
    return [known[name] for name in names] or problems


def float64_result(problem: Problem, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The layer from its definition, o + padding = i·stride + k·dilation: for every tap a product of matrices in
    double, added where its outputs are. A few images at a time."""
    p = problem
    result = torch.empty(p.output_shape, dtype=torch.float64, device=x.device)
    # Room for every tap of every input, then what padding cuts off is cut off.
    full = [
        max((i - 1) * s + d * (k - 1) + 1, q + o)
        for i, s, d, k, q, o in zip(
            p.spatial, p.stride, p.dilation, p.kernel, p.padding, p.output_shape[2:], strict=True
        )
    ]
    images = max(1, (1 << 28) // max(1, math.prod(full) * p.out_channels))
    weights = w.double().reshape(p.groups, p.in_channels // p.groups, -1, math.prod(p.kernel))
    for first in range(0, p.batch, images):
        part = x[first : first + images].double()
        inputs = part.reshape(part.size(0), p.groups, p.in_channels // p.groups, -1)
        sums = torch.zeros(part.size(0), p.out_channels, *full, dtype=torch.float64, device=x.device)
        for index, tap in enumerate(
            torch.cartesian_prod(*[torch.arange(k) for k in p.kernel]).reshape(-1, p.dims)
        ):
            products = torch.matmul(weights[..., index].transpose(1, 2), inputs)
            places = [
                slice(k * d, k * d + (i - 1) * s + 1, s)
                for k, d, i, s in zip(tap.tolist(), p.dilation, p.spatial, p.stride, strict=True)
            ]
            sums[(slice(None), slice(None), *places)] += products.reshape(part.size(0), p.out_channels, *p.spatial)
        window = [slice(q, q + o) for q, o in zip(p.padding, p.output_shape[2:], strict=True)]
        result[first : first + images] = sums[(slice(None), slice(None), *window)]
    return result


@dataclass
class Error:
    norm: float
    """Relative in norm."""
    worst: float
    """The largest difference, over the largest output."""


def error_of(got: torch.Tensor, want: torch.Tensor) -> Error:
    """NaN anywhere makes it infinite: a poisoned output that was not written is wrong."""
    squares = norm = worst = largest = 0.0
    images = max(1, (1 << 27) // max(1, want[0].numel()))
    for g, w in zip(got.split(images), want.split(images), strict=True):
        difference = g.double() - w
        squares += difference.square().sum().item()
        norm += w.square().sum().item()
        worst = max(worst, difference.abs().max().item())
        largest = max(largest, w.abs().max().item())
    if not math.isfinite(squares):
        return Error(math.inf, math.inf)
    return Error(math.sqrt(squares / norm), worst / largest)
