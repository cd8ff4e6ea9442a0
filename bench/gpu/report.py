"""What the rows of a benchmark on the GPU say: tables, means, and where PyTorch is ahead."""

from __future__ import annotations

import math
from collections.abc import Iterable

SPEEDS = {
    "default": ("pytorch_ms", "tconv_ms"),
    "tuned": ("pytorch_tuned_ms", "tconv_ms"),
    "best": ("pytorch_best_ms", "tconv_ms"),
    "last": ("pytorch_tuned_last_ms", "tconv_last_ms"),
}
"""How many times as fast as PyTorch: as it comes, autotuned on the same tensors, at its best in any layout, and
autotuned with both sides on channels_last tensors."""
ALL = "all"


def speed(row: dict, name: str) -> float | None:
    """Nothing where one of the two times was not taken."""
    theirs, ours = (row.get(key) for key in SPEEDS[name])
    return theirs / ours if theirs and ours else None


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs))


# ---- Listed problems ----------------------------------------------------------------------------------------


def means_of(rows: list[dict]) -> dict[str, float]:
    def mean(above: str, below: str) -> float:
        return geometric_mean(r[above] / r[below] for r in rows)

    return {
        "floor": mean("tconv_ms", "floor_ms"),
        "pytorch_floor": mean("pytorch_ms", "floor_ms"),
        **{name: mean(*SPEEDS[name]) for name in ("default", "tuned", "best")},
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


# ---- Random layers ------------------------------------------------------------------------------------------


def kind_of(row: dict) -> str:
    return row["name"].rsplit("-", 1)[0]


def summary_of(rows: list[dict]) -> dict[str, dict]:
    """Of the random layers of one precision, by kind and of all: how many, and for each of SPEEDS the layers that
    have it, their geometric mean, the least, and the share that is ahead. Kinds come in the order of their means
    over PyTorch's best, worst first."""

    def one(chosen: list[dict]) -> dict:
        result: dict = {"layers": len(chosen)}
        for name in SPEEDS:
            if values := [v for r in chosen if (v := speed(r, name)) is not None]:
                ahead = sum(v > 1 for v in values) / len(values)
                result[name] = {
                    "layers": len(values), "mean": geometric_mean(values), "least": min(values), "ahead": ahead,
                }  # fmt: skip
        return result

    kinds = {kind: one([r for r in rows if kind_of(r) == kind]) for kind in {kind_of(r) for r in rows}}
    worst_first = sorted(kinds.items(), key=lambda item: (item[1].get("best", {"mean": 0})["mean"], item[0]))
    return dict(worst_first) | {ALL: one(rows)}


def behind(rows: list[dict], name: str) -> list[dict]:
    """Rows in which PyTorch is ahead by that comparison, worst first."""
    return sorted((r for r in rows if (speed(r, name) or math.inf) < 1), key=lambda r: speed(r, name))


def summary_table(summary: dict[str, dict], precision: str) -> str:
    heads = " ".join(f"{name:>8} {'ahead':>6}" for name in SPEEDS)
    lines = [f"{precision:<10} {'layers':>6} {heads}"]
    for kind, figures in summary.items():
        cells = [
            f"{f['mean']:8.2f} {f['ahead']:6.0%}" if (f := figures.get(name)) else " " * 15 for name in SPEEDS
        ]
        lines.append(f"{kind:<10} {figures['layers']:>6} {' '.join(cells)}".rstrip())
    return "\n".join(lines)


def behind_lines(rows: list[dict], name: str, most: int) -> list[str]:
    """One line for each: the speed, both times, the layer, and the kernel where it is known."""
    slower = behind(rows, name)
    theirs, ours = SPEEDS[name]
    lines = [
        f"{speed(r, name):6.2f} {r[ours]:9.4f} {r[theirs]:9.4f}  {r['name']:<14} {r['layer']}"
        + (f"  {r[kernel]}" if (kernel := kernel_key(name)) in r else "")
        for r in slower[:most]
    ]
    return lines + ([f"... and {len(slower) - most} more"] if len(slower) > most else [])


def kernel_key(name: str) -> str:
    """The key of a row with the kernel that a speed is of."""
    return "kernel_last" if name == "last" else "kernel"
