#!/usr/bin/env python3
"""Draws the README's plot from the JSON of a benchmark: speed-up over PyTorch and distance from the floor.

python bench/plot.py bench/results/cpu.json docs/images/cpu.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

OURS, THEIRS = "#1769aa", "#d98c3f"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="JSON written by bench/cpu.py")
    parser.add_argument("picture", type=Path, help="SVG to write")
    options = parser.parse_args()
    record = json.loads(options.results.read_text())
    rows = sorted(record["problems"], key=lambda r: r["forward_pytorch_ms"] / r["forward_ms"], reverse=True)
    names = [r["name"] for r in rows]
    places = range(len(rows))

    plt.rcParams.update({"font.size": 8, "svg.fonttype": "none", "svg.hashsalt": "tconv", "axes.axisbelow": True})
    figure, (speed, floor) = plt.subplots(2, 1, figsize=(9, 5.4), sharex=True, constrained_layout=True)
    speed.bar([p - 0.2 for p in places], [r["forward_pytorch_ms"] / r["forward_ms"] for r in rows], 0.4,
              color=OURS, label="forward")  # fmt: skip
    speed.bar([p + 0.2 for p in places], [r["backward_pytorch_ms"] / r["backward_ms"] for r in rows], 0.4,
              color="#8fbfe0", label="backward")  # fmt: skip
    speed.axhline(1, color="black", linewidth=0.8)
    speed.set_yscale("log", base=2)
    speed.yaxis.set_major_formatter("{x:g}×")
    speed.set_ylabel("times as fast as PyTorch")
    speed.legend(frameon=False)

    floor.plot(places, [r["forward_pytorch_ms"] / r["floor_ms"] for r in rows], "o", color=THEIRS, label="PyTorch")
    floor.plot(places, [r["forward_ms"] / r["floor_ms"] for r in rows], "o", color=OURS, label="tconv")
    floor.axhline(1, color="black", linewidth=0.8)
    floor.set_yscale("log", base=2)
    floor.yaxis.set_major_formatter("{x:g}×")
    floor.set_ylabel("forward time over the floor")
    floor.set_xticks(list(places), names, rotation=60, ha="right")
    floor.legend(frameon=False)
    for axes in (speed, floor):
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.01)
    figure.suptitle(
        f"{record['threads']} threads of {record['processor']}, PyTorch {record['torch']}, fp32", fontsize=9
    )
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.picture, metadata={"Date": None})


if __name__ == "__main__":
    main()
