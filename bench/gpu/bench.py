#!/usr/bin/env python3
"""tconv beside PyTorch on the GPU: every problem in every precision, verified against float64 first, then timed.

    python3 bench/gpu/bench.py --library build/libtconv.so
    python3 bench/gpu/bench.py --library build/libtconv.so kb64 depthwise1d --precisions tf32,fp32,fp64
    python3 bench/gpu/bench.py --library build/libtconv.so --json bench/results/gpu.json

Needs PyTorch with CUDA; talks to tconv through its C ABI, weights packed once. PyTorch is timed as it comes, and
autotuned (cudnn.benchmark) on the same tensors and on channels_last ones; tconv on channels_last ones as well.
Whatever is timed is verified, whole outputs on fresh random data. Tensors that would fit the L2 take turns with
copies of themselves. Times are the GPU's, medians of events; layers under 0.2 ms are replayed as a CUDA graph, and
the time of a call from Python stands beside.

The floor of a problem is the larger of its bytes over the copy rate and its FLOPs over cuBLAS's rate in its
precision, both measured in the run. Exit status 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from problems import Error, Problem, error_of, float64_result, read_problems
from timing import SMALL_MS, ceilings, graph_ms, median_ms, rotated

from library import BoundLayer, Library

ROOT = Path(__file__).resolve().parents[2]
PRECISIONS = {
    "tf32": torch.float32,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
}
BARS = {"tf32": 4e-4, "fp32": 1e-6, "fp16": 1e-3, "bf16": 8e-3, "fp64": 1e-13}


def memory_format(dims: int, last: bool) -> torch.memory_format:
    if not last:
        return torch.contiguous_format
    return torch.channels_last if dims == 2 else torch.channels_last_3d


def right(error: Error, precision: str, theirs: Error) -> bool:
    """Within the bar of the precision, no element far off, and in fp32 as good as cuDNN."""
    bar = BARS[precision]
    as_good = precision != "fp32" or error.norm <= 1.5 * theirs.norm
    return error.norm <= bar and as_good and error.worst <= 50 * max(error.norm, 1e-3 * bar)


class Data:
    """A problem's tensors: as many pairs of input and output as it takes to be larger than the L2."""

    def __init__(self, problem: Problem, dtype: torch.dtype, seed: int) -> None:
        self.problem = problem
        generator = torch.Generator("cuda").manual_seed(seed)

        def uniform(shape: Iterable[int], scale: float) -> torch.Tensor:
            values = torch.rand(tuple(shape), device="cuda", generator=generator, dtype=torch.float32)
            return values.mul_(2 * scale).sub_(scale).to(dtype)

        products = problem.in_channels // problem.groups * math.prod(problem.kernel)
        self.x = uniform((problem.batch, problem.in_channels, *problem.spatial), 1)
        self.w = uniform(problem.weight_shape, products**-0.5)
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.copies = math.ceil(3 * l2 / problem.bytes(self.x.element_size()))

    def inputs(self, last: bool) -> list[torch.Tensor]:
        x = self.x.contiguous(memory_format=memory_format(self.problem.dims, last))
        return [x, *(x.clone() for _ in range(self.copies - 1))]

    def outputs(self, last: bool) -> list[torch.Tensor]:
        """Poisoned."""
        form = memory_format(self.problem.dims, last)
        empty = functools.partial(torch.empty, self.problem.output_shape, dtype=self.x.dtype, device="cuda")
        return [empty(memory_format=form).fill_(math.nan) for _ in range(self.copies)]


def gpu_and_call_ms(runs: list[Callable[[], object]]) -> tuple[float, float]:
    """The GPU's time of a run, and the time of a call. They differ where a run is short."""
    call = median_ms(rotated(runs))
    return (graph_ms(runs) if call < SMALL_MS else call), call


def measure_tconv(layer: BoundLayer, data: Data, last: bool, want: torch.Tensor) -> tuple[Error, float, float]:
    layer.pack(data.w)
    xs, ys = data.inputs(last), data.outputs(last)
    layer.run(xs[0], ys[0])
    error = error_of(ys[0], want)
    return (error, *gpu_and_call_ms([functools.partial(layer.run, x, y) for x, y in zip(xs, ys, strict=True)]))


