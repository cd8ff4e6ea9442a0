"""Switching the transposed convolutions of an existing model to tconv, and back.

A module is switched in place by changing its class: it stays the same object, with its parameters, hooks,
buffers and whatever else was put on it. That is what keeps both kinds of ``weight_norm`` working, optimizers
that hold the parameters, and checkpoints.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn

import torch
from torch.nn.utils import parametrize

from . import nn as tconv_nn
from ._precision import Precision, check_precision

__all__ = ["Report", "convert", "revert"]

_TO_TCONV = {getattr(torch.nn, name): getattr(tconv_nn, name) for name in tconv_nn.__all__}
_TO_PYTORCH = {ours: theirs for theirs, ours in _TO_TCONV.items()}
_TRANSPOSED = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)
_TRANSPOSED_NAMES = {cls.__name__ for cls in _TRANSPOSED}


Where = Callable[[str, torch.nn.Module], bool]

_IN_PLACE = "tconv.convert() and revert() switch the model in place; go on with the model itself"


@dataclass
class Report:
    """What :func:`convert` or :func:`revert` did. Its text names every module.

    It is not the model, which goes on being itself: ``model = tconv.convert(model)`` is a mistake, and the first
    use of what it leaves says so.
    """

    changed: list[tuple[str, str]] = field(default_factory=list)
    """Name of each module switched, and what it is now."""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Name of each transposed convolution left alone, and why."""

    def __len__(self) -> int:
        return len(self.changed)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"a Report is not the model: {_IN_PLACE}")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Report has no attribute {name!r}: {_IN_PLACE}")

    def __str__(self) -> str:
        lines = [f"{len(self.changed)} transposed convolution(s) switched, {len(self.skipped)} left alone"]
        lines += [f"  {name or '(the model itself)'}: {now}" for name, now in self.changed]
        lines += [f"  {name or '(the model itself)'}: left alone, {why}" for name, why in self.skipped]
        return "\n".join(lines)


def convert(model: torch.nn.Module, *, where: Where | None = None, precision: Precision | None = None) -> Report:
    """Makes every transposed convolution of ``model`` a tconv one, in place.

    ``where(name, module)`` chooses among them, by the name the module has in ``model`` or by the module; without
    it all are switched. ``precision`` is set on every layer that is chosen and tconv's afterwards, now or before:
    see :attr:`tconv.nn.ConvTranspose1d.precision`.

    Parameters, hooks, parametrizations and ``weight_norm`` of either kind stay as they are. Subclasses with a
    ``forward`` (or an ``_output_padding``) of their own are left alone, since only their author knows what it
    computes, and so are modules whose ``forward`` was replaced.
    """
    check_precision(precision)
    return _switch(model, _tconv_class, where, precision)


def revert(model: torch.nn.Module, *, where: Where | None = None) -> Report:
    """Undoes :func:`convert`: every tconv module of ``model`` becomes PyTorch's again, in place.

    ``where(name, module)`` chooses among them.
    """
    return _switch(model, _pytorch_class, where)


def _switch(
    model: torch.nn.Module,
    target_of: Callable[[type], type | None],
    where: Where | None,
    precision: Precision | None = None,
) -> Report:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if where is not None and not callable(where):
        raise TypeError(f"where must be a function of a name and a module, got {type(where).__name__}")
    report = Report()
    # Asked before anything is switched: an exception leaves the model as it was.
    found = [(name, module, where is None or where(name, module)) for name, module in _transposed(model)]
    for name, module, chosen in found:
        if isinstance(module, torch.jit.ScriptModule):
            report.skipped.append((name, "it is compiled by torch.jit: switch the model before it is"))
            continue
        current = type(module)
        plain = parametrize.type_before_parametrizations(module)
        target = target_of(plain)
        if not chosen:
            if target is not None:
                report.skipped.append((name, "where() does not choose it"))
            continue
        if "forward" in vars(module):
            report.skipped.append((name, _why_replaced(module)))
            continue
        if target is not None:
            module.__dict__.pop("_packed", None)  # tconv's own, see tconv._packed
            module.__class__ = target if plain is current else _parametrized(current, target)
        elif not issubclass(plain, tconv_nn._Forward) and target_of is _tconv_class:
            report.skipped.append((name, f"{plain.__module__}.{plain.__qualname__} has a forward of its own"))
        if precision is not None and isinstance(module, tconv_nn._Forward):
            module.precision = precision
        if target is not None:
            now = f"{target.__module__}.{target.__name__}({module.extra_repr()})"
            report.changed.append((name, now if precision is None else f"{now} in {precision}"))
    return report


def _why_replaced(module: torch.nn.Module) -> str:
    if hasattr(module, "_hf_hook"):
        return (
            "accelerate's hooks have replaced its forward (device_map, dispatch_model, cpu_offload): switch the "
            "model before, or between remove_hook_from_submodules and dispatch_model"
        )
    return "its forward was replaced by another on the module itself: switch the model before that is done"


def _transposed(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The transposed convolutions of a model, whoever's they are."""
    for name, module in model.named_modules():
        compiled = isinstance(module, torch.jit.ScriptModule) and module.original_name in _TRANSPOSED_NAMES
        if compiled or isinstance(module, _TRANSPOSED):
            yield name, module


def _tconv_class(cls: type) -> type | None:
    """The class a transposed convolution of PyTorch's becomes, or None where it cannot become one."""
    if cls in _TO_TCONV or issubclass(cls, tconv_nn._Forward):
        return _TO_TCONV.get(cls)
    base = next(theirs for theirs in _TRANSPOSED if issubclass(cls, theirs))
    same = all(getattr(cls, name) is getattr(base, name) for name in ("forward", "_output_padding"))
    return _derived(cls) if same else None


def _pytorch_class(cls: type) -> type | None:
    return getattr(cls, "_tconv_derived_from", None) or _TO_PYTORCH.get(cls)


@cache
def _derived(cls: type) -> type:
    """A class that is ``cls`` with tconv's forward, for classes that only add to PyTorch's.

    Nobody can import it, so its objects are pickled as ones to be derived again.
    """

    def reduce(self: torch.nn.Module, protocol: int) -> tuple:
        state = super(derived, self).__reduce_ex__(protocol)[2]
        return _make_derived, (cls,), state

    body = {"__module__": cls.__module__, "_tconv_derived_from": cls, "__reduce_ex__": reduce}
    becomes = getattr(cls, "cls_to_become", None)  # of a lazy module, at its first input
    if becomes is not None:
        body["cls_to_become"] = _TO_TCONV.get(becomes, becomes)
    derived = type(cls.__name__, (tconv_nn._Forward, cls), body)
    return derived


def _make_derived(cls: type) -> torch.nn.Module:
    derived = _derived(cls)
    return derived.__new__(derived)


def _parametrized(current: type, target: type) -> type:
    """The class a parametrized module has, on top of another base.

    ``torch.nn.utils.parametrize`` gives a module a class made for it, whose only base is the class the module
    had before, and returns to that base when the parametrizations are removed. Copies of a module share
    theirs, so a new one is made instead of changing it.
    """
    body = {key: value for key, value in vars(current).items() if key not in ("__dict__", "__weakref__")}
    return type(current.__name__, (target,), body)
