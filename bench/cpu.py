#!/usr/bin/env python3
"""tconv beside PyTorch on the CPU: every problem of a list, verified against float64 first, then timed.

Run it with a Python that has PyTorch and tconv (``make bench-cpu`` sets one up)::

    python bench/cpu.py                          # all problems, forward and backward
    python bench/cpu.py kb64 depthwise1d         # some of them
    python bench/cpu.py --dtype bf16             # in bf16; fp32 is the default
    python bench/cpu.py --json bench/results/cpu.json
    python bench/cpu.py --random 60 --seed 1     # random layers of the kinds users run instead

tconv is timed twice. As a library: through its C ABI, into memory the caller keeps, the weight packed once for
forward and in every run for backward. And as PyTorch's operator replaced: through the front end, a new tensor for
every result, in memory that the front end keeps between them (TCONV_CPU_KEPT_MIB=0: fresh memory, like PyTorch's).

All run in one process, in turns, on the same tensors and threads. The batch of a problem is cut so that one run
takes about a second. The floor is the larger of bytes over the copy rate and FLOPs over the rate of PyTorch's
matrix product in the same dtype, both measured here.
"""

from __future__ import annotations

import argparse
import dataclasses
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

import library
import tconv

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "bench/gpu"))

from problems import Problem as Description  # noqa: E402
from random_layers import random_layers  # noqa: E402

TORCH = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
TCONV = {1: tconv.conv_transpose1d, 2: tconv.conv_transpose2d, 3: tconv.conv_transpose3d}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Against float64, relative in norm: fp32 sums of up to a few million products; bf16 rounds every result.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 4e-3}
# Against PyTorch's own, whose error in fp32 grows to 2e-5 and beyond over long sums.
PYTORCH_TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 2e-2}


