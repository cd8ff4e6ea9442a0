#!/usr/bin/env python3
"""Prints the tables of docs/performance.md from the JSON of a benchmark.

python bench/table.py bench/results/cpu.json
python bench/table.py bench/results/gpu.json
python bench/table.py bench/results/random.json
python bench/table.py bench/results/cpu-zen5-random.json
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from gpu.report import ALL, SPEEDS, behind, kernel_key, speed, summary_of

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


def print_lines(lines: list[list[str]]) -> None:
    for line in lines:
        print(f"| {' | '.join(line)} |")


def print_cpu(record: dict) -> None:
    lines = [
        [r["name"], str(r["batch"]), *cells(r, "forward", 1), *cells(r, "backward", 2)] for r in record["problems"]
    ]
    means = record["summary"]
    lines.append(["**geometric mean**", "", *mean_cells(means, "forward"), *mean_cells(means, "backward")])
    print(HEADER)
    print_lines(lines)


def print_cpu_random(record: dict, worst: int = 8) -> None:
    """The speed-ups of random layers by kind, then the layers that are furthest behind PyTorch."""

    def speedups(rows: list[dict], name: str) -> list[float]:
        return [row[f"{name}_pytorch_ms"] / row[f"{name}_ms"] for row in rows]

    def figures(rows: list[dict]) -> list[str]:
        texts = [str(len(rows))]
        for name in ("forward", "backward"):
            factors = speedups(rows, name)
            mean = math.exp(sum(map(math.log, factors)) / len(factors))
            texts += [f"{mean:.2f}", f"{sum(f >= 1 for f in factors) / len(factors):.0%}", f"{min(factors):.2f}"]
        return texts

    kinds: dict[str, list[dict]] = {}
    for row in record["problems"]:
        kinds.setdefault(row["name"].rpartition("-")[0], []).append(row)
    print("| kind | layers | forward | ahead | worst | backward | ahead | worst |")
    print(f"|---|{'---:|' * 7}")
    print_lines([[kind, *figures(rows)] for kind, rows in kinds.items()])
    print_lines([["**all**", *figures(record["problems"])]])
    for name in ("forward", "backward"):
        print(f"\n| {name}, behind | over PyTorch | tconv | layer |\n|---|---:|---:|---|")
        rows = sorted(record["problems"], key=lambda row: speedups([row], name)[0])[:worst]
        print_lines(
            [
                [row["name"], f"{speedups([row], name)[0]:.2f}", f"{row[f'{name}_ms']:.2f} ms", row["about"]]
                for row in rows
                if speedups([row], name)[0] < 1
            ]
        )


def print_gpu(record: dict, precision: str) -> None:
    print(f"| {precision} | tconv | PyTorch | best | over default | over best | × floor | error | PyTorch's |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    lines = []
    for r in record["rows"]:
        if r["precision"] == precision:
            ours, default, best = r["tconv_ms"], r["pytorch_ms"], r["pytorch_best_ms"]
            ratios = [default / ours, best / ours, ours / r["floor_ms"]]
            times = [f"{ms:.3f} ms" for ms in (ours, default, best)]
            errors = [f"{r['error']:.1e}", f"{r['pytorch_error']:.1e}"]
            lines.append([r["name"], *times, *(f"{ratio:.2f}" for ratio in ratios), *errors])
    for label, group in (("kb\\*", "kb*"), ("all", "all")):
        mean = record["means"][precision][group]
        figures = [f"**{mean[key]:.2f}**" for key in ("default", "best", "floor")]
        lines.append([f"**geometric mean, {label}**", "", "", "", *figures, "", ""])
    print_lines(lines)


def print_random(record: dict, precision: str, worst: int = 10) -> None:
    """The summary of random layers by kind, then those that are furthest behind PyTorch's best."""
    rows = [r for r in record["rows"] if r["precision"] == precision]
    titles = {"default": "over default", "tuned": "over tuned", "best": "over best", "last": "channels last"}
    print(f"| {precision} | layers | {' | '.join(f'{titles[name]} | ahead' for name in SPEEDS)} |")
    print(f"|---|---:|{'---:|---:|' * len(SPEEDS)}")
    lines = []
    for kind, figures in summary_of(rows).items():
        cells = [kind, str(figures["layers"])]
        for name in SPEEDS:
            of_one = figures.get(name)
            cells += [f"{of_one['mean']:.2f}", f"{of_one['ahead']:.0%}"] if of_one else ["", ""]
        lines.append([f"**{cell}**" if cell and kind == ALL else cell for cell in cells])
    print_lines(lines)
    lines = []
    for r in behind(rows, "best")[:worst]:
        times = [f"{r[key]:.3f} ms" for key in ("tconv_ms", "pytorch_best_ms")]
        lines.append([r["name"], f"{speed(r, 'best'):.2f}", *times, r["layer"], r.get(kernel_key("best"), "")])
    if lines:
        print(f"\n| {precision}, behind | over best | tconv | best | layer | kernel |")
        print("|---|---:|---:|---:|---|---|")
        print_lines(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="JSON written by bench/cpu.py or bench/gpu/bench.py")
    record = json.loads(parser.parse_args().results.read_text())
    if "problems" in record:
        (print_cpu_random if "random" in record else print_cpu)(record)
        return
    for precision in dict.fromkeys(row["precision"] for row in record["rows"]):
        if "random" in record:
            print_random(record, precision)
        else:
            print_gpu(record, precision)
        print()


if __name__ == "__main__":
    main()
