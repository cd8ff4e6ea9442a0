#!/usr/bin/env python3
"""Prints the CPU table of docs/performance.md from the JSON of a benchmark.

python bench/table.py bench/results/cpu.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

HEADER = """\
| problem | batch | forward | PyTorch | speed-up | × floor | front end | backward | PyTorch | speed-up | × floor | front end |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"""  # noqa: E501


def cells(row: dict, name: str, passes: int) -> list[str]:
    ours, front_end, theirs = (row[f"{name}{side}_ms"] for side in ("", "_front_end", "_pytorch"))
    return [
        f"{ours:.1f} ms", f"{theirs:.1f} ms", f"{theirs / ours:.2f}", f"{ours / row['floor_ms'] / passes:.2f}",
        f"{theirs / front_end:.2f}",
    ]  # fmt: skip


def mean_cells(means: dict, name: str) -> list[str]:
    figures = [means[f"{name}_{key}"] for key in ("speedup", "over_floor", "speedup_front_end")]
    return ["", "", *(f"**{figure:.2f}**" for figure in figures)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="JSON written by bench/cpu.py")
    record = json.loads(parser.parse_args().results.read_text())
    lines = [
        [r["name"], str(r["batch"]), *cells(r, "forward", 1), *cells(r, "backward", 2)] for r in record["problems"]
    ]
    means = record["summary"]
    lines.append(["**geometric mean**", "", *mean_cells(means, "forward"), *mean_cells(means, "backward")])
    print(HEADER)
    for line in lines:
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()
