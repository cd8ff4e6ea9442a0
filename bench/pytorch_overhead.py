"""What one small layer costs a PyTorch program, beside PyTorch's own operator in the same run.

On the CPU the layer (1 x 8 x 16, kernel 4, stride 2) computes for about a microsecond, so this measures what
surrounds the computation: argument handling, dispatch, autograd, allocation.

On a GPU, where there is one, the layer is the first upsampler of a HiFi-GAN (hifigan_up1: 16 x 512 x 32, kernel
16, stride 8). The GPU works beside the program, so the time of a call is the program's alone; what the GPU takes
is measured by replaying the layer in a CUDA graph.

    python bench/pytorch_overhead.py

Both sides take turns, fifty calls at a time, and the best turn of each counts: on a busy machine the other
turns measure the neighbours. The results are compared first.
"""

import argparse
import copy
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tconv

Call = Callable[[], object]
CALLS = 50  # in a row; a GPU has room for more launches than that


def best_turns(first: Call, second: Call, turns: int, settle: Call = lambda: None) -> tuple[float, float]:
    """Microseconds per call of either; ``settle`` waits until nothing is left of a turn."""
    best = [float("inf")] * 2
    for _ in range(turns):
        for side, call in enumerate((first, second)):
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[side] = min(best[side], (time.perf_counter() - start) / CALLS * 1e6)
            settle()
    return best[0], best[1]


def forward_backward(layer: nn.Module, x: Tensor) -> Call:
    parameters, cotangent = [x, *layer.parameters()], torch.ones_like(layer(x))
    return lambda: torch.autograd.grad(layer(x), parameters, cotangent)


def without_gradients(layer: nn.Module, x: Tensor) -> Call:
    def call() -> Tensor:
        with torch.no_grad():
            return layer(x)

    return call


def pair_of(*arguments: int, device: str) -> tuple[nn.Module, nn.Module]:
    theirs = nn.ConvTranspose1d(*arguments).to(device)
    ours = tconv.nn.ConvTranspose1d(*arguments).to(device)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def calls_of(ours: nn.Module, theirs: nn.Module, x: Tensor) -> dict[str, tuple[Call, Call]]:
    """Every way to call the layer, by either side."""
    weight, bias, stride, padding = theirs.weight.detach(), theirs.bias.detach(), theirs.stride, theirs.padding
    leaf = x.clone().requires_grad_()
    evaluated = copy.deepcopy(ours).eval()
    return {
        "function": (
            lambda: tconv.conv_transpose1d(x, weight, bias, stride, padding),
            lambda: F.conv_transpose1d(x, weight, bias, stride, padding),
        ),
        "module, eval mode": (without_gradients(evaluated, x), without_gradients(theirs, x)),
        "module, training forward": (lambda: ours(x), lambda: theirs(x)),
        "module, forward and backward": (forward_backward(ours, leaf), forward_backward(theirs, leaf)),
    }


def print_row(name: str, ours: float, theirs: float) -> None:
    print(f"{name:34} {ours:8.2f} {theirs:8.2f} {ours / theirs:7.2f}", flush=True)


def print_head(about: str) -> None:
    print(f"\n{about}; microseconds\n{'':34} {'tconv':>8} {'PyTorch':>8} {'ratio':>7}")


def on_the_cpu(turns: int) -> None:
    x = torch.randn(1, 8, 16)
    ours, theirs = pair_of(8, 8, 4, 2, device="cpu")
    torch.testing.assert_close(ours(x), theirs(x))
    print_head(f"CPU, {torch.get_num_threads()} thread(s), 1 x 8 x 16, per call")
    for name, calls in calls_of(ours, theirs, x).items():
        print_row(name, *best_turns(*calls, turns))


def graph_of(layer: nn.Module, x: Tensor) -> torch.cuda.CUDAGraph:
    """Ten runs of the layer in one graph, so that starting the graph does not count."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            layer(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        for _ in range(10):
            layer(x)
    return graph


def replay_time(graph: torch.cuda.CUDAGraph, turns: int) -> float:
    """Microseconds of one run of the layer on the GPU, the median of all turns."""
    times = []
    for _ in range(turns):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 10 * 1e3)
    return sorted(times)[len(times) // 2]


def on_the_gpu(turns: int) -> None:
    x = torch.randn(16, 512, 32, device="cuda")
    ours, theirs = pair_of(512, 256, 16, 8, 4, device="cuda")
    exact = F.conv_transpose1d(x.double(), theirs.weight.double(), theirs.bias.double(), 8, 4)
    for layer in (ours, theirs):
        error = ((layer(x) - exact).norm() / exact.norm()).item()
        if error > 4e-4:
            raise SystemExit(f"{type(layer).__module__} is wrong by {error:.2g}")
    print_head(f"{torch.cuda.get_device_name()}, hifigan_up1, TF32, the program's time per call")
    for name, calls in calls_of(ours, theirs, x).items():
        print_row(name, *best_turns(*calls, turns, torch.cuda.synchronize))

    print_head("the GPU's time per run, in a CUDA graph")
    reference = replay_time(graph_of(theirs, x), turns)
    print_row("packing in the graph", replay_time(graph_of(ours, x), turns), reference)
    print_row("frozen", replay_time(graph_of(tconv.freeze(ours), x), turns), reference)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, best of {options.turns} turns")
    on_the_cpu(options.turns)
    if torch.cuda.is_available():
        on_the_gpu(options.turns)


if __name__ == "__main__":
    main()
