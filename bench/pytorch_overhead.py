"""What one small layer costs a PyTorch program, beside PyTorch's own operator in the same run.

The layer (1 x 8 x 16, kernel 4, stride 2, on the CPU) computes for about a microsecond, so this measures what
surrounds the computation: argument handling, dispatch, autograd, allocation.

    python bench/pytorch_overhead.py

Both sides take turns, fifty calls at a time, and the best turn of each counts: on a busy machine the other
turns measure the neighbours. The results are compared first.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tconv


def best_turns(first: Callable[[], object], second: Callable[[], object], turns: int) -> tuple[float, float]:
    """Microseconds per call of either."""
    best = [float("inf")] * 2
    for _ in range(turns):
        for side, call in enumerate((first, second)):
            start = time.perf_counter()
            for _ in range(50):
                call()
            best[side] = min(best[side], (time.perf_counter() - start) / 50 * 1e6)
    return best[0], best[1]


def forward_backward(layer: nn.Module, x: Tensor) -> Callable[[], object]:
    parameters, cotangent = [x, *layer.parameters()], torch.ones_like(layer(x))
    return lambda: torch.autograd.grad(layer(x), parameters, cotangent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    x = torch.randn(1, 8, 16)
    theirs = nn.ConvTranspose1d(8, 8, 4, 2)
    ours = tconv.nn.ConvTranspose1d(8, 8, 4, 2)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(x), theirs(x))
    weight, bias = theirs.weight.detach(), theirs.bias.detach()
    leaf = x.clone().requires_grad_()

    def without_gradients(layer: nn.Module) -> Callable[[], object]:
        def call() -> Tensor:
            with torch.no_grad():
                return layer(x)

        return call

    rows = {
        "function": (
            lambda: tconv.conv_transpose1d(x, weight, bias, 2),
            lambda: F.conv_transpose1d(x, weight, bias, 2),
        ),
        "module, no gradients": (without_gradients(ours), without_gradients(theirs)),
        "module, training forward": (lambda: ours(x), lambda: theirs(x)),
        "module, forward and backward": (forward_backward(ours, leaf), forward_backward(theirs, leaf)),
    }
    print(f"PyTorch {torch.__version__}, {options.threads} thread(s); microseconds per call")
    print(f"{'':30} {'tconv':>8} {'PyTorch':>8} {'ratio':>7}")
    for name, (our_call, their_call) in rows.items():
        a, b = best_turns(our_call, their_call, options.turns)
        print(f"{name:30} {a:8.2f} {b:8.2f} {a / b:7.2f}")


if __name__ == "__main__":
    main()