def measure_pytorch(data: Data, last: bool, tuned: bool, want: torch.Tensor) -> tuple[Error, float, float]:
    p = data.problem
    torch.backends.cudnn.benchmark = tuned
    conv = getattr(torch.nn.functional, f"conv_transpose{p.dims}d")
    w = data.w.contiguous(memory_format=memory_format(p.dims, last))
    keywords = {
        "stride": p.stride,
        "padding": p.padding,
        "output_padding": p.output_padding,
        "groups": p.groups,
        "dilation": p.dilation,
    }
    runs = [functools.partial(conv, x, w, None, **keywords) for x in data.inputs(last)]
    error = error_of(runs[0](), want)
    return (error, *gpu_and_call_ms(runs))


def measure(
    problem: Problem, precision: str, layers: dict[bool, BoundLayer], data: Data, want: torch.Tensor, rates: dict
) -> dict:
    tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    error, ms, call_ms = measure_tconv(layers[False], data, False, want)
    their_error, their_ms, their_call_ms = measure_pytorch(data, False, False, want)
    tuned_error, tuned_ms, _ = measure_pytorch(data, False, True, want)
    bytes_, flops = problem.bytes(data.x.element_size()), problem.flops
    memory_ms, matrix_ms = bytes_ / rates["copy_TBs"] / 1e9, flops / rates["gemm_" + precision] / 1e9
    row = {
        "name": problem.name,
        "precision": precision,
        "right": right(error, precision, their_error),
        "error": error.norm,
        "worst": error.worst,
        "pytorch_error": their_error.norm,
        "pytorch_tuned_error": tuned_error.norm,
        "tconv_ms": ms,
        "pytorch_ms": their_ms,
        "pytorch_tuned_ms": tuned_ms,
        "floor_ms": max(memory_ms, matrix_ms),
        "bound": "memory" if memory_ms > matrix_ms else "matrix",
    }
    if call_ms < SMALL_MS:
        row |= {"tconv_call_ms": call_ms, "pytorch_call_ms": their_call_ms}
    if problem.dims > 1:
        last_error, row["tconv_last_ms"], _ = measure_tconv(layers[True], data, True, want)
        their_last_error, row["pytorch_tuned_last_ms"], _ = measure_pytorch(data, True, True, want)
        row |= {"last_error": last_error.norm, "pytorch_last_error": their_last_error.norm}
        row["right"] = row["right"] and right(last_error, precision, their_last_error)
    row["pytorch_best_ms"] = min(their_ms, tuned_ms, row.get("pytorch_tuned_last_ms", math.inf))
    row["tconv_best_ms"] = min(ms, row.get("tconv_last_ms", math.inf))
    return row


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs))


def means_of(rows: list[dict]) -> dict[str, float]:
    def mean(above: str, below: str) -> float:
        return geometric_mean(r[above] / r[below] for r in rows)

    return {
        "floor": mean("tconv_ms", "floor_ms"),
        "pytorch_floor": mean("pytorch_ms", "floor_ms"),
        "default": mean("pytorch_ms", "tconv_ms"),
        "tuned": mean("pytorch_tuned_ms", "tconv_ms"),
        "best": mean("pytorch_best_ms", "tconv_ms"),
    }


def table(rows: list[dict], precision: str) -> str:
    lines = [
        f"{precision:<18} {'tconv':>9} {'floor':>9} {'x floor':>8} {'PyTorch':>9} {'default':>8} {'tuned':>7} "
        f"{'best':>6}  {'last':>9} {'PyTorch':>9} {'speed':>6}  error (PyTorch's)"
    ]
    for r in (r for r in rows if r["precision"] == precision):
        t = r["tconv_ms"]
        last = " " * 26
        if "tconv_last_ms" in r:
            ours, theirs = r["tconv_last_ms"], r["pytorch_tuned_last_ms"]
            last = f"{ours:9.4f} {theirs:9.4f} {theirs / ours:6.2f}"
        lines.append(
            f"{r['name']:<18} {t:9.4f} {r['floor_ms']:9.4f} {t / r['floor_ms']:8.2f} {r['pytorch_ms']:9.4f} "
            f"{r['pytorch_ms'] / t:8.2f} {r['pytorch_tuned_ms'] / t:7.2f} {r['pytorch_best_ms'] / t:6.2f}  {last}"
            f"  {r['error']:.1e} ({r['pytorch_error']:.1e}){'' if r['right'] else '  WRONG'}"
        )
    return "\n".join(lines)


