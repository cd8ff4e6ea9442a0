"""Switching the transposed convolutions of an existing model to tconv, and back.

A module is switched in place by changing its class: it stays the same object, with its parameters, hooks,
buffers and whatever else was put on it. That is what keeps both kinds of ``weight_norm`` working, optimizers
that hold the parameters, and checkpoints.
"""

from dataclasses import dataclass, field

import torch
from torch.nn.utils import parametrize

from . import nn as tconv_nn

__all__ = ["Report", "convert", "revert"]

_NAMES = (
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
)
_TO_TCONV = {getattr(torch.nn, name): getattr(tconv_nn, name) for name in _NAMES}
_TO_PYTORCH = {ours: theirs for theirs, ours in _TO_TCONV.items()}
_THEIRS = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)


@dataclass
class Report:
    """What :func:`convert` or :func:`revert` did. Its text names every module."""

    changed: list[tuple[str, str]] = field(default_factory=list)
    """Name of each module switched, and what it is now."""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Name of each transposed convolution left alone, and why."""

    def __len__(self) -> int:
        return len(self.changed)

    def __str__(self) -> str:
        lines = [f"{len(self.changed)} transposed convolution(s) switched, {len(self.skipped)} left alone"]
        lines += [f"  {name or '(the model itself)'}: {now}" for name, now in self.changed]
        lines += [f"  {name or '(the model itself)'}: left alone, {why}" for name, why in self.skipped]
        return "\n".join(lines)


def convert(model: torch.nn.Module) -> Report:
    """Makes every transposed convolution of ``model`` a tconv one, in place.

    Parameters, hooks, parametrizations and ``weight_norm`` of either kind stay as they are. Subclasses with a
    ``forward`` of their own are left alone, since only their author knows what it computes.
    """
    return _switch(model, _TO_TCONV)


def revert(model: torch.nn.Module) -> Report:
    """Undoes :func:`convert`: every tconv module of ``model`` becomes PyTorch's again, in place."""
    return _switch(model, _TO_PYTORCH)


def _switch(model: torch.nn.Module, targets: dict[type, type]) -> Report:
    report = Report()
    sources = tuple(targets)
    for name, module in model.named_modules():
        if not isinstance(module, _THEIRS):
            continue
        current = type(module)
        plain = parametrize.type_before_parametrizations(module)
        if plain in targets:
            target = targets[plain]
            module.__class__ = target if plain is current else _parametrized(current, target)
            report.changed.append((name, f"{target.__module__}.{target.__name__}{_settings(module)}"))
        elif isinstance(module, sources) and plain not in targets.values():
            report.skipped.append((name, f"{plain.__module__}.{plain.__qualname__} is a class of its own"))
    return report


def _parametrized(current: type, target: type) -> type:
    """The class a parametrized module has, on top of another base.

    ``torch.nn.utils.parametrize`` gives a module a class made for it, whose only base is the class the module
    had before, and returns to that base when the parametrizations are removed. Copies of a module share
    theirs, so a new one is made instead of changing it.
    """
    body = {key: value for key, value in vars(current).items() if key not in ("__dict__", "__weakref__")}
    return type(current.__name__, (target,), body)


def _settings(module: torch.nn.Module) -> str:
    return f"({module.extra_repr()})"
