"""Times on the GPU, by events, and the two ceilings every time is held against."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

SMALL_MS = 0.2
"""Below this a layer is timed by graph replay: call overhead would hide the GPU's time."""


@dataclass(frozen=True)
class Effort:
    """What a time may cost."""

    budget_ms: float = 120
    """Of the repetitions of a run."""
    replays: int = 11
    """Of a graph."""
    tuning_s: float = math.inf
    """How long a layer may have taken when PyTorch is autotuned on it; later it is not. Autotuning cannot be
    interrupted."""


FULL, BRIEF = Effort(), Effort(budget_ms=40, replays=5, tuning_s=10)


def _elapsed(run: Callable[[], object], repetitions: int) -> list[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repetitions + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in itertools.pairwise(events))


def median_ms(run: Callable[[], object], effort: Effort = FULL) -> float:
    """The median over as many repetitions as fit the budget, 3 to 25 of them."""
    run()
    once = _elapsed(run, 2)[0]
    times = _elapsed(run, int(min(25, max(3, effort.budget_ms / max(once, 1e-3)))))
    return times[len(times) // 2]


def graph_ms(runs: Sequence[Callable[[], object]], effort: Effort = FULL) -> float:
    """The time of one run when many are replayed as one graph, the runs taking turns."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for run in runs:
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph, count = torch.cuda.CUDAGraph(), max(24, len(runs))
    with torch.cuda.graph(graph):
        for run in itertools.islice(itertools.cycle(runs), count):
            run()
    graph.replay()
    times = _elapsed(graph.replay, effort.replays)
    return times[len(times) // 2] / count


def gpu_and_call_ms(runs: Sequence[Callable[[], object]], effort: Effort = FULL) -> tuple[float, float]:
    """The GPU's time of a run, and the time of a call. They differ where a run is short."""
    call = median_ms(rotated(runs), effort)
    return (graph_ms(runs, effort) if call < SMALL_MS else call), call


def rotated(runs: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """One callable that takes the next of the runs every time."""
    turns = itertools.cycle(runs)
    return lambda: next(turns)()


def ceilings(precisions: dict[str, torch.dtype]) -> dict[str, float]:
    """Bytes per second of a copy, read and written, and FLOP/s of cuBLAS for each precision, in tera."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    rates = {"copy_TBs": 2 * source.nbytes / median_ms(functools.partial(target.copy_, source)) / 1e9}
    del source, target
    for name, dtype in precisions.items():
        n = 4096 if dtype == torch.float64 else 8192
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
        rates["gemm_" + name] = 2 * n**3 / median_ms(functools.partial(torch.mm, a, b)) / 1e9
    return rates