def median_times(runs: list[Callable[[], object]], seconds: float) -> list[float]:
    """Medians over at least three rounds, the runs taking turns so that a slow moment hits all of them."""
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    started = time.perf_counter()
    while len(times[0]) < 3 or (time.perf_counter() - started < seconds * len(runs) and len(times[0]) < 50):
        for run, taken in zip(runs, times, strict=True):
            begin = time.perf_counter()
            run()
            taken.append(time.perf_counter() - begin)
    return [sorted(t)[len(t) // 2] for t in times]


def measure_ceilings(dtype: torch.dtype) -> tuple[float, float]:
    """FLOP/s of a matrix product, bytes/s (read plus written) of a copy."""
    a, b = torch.randn(3072, 3072).to(dtype), torch.randn(3072, 3072).to(dtype)
    source = torch.randn(1 << 27)
    target = torch.empty_like(source)
    gemm, copy = median_times([lambda: a @ b, lambda: target.copy_(source)], 2)
    return 2 * 3072**3 / gemm, 2 * source.nbytes / copy


def complete(entry: dict, dtype: torch.dtype) -> dict:
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
    moved = dtype.itemsize * (inputs + outputs + entry["in_channels"] * taps)
    return {**entry, "output_spatial": sizes, "flops": 2 * inputs * taps, "bytes": moved}


class Problem:
    """One layer of the list at one batch size, with its tensors."""

    def __init__(self, entry: dict, batch: int, dtype: torch.dtype) -> None:
        self.entry, self.batch, self.dims = entry, batch, entry["dims"]
        groups = entry["groups"]
        generator = torch.Generator().manual_seed(zlib.crc32(entry["name"].encode()) + batch)
        self.x = torch.randn(batch, entry["in_channels"], *entry["spatial"], generator=generator)
        fan = entry["in_channels"] * math.prod(entry["kernel"])
        shape = (entry["in_channels"], entry["out_channels"] // groups, *entry["kernel"])
        self.w = torch.randn(*shape, generator=generator) / math.sqrt(fan)
        self.gy = torch.randn(batch, entry["out_channels"], *entry["output_spatial"], generator=generator)
        self.x, self.w, self.gy = (t.to(dtype) for t in (self.x, self.w, self.gy))
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

    def library_runs(self, bound: library.BoundLayer) -> tuple[Callable, Callable]:
        """Forward and backward of the library, into tensors that are kept; unwritten ones would show as NaN."""
        y, gx, gw = (torch.full_like(t, math.nan) for t in (self.gy, self.x, self.w))
        return bound.forward(self.x, self.w, y), bound.backward(self.x, self.w, self.gy, gx, gw)

    def verify(self, exact: tuple, results: dict[str, tuple], tolerance: float) -> dict:
        """Errors of y, gx and gw of every side, relative in norm; tconv's must be within the tolerance."""
        errors = {}
        for side, tensors in results.items():
            for name, result, true in zip(("forward", "grad_input", "grad_weight"), tensors, exact, strict=True):
                error = ((result.double() - true).norm() / true.double().norm()).item()
                errors[f"{name}_{side}"] = error
                if side != "pytorch" and not error <= tolerance:
                    raise SystemExit(f"{self.entry['name']}: {name} of the {side} is off by {error:.1e}")
        return errors


def within_reach(layer: Description) -> bool:
    """Whether a random layer has outputs, work worth timing, and samples that float64 is done with in a second."""
    elements = max(layer.in_channels * math.prod(layer.spatial), math.prod(layer.output_shape[1:]))
    return min(layer.output_shape) > 0 and 1e6 <= layer.flops <= 2.5e9 * layer.batch and elements <= 3e7


def batch_for(entry: dict, gemm: float, copy: float) -> int:
    """So many samples that PyTorch, at about five times the floor, takes about a second, in 2 GB at most."""
    floor = max(entry["flops"] / gemm, entry["bytes"] / copy) / entry["batch"]
    room = 2e9 / (entry["bytes"] / entry["batch"])
    return max(1, min(entry["batch"], round(0.2 / floor), int(room)))


def measure(entry: dict, gemm: float, copy: float, options: argparse.Namespace) -> dict:
    dtype = DTYPES[options.dtype]

    def sides(problem: Problem) -> tuple[dict[str, Callable], dict[str, Callable]]:
        bound = library.BoundLayer(options.library, entry, problem.batch, options.threads, dtype)
        forward, backward = problem.library_runs(bound)
        front_end, pytorch = (lambda: problem.forward(TCONV)), (lambda: problem.forward(TORCH))
        return (
            {"library": forward, "front_end": front_end, "pytorch": pytorch},
            {"library": backward, "front_end": problem.tconv_backward, "pytorch": problem.torch_backward},
        )

    def results(forward: dict[str, Callable], backward: dict[str, Callable]) -> dict[str, tuple]:
        return {side: (forward[side](), *backward[side]()) for side in forward}

    # One sample against float64; then the batch that is timed, where float64 would take minutes, against PyTorch.
    sample = Problem(entry, 1, dtype)
    exact = (sample.forward(TORCH, double=True), *sample.torch_backward(double=True))
    errors = sample.verify(exact, results(*sides(sample)), TOLERANCE[dtype])
    del sample, exact
    problem = Problem(entry, batch_for(entry, gemm, copy), dtype)
    forward, backward = sides(problem)
    both = results(forward, backward)
    problem.verify(both.pop("pytorch"), both, PYTORCH_TOLERANCE[dtype])
    del both

    share = problem.batch / entry["batch"]
    row = {"name": entry["name"], "batch": problem.batch, "errors": errors}
    if options.random > 0:
        row["about"] = entry["about"]
    row["floor_ms"] = max(entry["flops"] * share / gemm, entry["bytes"] * share / copy) * 1e3
    for name, runs in (("forward", forward), ("backward", backward)):
        for side, taken in zip(runs, median_times(list(runs.values()), options.seconds), strict=True):
            row[f"{name}_ms" if side == "library" else f"{name}_{side}_ms"] = taken * 1e3
    return row


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
    means = {}
    for name, passes in (("forward", 1), ("backward", 2)):
        for side in ("", "_front_end"):
            speedups = [r[f"{name}_pytorch_ms"] / r[f"{name}{side}_ms"] for r in rows]
            means[f"{name}_speedup{side}"] = geometric_mean(speedups)
            means[f"{name}_worst{side}"] = min(speedups)
            means[f"{name}_ahead{side}"] = sum(s >= 1 for s in speedups) / len(speedups)
        for side in ("", "_front_end", "_pytorch"):
            over = [r[f"{name}{side}_ms"] / r["floor_ms"] / passes for r in rows]
            means[f"{name}_over_floor{side}"] = geometric_mean(over)
    return means


COLUMNS = f"{'tconv':>9} {'PyTorch':>9} {'speed-up':>8} {'x floor':>7} {'front end':>9} {'speed-up':>8}"
HEADER = (
    f"{'':<24} | {'forward':<55} {'':>7} | backward\n"
    f"{'problem':<18} {'batch':>5} | {COLUMNS} {'error':>7} | {COLUMNS}"
)


def line(r: dict) -> str:
    def columns(name: str, passes: int) -> str:
        ours, front_end, theirs = (r[f"{name}{side}_ms"] for side in ("", "_front_end", "_pytorch"))
        return (
            f"{ours:>6.1f} ms {theirs:>6.1f} ms {theirs / ours:>7.2f}x {ours / r['floor_ms'] / passes:>7.2f} "
            f"{front_end:>6.1f} ms {theirs / front_end:>7.2f}x"
        )

    error = r["errors"]["forward_library"]
    return f"{r['name']:<18} {r['batch']:>5} | {columns('forward', 1)} {error:>7.0e} | {columns('backward', 2)}"


def describe(means: dict, name: str) -> str:
    return (
        f"{name + ':':<9} {means[f'{name}_speedup']:.2f}x PyTorch (geomean), worst {means[f'{name}_worst']:.2f}x, "
        f"ahead on {means[f'{name}_ahead']:.0%}; "
        f"{means[f'{name}_over_floor']:.2f}x the floor (PyTorch {means[f'{name}_over_floor_pytorch']:.2f}x); "
        f"through the front end {means[f'{name}_speedup_front_end']:.2f}x, "
        f"worst {means[f'{name}_worst_front_end']:.2f}x"
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
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N random layers instead")
    parser.add_argument("--seed", type=int, default=1, help="of the random layers, default 1")
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help="default fp32")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1), help="default 2")
    parser.add_argument("--seconds", type=float, default=2, help="to spend on each time")
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()

    dtype = DTYPES[options.dtype]
    if options.random > 0:
        drawn = random_layers(options.random, options.seed, within_reach)
        descriptions = [{**dataclasses.asdict(layer), "about": str(layer)} for layer in drawn]
    else:
        descriptions = json.loads(options.problems.read_text())["problems"]
    entries = [complete(e, dtype) for e in descriptions]
    unknown = set(options.names) - {e["name"] for e in entries}
    if unknown:
        parser.error(f"no such problem: {', '.join(sorted(unknown))}")
    entries = [e for e in entries if not options.names or e["name"] in options.names]

    torch.set_num_threads(options.threads)
    options.library = library.load()
    with torch.no_grad():
        gemm, copy = measure_ceilings(dtype)
        print(f"{processor()}, {options.threads} threads, PyTorch {torch.__version__}, {options.dtype}")
        print(f"ceilings: matrix product {gemm / 1e9:.0f} GFLOP/s, copy {copy / 1e9:.1f} GB/s\n\n{HEADER}")
        rows = []
        for i, entry in enumerate(entries):
            if sys.stderr.isatty():
                print(f"\r[{i + 1}/{len(entries)}] {entry['name']} … ", end="", file=sys.stderr, flush=True)
            rows.append(measure(entry, gemm, copy, options))
            if sys.stderr.isatty():
                print("\r\033[K", end="", file=sys.stderr, flush=True)
            print(line(rows[-1]), flush=True)
        lengths = measure_lengths()

    means = summary(rows)
    print(
        f"\n{describe(means, 'forward')}\n{describe(means, 'backward')}\n"
        f"twenty lengths in a row cost {lengths['different_over_same']:.2f}x one length repeated, per element"
    )
    if options.json:
        record = {
            "processor": processor(), "dtype": options.dtype, "threads": options.threads,
            "torch": torch.__version__, "tconv": tconv.__version__,
            **({"random": options.random, "seed": options.seed} if options.random > 0 else {}),
            "commit": commit(), "date": datetime.date.today().isoformat(),
            "gemm_flops": gemm, "copy_bytes": copy, "summary": means, "lengths": lengths, "problems": rows,
        }  # fmt: skip
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
