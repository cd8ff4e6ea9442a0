"""Which kernels serve layers: what TCONV_VERBOSE=1 says of one run of each.

The library reads the variable once in a process, and then writes a line for every run. So a process of its own is
asked, and what is timed writes no lines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from problems import PRECISIONS, Problem, memory_format

from library import BoundLayer, Library

Question = tuple[Problem, str, bool]
"""A layer, its precision, and whether its tensors are channels_last."""


def names_in(lines: str) -> list[str]:
    """The kernels of the runs: tconv,cuda,forward,<kernel>,f32,..."""
    return [line.split(",")[3] for line in lines.splitlines() if line.startswith("tconv,cuda,forward,")]


def kernel_names(library: Path, questions: list[Question]) -> list[str]:
    """The kernel of each. Raises RuntimeError where the other process fails."""
    if not questions:
        return []
    asked = [[asdict(problem), precision, last] for problem, precision, last in questions]
    child = subprocess.run(
        [sys.executable, __file__, str(library)],
        input=json.dumps(asked),
        env=os.environ | {"TCONV_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    names = names_in(child.stderr)
    if child.returncode != 0 or len(names) != len(questions):
        raise RuntimeError(f"asking for kernels: {child.stderr[-500:]}")
    return names


def run_once(library: Library, problem: Problem, precision: str, last: bool) -> None:
    dtype, form = PRECISIONS[precision], memory_format(problem.dims, last)
    bound = BoundLayer(library, problem, dtype, precision == "tf32", last)
    x = torch.empty(problem.batch, problem.in_channels, *problem.spatial, dtype=dtype, device="cuda")
    bound.pack(torch.empty(problem.weight_shape, dtype=dtype, device="cuda"))
    y = torch.empty(problem.output_shape, dtype=dtype, device="cuda", memory_format=form)
    bound.run(x.contiguous(memory_format=form), y)


def main() -> None:
    library = Library(Path(sys.argv[1]))
    torch.zeros(1, device="cuda")  # a context
    for problem, precision, last in json.load(sys.stdin):
        run_once(library, Problem(**problem), precision, last)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
