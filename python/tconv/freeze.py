"""Promising that weights will not change, so that CUDA graphs can hold them packed."""

from typing import TypeVar

import torch

from . import nn as tconv_nn
from ._packed import PackedWeight

__all__ = ["freeze", "unfreeze"]

Model = TypeVar("Model", bound=torch.nn.Module)


def freeze(model: Model) -> Model:
    """Promises that the weights of the model's tconv layers will not change until :func:`unfreeze`.

    A CUDA graph reads weights when it is replayed, when they may have changed since it was captured, so it packs
    them every time. Graphs captured from a frozen model hold the packed weights instead, once every layer has
    run outside a graph (the warm-up that capturing needs anyway), and all streams share them. A frozen layer
    whose weight has changed all the same refuses to run.

    Moving or casting the model unfreezes it. Returns the model.
    """
    layers = _layers(model)
    for name, layer in layers:
        if layer._parameters.get("weight") is None:
            raise ValueError(
                f"{name or 'the model itself'} makes its weight anew for every call; remove its weight_norm or "
                "other parametrization before freezing"
            )
    for _, layer in layers:
        layer._packed = PackedWeight(frozen=True)
    return model


def unfreeze(model: Model) -> Model:
    """Takes the promise of :func:`freeze` back. Graphs captured under it must not be replayed any more."""
    for _, layer in _layers(model):
        layer.__dict__.pop("_packed", None)
    return model


def _layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    return [(name, module) for name, module in model.named_modules() if isinstance(module, tconv_nn._Forward)]