def mean_line(title: str, means: dict[str, float]) -> str:
    return (
        f"geometric mean, {title}: {means['floor']:.2f}x the floor (PyTorch {means['pytorch_floor']:.2f}x); "
        f"{means['default']:.2f}x as fast as PyTorch's default, {means['tuned']:.2f}x as autotuned on the same "
        f"tensors, {means['best']:.2f}x as its best"
    )


def commit() -> str | None:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def plan_all(
    library: Library, problems: list[Problem], precisions: list[str]
) -> dict[tuple[str, str], dict[bool, BoundLayer]]:
    """Every layer planned and its kernels compiled, on all cores."""
    torch.zeros(1, device="cuda")  # the context all of them share
    keys = [
        (p, q, last) for p in problems for q in precisions for last in ((False, True) if p.dims > 1 else (False,))
    ]
    with ThreadPoolExecutor() as pool:
        made = pool.map(lambda k: BoundLayer(library, k[0], PRECISIONS[k[1]], k[1] == "tf32", k[2]), keys)
        layers: dict[tuple[str, str], dict[bool, BoundLayer]] = {}
        for (problem, precision, last), layer in zip(keys, made, strict=True):
            layers.setdefault((problem.name, precision), {})[last] = layer
    return layers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="NAME", help="problems to run; all without")
    parser.add_argument("--library", required=True, type=Path, help="libtconv.so")
    parser.add_argument("--file", type=Path, default=ROOT / "bench" / "problems.json")
    parser.add_argument("--precisions", default="tf32,fp32,fp16,bf16", help="of tf32, fp32, fp16, bf16, fp64")
    parser.add_argument("--json", type=Path, help="where the results go; written after every problem")
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 31))
    options = parser.parse_args()
    precisions = options.precisions.split(",")
    if unknown := set(precisions) - set(PRECISIONS):
        parser.error(f"no precision {unknown.pop()!r}; known are {', '.join(PRECISIONS)}")
    problems = read_problems(options.file, options.problems)

    started = time.perf_counter()
    library = Library(options.library)
    layers = plan_all(library, problems, precisions)
    planned = time.perf_counter()
    rates = ceilings({name: PRECISIONS[name] for name in precisions})
    record = {
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "tconv": library.version(),
        "seed": options.seed,
        "compile_s": round(planned - started, 1),
        "rates": rates,
        "rows": [],
    }
    rows: list[dict] = record["rows"]
    end = "\r" if sys.stderr.isatty() else "\n"
    for number, problem in enumerate(problems, 1):
        data, want = None, None
        for precision in precisions:
            elapsed = time.perf_counter() - started
            print(
                f"[{number}/{len(problems)}] {elapsed:4.0f} s  {problem.name} {precision}   ",
                end=end,
                file=sys.stderr,
            )
            if data is None or data.x.dtype != PRECISIONS[precision]:
                data = want = None
                data = Data(problem, PRECISIONS[precision], options.seed + number)
                want = float64_result(problem, data.x, data.w)
            rows.append(measure(problem, precision, layers[problem.name, precision], data, want, rates))
        del data, want
        torch.cuda.empty_cache()
        if options.json:
            options.json.write_text(json.dumps(record, indent=1) + "\n")

    print(", ".join(f"{name} {rate:.2f}" for name, rate in rates.items()))
    record["means"] = {}
    for precision in precisions:
        print("\n" + table(rows, precision))
        for title, prefix in (("kb*", "kb"), ("all", "")):
            chosen = [r for r in rows if r["precision"] == precision and r["name"].startswith(prefix)]
            if not chosen:
                continue
            means = record["means"].setdefault(precision, {})[title] = means_of(chosen)
            print(mean_line(title, means))
    record["seconds"] = round(time.perf_counter() - started, 1)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    wrong = [f"{r['name']} {r['precision']}" for r in rows if not r["right"]]
    print(
        f"\n{len(rows)} results in {record['seconds']:.0f} s, "
        + (f"WRONG: {', '.join(wrong)}" if wrong else "all right")
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
