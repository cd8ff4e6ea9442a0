#!/usr/bin/env python3
"""Exported layers beside tconv's own modules on the GPU: the files of kernelbench/exported, verified, then timed.

    python3 bench/gpu/exported.py
    python3 bench/gpu/exported.py kb64 kb81 --rounds 9

Needs PyTorch with CUDA, the package tconv, and nvcc, which builds a file's kernels on its first call. Sizes are
those of bench/problems.json. Both sides run in TF32, as the files are exported, with the same weight and without
gradients. Times are the GPU's, taken as bench.py takes them, of both sides in turn: medians over the rounds.

An exported layer packs its weight in every call. tconv's module is in eval mode and packs it once: the ratio
counts the packing against the exported layer. Exit status 1 if an output is wrong or a ratio is above the bar.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from bench import ROOT, Data, right
from problems import Problem, error_of, read_problems
from timing import gpu_and_call_ms

import tconv

FOLDER = ROOT / "kernelbench" / "exported"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def both_sides(problem: Problem, weight: torch.Tensor) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The exported layer and tconv's own, in eval mode."""
    file = load(FOLDER / f"{problem.name}.py")
    exported = file.ModelNew().cuda().eval()
    library = getattr(tconv.nn, f"ConvTranspose{problem.dims}d")(**file.LAYER, bias=False).cuda().eval()
    library.precision = "tf32"
    for parameter in (*exported.parameters(), *library.parameters()):
        parameter.copy_(weight)
    return exported, library


def alternating_ms(runs: list[list[Callable[[], object]]], rounds: int) -> list[float]:
    """The median over the rounds of each; in a round they take turns."""
    times = [[gpu_and_call_ms(run)[0] for run in runs] for _ in range(rounds)]
    return [statistics.median(of_one) for of_one in zip(*times, strict=True)]


def measure(problem: Problem, rounds: int, seed: int) -> dict:
    data = Data(problem, torch.float32, seed)
    sides = both_sides(problem, data.w)
    xs = data.inputs(last=False)
    error = error_of(sides[0](xs[0]), sides[1](xs[0]))
    exported_ms, library_ms = alternating_ms([[functools.partial(side, x) for x in xs] for side in sides], rounds)
    return {
        "name": problem.name,
        "right": right(error, "tf32", error),
        "error": error.norm,
        "exported_ms": exported_ms,
        "library_ms": library_ms,
        "ratio": exported_ms / library_ms,
    }


def line(row: dict, bar: float) -> str:
    remarks = ("  WRONG" if not row["right"] else "") + ("  SLOW" if row["ratio"] > bar else "")
    return (
        f"{row['name']:<8} {row['exported_ms']:9.4f} {row['library_ms']:9.4f} {row['ratio']:7.3f}  "
        f"{row['error']:.1e}{remarks}"
    )


def main() -> int:
    known = sorted(path.stem for path in FOLDER.glob("kb*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all without")
    parser.add_argument("--bar", type=float, default=1.1, help="the largest ratio that passes (default 1.1)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.problems) - set(known):
        parser.error(f"no exported layer {unknown.pop()!r}; known are {', '.join(known)}")

    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, tconv {tconv.__version__}")
    print(f"{'tf32':<8} {'exported':>9} {'library':>9} {'ratio':>7}  difference", flush=True)
    rows = []
    with torch.no_grad():
        for problem in read_problems(ROOT / "bench" / "problems.json", options.problems or known):
            rows.append(measure(problem, options.rounds, options.seed))
            print(line(rows[-1], options.bar), flush=True)
            torch.cuda.empty_cache()
    return 0 if all(row["right"] and row["ratio"] <= options.bar for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
