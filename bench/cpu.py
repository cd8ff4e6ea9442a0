#!/usr/bin/env python3
"""tconv beside PyTorch on the CPU: every problem of a list, verified against float64 first, then timed.

Run it with a Python that has PyTorch and tconv (``make bench-cpu`` sets one up)::

    python bench/cpu.py                          # all problems, forward and backward
    python bench/cpu.py kb64 depthwise1d         # some of them
    python bench/cpu.py --json bench/results/cpu.json

Both sides run in one process, in turns, on the same tensors and threads. The batch of a problem is cut so
that one run takes about a second. The floor is the larger of bytes over the copy rate and FLOPs over the sgemm
rate, both measured here.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional

import tconv

ROOT = Path(__file__).resolve().parent.parent
TORCH = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
TCONV = {1: tconv.conv_transpose1d, 2: tconv.conv_transpose2d, 3: tconv.conv_transpose3d}
TOLERANCE = 2e-5  # relative in norm; fp32 sums of up to a few million products


def median_times(runs: list[Callable[[], object]], seconds: float) -> list[float]:
    """Medians over at least three rounds, the runs taking turns so that a slow moment hits all of them."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    started = time.perf_counter()
    while len(times[0]) < 3 or (time.perf_counter() - started < seconds and len(times[0]) < 50):
        for run, taken in zip(runs, times, strict=True):
            begin = time.perf_counter()
            run()
            taken.append(time.perf_counter() - begin)
    return [sorted(t)[len(t) // 2] for t in times]


def measure_ceilings() -> tuple[float, float]:
    """FLOP/s of sgemm, bytes/s (read plus written) of a copy."""
    a, b = torch.randn(3072, 3072), torch.randn(3072, 3072)
    source = torch.randn(1 << 27)
    target = torch.empty_like(source)
    gemm, copy = median_times([lambda: a @ b, lambda: target.copy_(source)], 2)
    return 2 * 3072**3 / gemm, 2 * source.nbytes / copy


def complete(entry: dict) -> dict:
    """The entry with what follows from it: output size, FLOPs, and the bytes that must move once."""
    sizes = [
        (i - 1) * s - 2 * p + d * (k - 1) + op + 1
        for i, s, p, d, k, op in zip(
            *(entry[key] for key in ("spatial", "stride", "padding", "dilation", "kernel", "output_padding")),
            strict=True,
        )
    ]
    inputs = entry["batch"] * entry["in_channels"] * math.prod(entry["spatial"])
    outputs = entry["batch"] * entry["out_channels"] * math.prod(sizes)
    taps = entry["out_channels"] // entry["groups"] * math.prod(entry["kernel"])
    moved = 4 * (inputs + outputs + entry["in_channels"] * taps)
    return {**entry, "output_spatial": sizes, "flops": 2 * inputs * taps, "bytes_fp32": moved}


class Problem:
    """One layer of the list at one batch size, with its tensors."""

    def __init__(self, entry: dict, batch: int) -> None:
        self.entry, self.batch, self.dims = entry, batch, entry["dims"]
        groups = entry["groups"]
        generator = torch.Generator().manual_seed(zlib.crc32(entry["name"].encode()) + batch)
        self.x = torch.randn(batch, entry["in_channels"], *entry["spatial"], generator=generator)
        fan = entry["in_channels"] * math.prod(entry["kernel"])
        shape = (entry["in_channels"], entry["out_channels"] // groups, *entry["kernel"])
        self.w = torch.randn(*shape, generator=generator) / math.sqrt(fan)
        self.gy = torch.randn(batch, entry["out_channels"], *entry["output_spatial"], generator=generator)
        self.arguments = (entry["stride"], entry["padding"], entry["output_padding"], groups, entry["dilation"])
        self.geometry = [*entry["stride"], *entry["padding"], *entry["output_padding"], *entry["dilation"]]

    def forward(self, which: dict, double: bool = False) -> torch.Tensor:
        x, w = (self.x.double(), self.w.double()) if double else (self.x, self.w)
        return which[self.dims](x, w, None, *self.arguments)

    def torch_backward(self, double: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        tensors = (self.gy, self.x, self.w)
        e = self.entry
        if double:
            tensors = tuple(t.double() for t in tensors)
        gx, gw, _ = torch.ops.aten.convolution_backward(
            *tensors, None, e["stride"], e["padding"], e["dilation"], True, e["output_padding"], e["groups"],
            (True, True, False),
        )  # fmt: skip
        return gx, gw

    def tconv_backward(self) -> tuple[torch.Tensor, torch.Tensor]:
        groups = self.entry["groups"]
        gx = torch.ops.tconv.conv_transpose_grad_input(self.gy, self.w, self.geometry, groups, False)
        gw = torch.ops.tconv.conv_transpose_grad_weight(
            self.x, self.gy, self.entry["kernel"], self.geometry, groups, False
        )
        return gx, gw

    def verify(self) -> dict[str, float]:
        """Errors of both sides against float64, relative in norm; tconv's must be small."""

        def error(result: torch.Tensor, exact: torch.Tensor) -> float:
            return ((result.double() - exact).norm() / exact.norm()).item()

        exact, (gx, gw) = self.forward(TORCH, double=True), self.torch_backward(double=True)
        ours, theirs = self.tconv_backward(), self.torch_backward()
        errors = {
            "forward": error(self.forward(TCONV), exact),
            "forward_pytorch": error(self.forward(TORCH), exact),
            "grad_input": error(ours[0], gx),
            "grad_input_pytorch": error(theirs[0], gx),
            "grad_weight": error(ours[1], gw),
            "grad_weight_pytorch": error(theirs[1], gw),
        }
        for name in ("forward", "grad_input", "grad_weight"):
            if not errors[name] <= TOLERANCE:
                raise SystemExit(f"{self.entry['name']}: {name} is off by {errors[name]:.1e} against float64")
        return errors


def batch_for(entry: dict, gemm: float, copy: float) -> int:
    """So many samples that PyTorch, at about five times the floor, takes about a second."""
    floor = max(entry["flops"] / gemm, entry["bytes_fp32"] / copy) / entry["batch"]
    return max(1, min(entry["batch"], round(0.2 / floor)))


def measure(entry: dict, gemm: float, copy: float, seconds: float) -> dict:
    errors = Problem(entry, 1).verify()
    problem = Problem(entry, batch_for(entry, gemm, copy))
    share = problem.batch / entry["batch"]
    floor = max(entry["flops"] * share / gemm, entry["bytes_fp32"] * share / copy)
    ours, theirs = median_times([lambda: problem.forward(TCONV), lambda: problem.forward(TORCH)], seconds)
    back, their_back = median_times([problem.tconv_backward, problem.torch_backward], seconds)
    return {
        "name": entry["name"], "batch": problem.batch, "floor_ms": floor * 1e3,
        "forward_ms": ours * 1e3, "forward_pytorch_ms": theirs * 1e3,
        "backward_ms": back * 1e3, "backward_pytorch_ms": their_back * 1e3, "errors": errors,
    }  # fmt: skip


def measure_lengths() -> dict:
    """Time per element of twenty different lengths in a row, over that of one length again and again."""
    w = torch.randn(128, 64, 16) / 30
    lengths = [2000 + 37 * i for i in range(20)]
    inputs = [torch.randn(1, 128, n) for n in lengths]
    middle = torch.randn(1, 128, sum(lengths) // len(lengths))
    different, same = median_times(
        [
            lambda: [tconv.conv_transpose1d(x, w, None, 8, 4) for x in inputs],
            lambda: [tconv.conv_transpose1d(middle, w, None, 8, 4) for _ in inputs],
        ],
        2,
    )
    return {"different_over_same": different / same * (middle.shape[2] * len(lengths)) / sum(lengths)}


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def summary(rows: list[dict]) -> dict:
    def over_floor(key: str, passes: int) -> float:
        return geometric_mean([r[key] / r["floor_ms"] / passes for r in rows])

    forward = [r["forward_pytorch_ms"] / r["forward_ms"] for r in rows]
    backward = [r["backward_pytorch_ms"] / r["backward_ms"] for r in rows]
    return {
        "forward_speedup": geometric_mean(forward), "forward_worst": min(forward),
        "backward_speedup": geometric_mean(backward), "backward_worst": min(backward),
        "forward_over_floor": over_floor("forward_ms", 1),
        "forward_over_floor_pytorch": over_floor("forward_pytorch_ms", 1),
        "backward_over_floor": over_floor("backward_ms", 2),
        "backward_over_floor_pytorch": over_floor("backward_pytorch_ms", 2),
    }  # fmt: skip


HEADER = (
    f"{'problem':<18} {'batch':>5} | {'forward':>9} {'PyTorch':>9} {'speed-up':>8} {'x floor':>7} {'error':>7} | "
    f"{'backward':>9} {'PyTorch':>9} {'speed-up':>8} {'x floor':>7}"
)


def line(r: dict) -> str:
    return (
        f"{r['name']:<18} {r['batch']:>5} | {r['forward_ms']:>6.1f} ms {r['forward_pytorch_ms']:>6.1f} ms "
        f"{r['forward_pytorch_ms'] / r['forward_ms']:>7.2f}x {r['forward_ms'] / r['floor_ms']:>7.2f} "
        f"{r['errors']['forward']:>7.0e} | {r['backward_ms']:>6.1f} ms {r['backward_pytorch_ms']:>6.1f} ms "
        f"{r['backward_pytorch_ms'] / r['backward_ms']:>7.2f}x {r['backward_ms'] / r['floor_ms'] / 2:>7.2f}"
    )


def processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
        return next(row.split(":", 1)[1].strip() for row in text.splitlines() if row.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def commit() -> str:
    try:
        ask = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="problems to run (default: all)")
    parser.add_argument("--problems", type=Path, default=ROOT / "bench/problems.json", help="list of problems")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="default 2")
    parser.add_argument("--seconds", type=float, default=4, help="to spend on each measurement")
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()

    entries = [complete(e) for e in json.loads(options.problems.read_text())["problems"]]
    unknown = set(options.names) - {e["name"] for e in entries}
    if unknown:
        parser.error(f"no such problem: {', '.join(sorted(unknown))}")
    entries = [e for e in entries if not options.names or e["name"] in options.names]

    torch.set_num_threads(options.threads)
    with torch.no_grad():
        gemm, copy = measure_ceilings()
        print(f"{processor()}, {options.threads} threads, PyTorch {torch.__version__}")
        print(f"ceilings: sgemm {gemm / 1e9:.0f} GFLOP/s, copy {copy / 1e9:.1f} GB/s\n\n{HEADER}")
        rows = []
        for i, entry in enumerate(entries):
            if sys.stderr.isatty():
                print(f"\r[{i + 1}/{len(entries)}] {entry['name']} … ", end="", file=sys.stderr, flush=True)
            rows.append(measure(entry, gemm, copy, options.seconds))
            if sys.stderr.isatty():
                print("\r\033[K", end="", file=sys.stderr, flush=True)
            print(line(rows[-1]), flush=True)
        lengths = measure_lengths()

    means = summary(rows)
    print(
        f"\nforward:  {means['forward_speedup']:.2f}x PyTorch (geomean), worst {means['forward_worst']:.2f}x; "
        f"{means['forward_over_floor']:.2f}x the floor (PyTorch {means['forward_over_floor_pytorch']:.2f}x)\n"
        f"backward: {means['backward_speedup']:.2f}x PyTorch, worst {means['backward_worst']:.2f}x; "
        f"{means['backward_over_floor']:.2f}x the floor (PyTorch {means['backward_over_floor_pytorch']:.2f}x)\n"
        f"twenty lengths in a row cost {lengths['different_over_same']:.2f}x one length repeated, per element"
    )
    if options.json:
        record = {
            "processor": processor(), "threads": options.threads, "torch": torch.__version__,
            "tconv": tconv.__version__, "commit": commit(), "date": datetime.date.today().isoformat(),
            "sgemm_flops": gemm, "copy_bytes": copy, "summary": means, "lengths": lengths, "problems": rows,
        }  # fmt: skip
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
