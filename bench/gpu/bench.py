#!/usr/bin/env python3
"""tconv beside PyTorch on the GPU: every problem in every precision, verified against float64 first, then timed.

    python3 bench/gpu/bench.py --library build/libtconv.so
    python3 bench/gpu/bench.py --library build/libtconv.so kb64 depthwise1d --precisions tf32,fp32,fp64
    python3 bench/gpu/bench.py --library build/libtconv.so --json bench/results/gpu.json
    python3 bench/gpu/bench.py --library build/libtconv.so --random 200 --seed 1 --precisions tf32,fp16

Needs PyTorch with CUDA; talks to tconv through its C ABI, weights packed once. PyTorch is timed as it comes, and
autotuned (cudnn.benchmark) on the same tensors and on channels_last ones; tconv on channels_last ones as well.
Whatever is timed is verified, whole outputs on fresh random data. Tensors that would fit the L2 take turns with
copies of themselves. Times are the GPU's, medians of events; layers under 0.2 ms are replayed as a CUDA graph, and
the time of a call from Python stands beside.

The floor of a problem is the larger of its bytes over the copy rate and its FLOPs over cuBLAS's rate in its
precision, both measured in the run. Exit status 1 if anything is wrong.

--random N takes N random layers of the kinds users run instead (random_layers.py), with fewer repetitions, and
ends with a summary: geometric means and the share of layers ahead of PyTorch, by kind, and the layers behind,
worst first, with the kernels that ran. Names choose among the N.
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
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from kernels import kernel_names
from problems import PRECISIONS, Error, Problem, error_of, float64_result, memory_format, named, read_problems
from random_layers import random_layers
from report import SPEEDS, behind_lines, kernel_key, mean_line, means_of, summary_of, summary_table, table
from timing import BRIEF, FULL, SMALL_MS, Effort, ceilings, gpu_and_call_ms

from library import BoundLayer, Library

ROOT = Path(__file__).resolve().parents[2]
BARS = {"tf32": 4e-4, "fp32": 1e-6, "fp16": 1e-3, "bf16": 8e-3, "fp64": 1e-13}


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


def measure_tconv(
    layer: BoundLayer, data: Data, last: bool, want: torch.Tensor, effort: Effort
) -> tuple[Error, float, float]:
    layer.pack(data.w)
    xs, ys = data.inputs(last), data.outputs(last)
    layer.run(xs[0], ys[0])
    error = error_of(ys[0], want)
    runs = [functools.partial(layer.run, x, y) for x, y in zip(xs, ys, strict=True)]
    return (error, *gpu_and_call_ms(runs, effort))


def measure_pytorch(
    data: Data, last: bool, tuned: bool, want: torch.Tensor, effort: Effort
) -> tuple[Error, float, float]:
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
    return (error, *gpu_and_call_ms(runs, effort))


def measure(
    problem: Problem,
    precision: str,
    layers: dict[bool, BoundLayer],
    data: Data,
    want: torch.Tensor,
    rates: dict,
    effort: Effort,
) -> dict:
    started = time.perf_counter()
    tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    error, ms, call_ms = measure_tconv(layers[False], data, False, want, effort)
    their_error, their_ms, their_call_ms = measure_pytorch(data, False, False, want, effort)
    bytes_, flops = problem.bytes(data.x.element_size()), problem.flops
    memory_ms, matrix_ms = bytes_ / rates["copy_TBs"] / 1e9, flops / rates["gemm_" + precision] / 1e9
    row = {
        "name": problem.name,
        "precision": precision,
        "right": right(error, precision, their_error),
        "error": error.norm,
        "worst": error.worst,
        "pytorch_error": their_error.norm,
        "tconv_ms": ms,
        "pytorch_ms": their_ms,
        "floor_ms": max(memory_ms, matrix_ms),
        "bound": "memory" if memory_ms > matrix_ms else "matrix",
    }

    def in_time() -> bool:
        return time.perf_counter() - started < effort.tuning_s

    if in_time():
        tuned_error, row["pytorch_tuned_ms"], _ = measure_pytorch(data, False, True, want, effort)
        row["pytorch_tuned_error"] = tuned_error.norm
    if call_ms < SMALL_MS:
        row |= {"tconv_call_ms": call_ms, "pytorch_call_ms": their_call_ms}
    if problem.dims > 1:
        last_error, row["tconv_last_ms"], _ = measure_tconv(layers[True], data, True, want, effort)
        row["last_error"] = last_error.norm
        their_last_error = their_error
        if in_time():
            their_last_error, row["pytorch_tuned_last_ms"], _ = measure_pytorch(data, True, True, want, effort)
            row["pytorch_last_error"] = their_last_error.norm
        row["right"] = row["right"] and right(last_error, precision, their_last_error)
    theirs = ["pytorch_ms", "pytorch_tuned_ms", *(["pytorch_tuned_last_ms"] if problem.dims > 1 else [])]
    if all(key in row for key in theirs):
        row["pytorch_best_ms"] = min(row[key] for key in theirs)
    row["tconv_best_ms"] = min(ms, row.get("tconv_last_ms", math.inf))
    return row


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

    def planned(key: tuple[Problem, str, bool]) -> BoundLayer:
        problem, precision, last = key
        try:
            return BoundLayer(library, problem, PRECISIONS[precision], precision == "tf32", last)
        except RuntimeError as error:
            raise RuntimeError(f"{problem.name} {precision}, channels_last {last}, {problem}: {error}") from error

    with ThreadPoolExecutor() as pool:
        made = pool.map(planned, keys)
        layers: dict[tuple[str, str], dict[bool, BoundLayer]] = {}
        for number, ((problem, precision, last), layer) in enumerate(zip(keys, made, strict=True), 1):
            layers.setdefault((problem.name, precision), {})[last] = layer
            if number % 50 == 0:
                progress(f"[{number}/{len(keys)}] planned")
    return layers


def progress(text: str) -> None:
    print(text + "   ", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)


def measure_all(
    problems: list[Problem],
    precisions: list[str],
    layers: dict[tuple[str, str], dict[bool, BoundLayer]],
    record: dict,
    options: argparse.Namespace,
    started: float,
) -> None:
    """Appends the rows to the record, and keeps its file up to date. A random layer that fails is a row that is
    not right: those that follow are measured all the same."""
    rows: list[dict] = record["rows"]
    for number, problem in enumerate(problems, 1):
        if time.perf_counter() - started > options.seconds:
            print(f"{number - 1} of {len(problems)} layers fit into {options.seconds:.0f} s", file=sys.stderr)
            break
        data, want = None, None
        for precision in precisions:
            elapsed = time.perf_counter() - started
            progress(f"[{number}/{len(problems)}] {elapsed:4.0f} s  {problem.name} {precision}")
            bound = layers.pop((problem.name, precision))
            try:
                if data is None or data.x.dtype != PRECISIONS[precision]:
                    data = want = None
                    data = Data(problem, PRECISIONS[precision], options.seed + number)
                    want = float64_result(problem, data.x, data.w)
                row = measure(problem, precision, bound, data, want, record["rates"], options.effort)
            except RuntimeError as error:
                if not options.random:
                    raise
                data = want = None
                message = str(error).strip().splitlines()[0]
                row = {"name": problem.name, "precision": precision, "right": False, "failed": message}
                print(f"{problem.name} {precision} failed: {message}\n  {problem}", file=sys.stderr)
            if options.random:
                row["layer"] = str(problem)
            rows.append(row)
        del data, want
        torch.cuda.empty_cache()
        if options.json:
            write(record, options.json)


def write(record: dict, path: Path) -> None:
    path.write_text(json.dumps(record, indent=1) + "\n")


def report_problems(record: dict, precisions: list[str]) -> None:
    """Prints the tables, and adds the means to the record."""
    rows = record["rows"]
    record["means"] = {}
    for precision in precisions:
        print("\n" + table(rows, precision))
        for title, prefix in (("kb*", "kb"), ("all", "")):
            chosen = [r for r in rows if r["precision"] == precision and r["name"].startswith(prefix)]
            if not chosen:
                continue
            means = record["means"].setdefault(precision, {})[title] = means_of(chosen)
            print(mean_line(title, means))


def report_random(record: dict, precisions: list[str]) -> None:
    """Prints the summaries and the layers that are behind, and adds the summaries to the record."""
    record["summary"] = {}
    print("\nHow many times as fast as PyTorch, geometric means, and the share of layers that are faster:")
    print("default: PyTorch as it comes; tuned: autotuned on the same tensors; best: its best, channels_last too;")
    print("last: both on channels_last tensors, PyTorch autotuned")
    for precision in precisions:
        rows = [r for r in record["rows"] if r["precision"] == precision]
        summary = record["summary"][precision] = summary_of(rows)
        print("\n" + summary_table(summary, precision))
        if slow := [r["name"] for r in rows if "tconv_ms" in r and "pytorch_best_ms" not in r]:
            print(f"not autotuned in every layout, which took too long, so without a best: {', '.join(slow)}")
        for name in ("best", "last"):
            if lines := behind_lines(rows, name, most=25):
                theirs, ours = SPEEDS[name]
                print(f"\n{precision}, behind by {name!r}: speed, {ours}, {theirs}, layer, kernel")
                print("\n".join(lines))


def add_kernels(record: dict, problems: list[Problem], library: Path) -> None:
    """The kernels that the times of rows are of."""
    known = {p.name: p for p in problems}
    wanted = [(row, name) for name in ("best", "last") for row in record["rows"] if SPEEDS[name][1] in row]
    questions = [(known[row["name"]], row["precision"], name == "last") for row, name in wanted]
    try:
        for (row, name), kernel in zip(wanted, kernel_names(library, questions), strict=True):
            row[kernel_key(name)] = kernel
    except RuntimeError as error:
        print(f"no names of kernels: {error}", file=sys.stderr)


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="NAME", help="problems to run; all without")
    parser.add_argument("--library", required=True, type=Path, help="libtconv.so")
    parser.add_argument("--file", type=Path, default=ROOT / "bench" / "problems.json")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N random layers instead")
    parser.add_argument("--precisions", default="tf32,fp32,fp16,bf16", help="of tf32, fp32, fp16, bf16, fp64")
    parser.add_argument("--json", type=Path, help="where the results go; written after every problem")
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() % (1 << 31), help="of the data, and of the random layers"
    )
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no further layer after so long, compiling included"
    )
    options = parser.parse_args()
    if options.random < 0:
        parser.error(f"--random must not be negative, got {options.random}")
    options.precisions = options.precisions.split(",")
    if unknown := set(options.precisions) - set(PRECISIONS):
        parser.error(f"no precision {unknown.pop()!r}; known are {', '.join(PRECISIONS)}")
    options.effort = BRIEF if options.random else FULL
    return options


def main() -> int:
    options = parsed_options()
    precisions = options.precisions
    if options.random:
        problems = named(random_layers(options.random, options.seed), options.problems)
    else:
        problems = read_problems(options.file, options.problems)

    started = time.perf_counter()
    library = Library(options.library)
    layers = plan_all(library, problems, precisions)
    planned = time.perf_counter()
    record = {
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "tconv": library.version(),
        "seed": options.seed,
        "compile_s": round(planned - started, 1),
        "rates": ceilings({name: PRECISIONS[name] for name in precisions}),
        "rows": [],
    }
    if options.random:
        record["random"] = options.random
    measure_all(problems, precisions, layers, record, options, started)

    rows: list[dict] = record["rows"]
    print(", ".join(f"{name} {rate:.2f}" for name, rate in record["rates"].items()))
    add_kernels(record, problems, options.library)
    if options.random:
        report_random(record, precisions)
    else:
        report_problems(record, precisions)
    record["seconds"] = round(time.perf_counter() - started, 1)
    if options.json:
        write(record, options.json)
    wrong = [f"{r['name']} {r['precision']}" for r in rows if not r["right"]]
    print(
        f"\n{len(rows)} results in {record['seconds']:.0f} s, seed {options.seed}, "
        + (f"WRONG: {', '.join(wrong)}" if wrong else "all right")
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
