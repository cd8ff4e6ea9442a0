#!/usr/bin/env python3
"""Draws the README's plots from the JSON of a benchmark: speed-up over PyTorch and distance from the floor.

python bench/plot.py bench/results/cpu.json docs/images/cpu.svg
python bench/plot.py bench/results/gpu.json docs/images/gpu.svg
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

OURS, OURS_TOO, THEIRS, THEIRS_TOO = "#1769aa", "#8fbfe0", "#d98c3f", "#efc9a0"


@dataclass
class Series:
    label: str
    colour: str
    values: dict[str, float]
    """By problem."""


@dataclass
class Picture:
    title: str
    speed_label: str
    floor_label: str
    speed: list[Series] = field(default_factory=list)
    """Times as fast as PyTorch: bars. The first one sorts the problems."""
    floor: list[Series] = field(default_factory=list)
    """Time over the floor: dots."""


def cpu_picture(record: dict) -> Picture:
    def series(label: str, colour: str, above: str, below: str) -> Series:
        return Series(label, colour, {r["name"]: r[above] / r[below] for r in record["problems"]})

    return Picture(
        f"{record['threads']} threads of {record['processor']}, PyTorch {record['torch']}, fp32",
        "times as fast as PyTorch",
        "forward time over the floor",
        [
            series("forward", OURS, "forward_pytorch_ms", "forward_ms"),
            series("backward", OURS_TOO, "backward_pytorch_ms", "backward_ms"),
        ],
        [
            series("PyTorch", THEIRS, "forward_pytorch_ms", "floor_ms"),
            series("tconv", OURS, "forward_ms", "floor_ms"),
        ],
    )


def gpu_picture(record: dict) -> Picture:
    def series(label: str, colour: str, precision: str, above: str, below: str) -> Series:
        rows = [r for r in record["rows"] if r["precision"] == precision]
        return Series(label, colour, {r["name"]: r[above] / r[below] for r in rows})

    return Picture(
        f"{record['device']}, PyTorch {record['torch']}, cuDNN {record['cudnn']}, forward",
        "times as fast as PyTorch's default",
        "time over the floor",
        [
            series("TF32", OURS, "tf32", "pytorch_ms", "tconv_ms"),
            series("fp16", OURS_TOO, "fp16", "pytorch_ms", "tconv_ms"),
        ],
        [
            series("PyTorch, TF32", THEIRS, "tf32", "pytorch_ms", "floor_ms"),
            series("PyTorch, TF32, autotuned, best layout", THEIRS_TOO, "tf32", "pytorch_best_ms", "floor_ms"),
            series("tconv, TF32", OURS, "tf32", "tconv_ms", "floor_ms"),
        ],
    )


def draw(picture: Picture, path: Path) -> None:
    first = picture.speed[0].values
    names = sorted(first, key=lambda name: first[name], reverse=True)
    places = range(len(names))
    plt.rcParams.update({"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "tconv", "axes.axisbelow": True})
    figure, (speed, floor) = plt.subplots(2, 1, figsize=(9, 5.4), sharex=True, constrained_layout=True)
    width = 0.8 / len(picture.speed)
    for index, series in enumerate(picture.speed):
        shift = (index - (len(picture.speed) - 1) / 2) * width
        heights = [series.values.get(name, 1) for name in names]
        speed.bar([p + shift for p in places], heights, width, color=series.colour, label=series.label)
    for series in picture.floor:
        dots = [series.values.get(name) for name in names]
        floor.plot(places, dots, "o", color=series.colour, label=series.label)
    speed.set_ylabel(picture.speed_label)
    floor.set_ylabel(picture.floor_label)
    floor.set_xticks(list(places), names, rotation=60, ha="right")
    for axes in (speed, floor):
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}×")
        axes.legend(frameon=False)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.01)
    figure.suptitle(picture.title, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="JSON written by bench/cpu.py or bench/gpu/bench.py")
    parser.add_argument("picture", type=Path, help="SVG to write")
    options = parser.parse_args()
    record = json.loads(options.results.read_text())
    draw(gpu_picture(record) if "device" in record else cpu_picture(record), options.picture)


if __name__ == "__main__":
    main()
