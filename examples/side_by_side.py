"""Trains two copies of a model with the same seed, one of them converted to tconv, and compares the losses."""

import copy
import io
from collections.abc import Callable

import torch
from torch import Tensor, nn

import tconv


def train(model: nn.Module, batches: list[tuple[Tensor, Tensor]], loss: Callable[..., Tensor]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        value = loss(model(inputs), targets)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def exchange_checkpoints(model: nn.Module, converted: nn.Module) -> None:
    """Loads each model's saved parameters into the other kind."""
    for source, target in ((model, converted), (converted, model)):
        saved = io.BytesIO()
        torch.save(source.state_dict(), saved)
        saved.seek(0)
        copy.deepcopy(target).load_state_dict(torch.load(saved, weights_only=True))


def compare(
    name: str, model: nn.Module, batches: list[tuple[Tensor, Tensor]], loss: Callable[..., Tensor]
) -> dict[str, float]:
    """Prints the two lists of losses; returns the largest differences of outputs and losses."""
    converted = copy.deepcopy(model)
    report = tconv.convert(converted)
    print(f"{name}: {report}")

    with torch.no_grad():
        model.eval(), converted.eval()
        difference = (model(batches[0][0]) - converted(batches[0][0])).abs().max().item()
        model.train(), converted.train()
    print(f"{name}: outputs differ by at most {difference:.2g}")

    losses = train(model, batches, loss)
    converted_losses = train(converted, batches, loss)
    print(f"{'step':>6} {'PyTorch':>12} {'tconv':>12}")
    for step, (a, b) in enumerate(zip(losses, converted_losses, strict=True)):
        print(f"{step:6} {a:12.6f} {b:12.6f}")
    exchange_checkpoints(model, converted)
    print(f"{name}: checkpoints load in either direction\n")
    return {
        "changed": len(report),
        "output": difference,
        "loss": max(abs(a - b) for a, b in zip(losses, converted_losses, strict=True)),
    }
