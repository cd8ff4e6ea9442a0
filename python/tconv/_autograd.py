"""Derivatives of any order: each operator's backward is made of the other two.

The operators are bilinear, so with ``<·,·>`` the inner product

    <T(x, w), y> = <x, C(y, w)> = <w, W(x, y)>

and the derivative of each in either argument is one of the three again.

There are two ways in. A call that arrives through PyTorch's dispatcher (``torch.compile``, ``torch.func``,
autocast, tensor subclasses) meets the kernels registered here for the Autograd key. A plain eager call takes
:func:`conv_transpose`, :func:`grad_input` and :func:`grad_weight`, which do the same without the dispatcher's
round trip through Python: on a small layer that trip costs more than the layer.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import Function

from . import _pytorch, _retry
from ._layer import Layer, memory_format_of
from ._library import (
    CONV_TRANSPOSE,
    GRAD_INPUT,
    GRAD_WEIGHT,
    LIBRARY,
    run_backward,
    run_conv_transpose,
    run_grad_input,
    run_grad_weight,
)
from ._packed import let_go, run_keeping

_below_autograd = torch._C._AutoDispatchBelowAutograd
_grad_enabled = torch.is_grad_enabled
_compiling = torch.compiler.is_compiling
_functorch_active = torch._C._are_functorch_transforms_active
autocast_enabled = torch._C._is_any_autocast_enabled
_without_autocast = torch._C._DisableAutocast
_dispatch_modes = torch._C._len_torch_dispatch_stack
_tracing_state = torch._C._get_tracing_state
_is_batched = torch._C._functorch.is_legacy_batchedtensor

_BY_PYTORCH = {
    CONV_TRANSPOSE: _pytorch.conv_transpose_kernel,
    GRAD_INPUT: _pytorch.grad_input_kernel,
    GRAD_WEIGHT: _pytorch.grad_weight_kernel,
}

PLAIN = (Tensor, torch.nn.Parameter)
"""The types eager calls are made with; everything else is a subclass that wants to see the operators."""


def watched() -> bool:
    """Whether something between the caller and the kernels, other than autocast, must see the call."""
    return (
        _compiling()
        or _functorch_active()
        or _dispatch_modes() > 0
        or forward_ad._current_level >= 0
        or _tracing_state() is not None
    )


def needs_dispatcher() -> bool:
    """Whether something between the caller and the kernels must see the call."""
    return watched() or autocast_enabled()


def conv_transpose(input: Tensor, weight: Tensor, bias: Tensor | None, layer: Layer) -> Tensor:
    """T, as a part of derivatives. Autocast has been seen to: they have the dtype the layer was run in."""
    if layer.number is None or type(input) is not Tensor or type(weight) not in PLAIN or watched():
        with _without_autocast():
            return CONV_TRANSPOSE(input, weight, bias, layer.geometry, layer.groups, layer.allow_tf32)
    return eager_conv_transpose(input, weight, bias, layer)


def eager_conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    layer: Layer,
    owner: torch.nn.Module | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """T of plain tensors, with nobody watching.

    ``owner`` is the module whose parameter the weight is. ``dtype`` is what autocast wants the weight in, the one
    operand that may be kept in it.
    """
    try:
        if _grad_enabled() and (
            weight.requires_grad or input.requires_grad or (bias is not None and bias.requires_grad)
        ):
            if owner is not None:
                let_go(owner)
            return _apply_conv_transpose(input, weight if dtype is None else weight.to(dtype), bias, layer)
        if owner is not None and input.is_cuda:
            return run_keeping(owner, input, weight, bias, layer.number, dtype)
        return run_conv_transpose(input, weight if dtype is None else weight.to(dtype), bias, layer.number)
    except RuntimeError as error:
        return _retry.conv_transpose(error, input, weight if dtype is None else weight.to(dtype), bias, layer)


def grad_input(gy: Tensor, weight: Tensor, layer: Layer) -> Tensor:
    """C: the adjoint of T in its input."""
    if layer.number is None or type(gy) is not Tensor or type(weight) not in PLAIN or watched():
        return GRAD_INPUT(gy, weight, layer.geometry, layer.groups, layer.allow_tf32)
    if _grad_enabled() and (gy.requires_grad or weight.requires_grad):
        return _apply_grad_input(gy, weight, layer)
    return _run_grad_input(gy, weight, layer)


def grad_weight(input: Tensor, gy: Tensor, kernel_size: Sequence[int], layer: Layer) -> Tensor:
    """W: the adjoint of T in its weight."""
    if layer.number is None or type(input) is not Tensor or type(gy) is not Tensor or watched():
        return GRAD_WEIGHT(input, gy, kernel_size, layer.geometry, layer.groups, layer.allow_tf32)
    if _grad_enabled() and (input.requires_grad or gy.requires_grad):
        return _apply_grad_weight(input, gy, kernel_size, layer)
    return _run_grad_weight(input, gy, kernel_size, layer)


def _has_gradients(tensor: Tensor) -> bool:
    """Whether tconv's engine for a tensor has gradients; where it has none, PyTorch's operators compute them."""
    return tensor.is_cpu


def _run_grad_input(gy: Tensor, weight: Tensor, layer: Layer) -> Tensor:
    if _has_gradients(gy):
        try:
            return run_grad_input(gy, weight, layer.number)
        except RuntimeError as error:
            _retry.unless_failed(error)
    return _pytorch.grad_input(gy, weight, layer)


def _run_grad_weight(input: Tensor, gy: Tensor, kernel_size: Sequence[int], layer: Layer) -> Tensor:
    if _has_gradients(gy):
        try:
            return run_grad_weight(input, gy, kernel_size, layer.number)
        except RuntimeError as error:
            _retry.unless_failed(error)
    return _pytorch.grad_weight(input, gy, kernel_size, layer)


def _run_backward(
    gy: Tensor, input: Tensor, weight: Tensor, needs: tuple[bool, bool, bool], layer: Layer
) -> tuple:
    """All gradients of the layer at once."""
    if _has_gradients(gy):
        try:
            return run_backward(gy, input, weight, *needs, layer.number)
        except RuntimeError as error:
            _retry.unless_failed(error)
    return _pytorch.gradients(gy, input, weight, needs, layer)


def _below(operator: torch._ops.OpOverload, *args: Any) -> Tensor:
    """An operator whose gradients have been seen to."""
    if _functorch_active():
        # A Function runs its forward with gradients off, which is meant for its own level of torch.func. The
        # levels beneath still want theirs.
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
            return _run(operator, args)
    return _run(operator, args)


def _run(operator: torch._ops.OpOverload, args: tuple) -> Tensor:
    """An operator, beneath autograd; by PyTorch where the library's call fails."""
    with _below_autograd():
        try:
            return operator(*args)
        except RuntimeError as error:
            _retry.unless_failed(error)
        return _BY_PYTORCH[operator](*args)


def _keep_for_forward_mode(ctx: Any, first: Tensor, second: Tensor) -> None:
    if forward_ad._current_level >= 0:
        ctx.save_for_forward(first, second)


def _sum(terms: list[Tensor]) -> Tensor:
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _formatted(gradients: tuple, input: Tensor, weight: Tensor) -> tuple:
    """Gradients in the memory format of PyTorch's: that of the output, whatever the format of its gradient."""
    memory_format = memory_format_of(input, weight)
    return tuple(g if g is None or g.dim() < 4 else g.contiguous(memory_format=memory_format) for g in gradients)


class _Tied(Function):
    """A gradient as it is, but one that requires gradients; see :func:`_tied`."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *operands: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple:
        return (None,) * len(ctx.needs_input_grad)


def _tied(*gradients_and_operands: Tensor | None) -> tuple:
    """Gradients that require gradients where the layer's operands do, though they do not depend on them.

    The gradient of a linear function in its input is constant. PyTorch's own operator makes all its gradients in
    one step, so that each is part of the graph whatever it depends on, and to differentiate it again gives nothing
    and no error. So it is here.
    """
    *gradients, input, weight = gradients_and_operands
    if not _grad_enabled() or _compiling() or forward_ad._current_level >= 0 or _tracing_state() is not None:
        return tuple(gradients)
    if not (input.requires_grad or weight.requires_grad):
        return tuple(gradients)
    return tuple(g if g is None or g.requires_grad else _Tied.apply(g, input, weight) for g in gradients)


class _ConvTranspose(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, layer: Layer) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.layer = layer
        if layer.number is not None:
            return run_conv_transpose(input, weight, bias, layer.number)
        _keep_for_forward_mode(ctx, input, weight)
        return _below(CONV_TRANSPOSE, input, weight, bias, layer.geometry, layer.groups, layer.allow_tf32)

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple:
        input, weight = ctx.saved_tensors
        needs_input, needs_weight, needs_bias, _ = ctx.needs_input_grad
        if (
            ctx.layer.number is not None
            and type(gy) is Tensor
            and not _grad_enabled()
            and not watched()
            and not _is_batched(gy)  # by autograd.grad(…, is_grads_batched=True), which is not torch.func's vmap
        ):
            needs = (needs_input, needs_weight, needs_bias)
            return (*_run_backward(gy, input, weight, needs, ctx.layer), None)
        gradients = (
            grad_input(gy, weight, ctx.layer) if needs_input else None,
            grad_weight(input, gy, weight.shape[2:], ctx.layer) if needs_weight else None,
            gy.sum([0, *range(2, gy.dim())]) if needs_bias else None,
        )
        if _functorch_active() or _is_batched(gy):
            return (*gradients, None)
        return (*_tied(*_formatted(gradients, input, weight), input, weight), None)

    @staticmethod
    def jvp(ctx: Any, d_input: Tensor | None, d_weight: Tensor | None, d_bias: Tensor | None, _: Any) -> Tensor:
        input, weight = ctx.saved_tensors
        if d_input is None and d_weight is None:
            d_input = torch.zeros_like(input)  # a tangent of the bias alone still has the output's size
        terms = []
        if d_input is not None:
            terms.append(conv_transpose(d_input, weight, d_bias, ctx.layer))
        if d_weight is not None:
            terms.append(conv_transpose(input, d_weight, None if terms else d_bias, ctx.layer))
        return _sum(terms)


class _GradInput(Function):
    @staticmethod
    def forward(ctx: Any, gy: Tensor, weight: Tensor, layer: Layer) -> Tensor:
        ctx.save_for_backward(gy, weight)
        ctx.layer = layer
        if layer.number is not None:
            return _run_grad_input(gy, weight, layer)
        _keep_for_forward_mode(ctx, gy, weight)
        return _below(GRAD_INPUT, gy, weight, layer.geometry, layer.groups, layer.allow_tf32)

    @staticmethod
    def backward(ctx: Any, gx: Tensor) -> tuple:
        gy, weight = ctx.saved_tensors
        needs_gy, needs_weight, _ = ctx.needs_input_grad
        return (
            conv_transpose(gx, weight, None, ctx.layer) if needs_gy else None,
            grad_weight(gx, gy, weight.shape[2:], ctx.layer) if needs_weight else None,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, d_gy: Tensor | None, d_weight: Tensor | None, _: Any) -> Tensor:
        gy, weight = ctx.saved_tensors
        terms = []
        if d_gy is not None:
            terms.append(grad_input(d_gy, weight, ctx.layer))
        if d_weight is not None:
            terms.append(grad_input(gy, d_weight, ctx.layer))
        return _sum(terms)


class _GradWeight(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, gy: Tensor, kernel_size: Sequence[int], layer: Layer) -> Tensor:
        ctx.save_for_backward(input, gy)
        ctx.layer = layer
        ctx.kernel_size = kernel_size
        if layer.number is not None:
            return _run_grad_weight(input, gy, kernel_size, layer)
        _keep_for_forward_mode(ctx, input, gy)
        return _below(GRAD_WEIGHT, input, gy, kernel_size, layer.geometry, layer.groups, layer.allow_tf32)

    @staticmethod
    def backward(ctx: Any, gw: Tensor) -> tuple:
        input, gy = ctx.saved_tensors
        needs_input, needs_gy, *_ = ctx.needs_input_grad
        return (
            grad_input(gy, gw, ctx.layer) if needs_input else None,
            conv_transpose(input, gw, None, ctx.layer) if needs_gy else None,
            None,
            None,
        )

    @staticmethod
    def jvp(ctx: Any, d_input: Tensor | None, d_gy: Tensor | None, *_: Any) -> Tensor:
        input, gy = ctx.saved_tensors
        terms = []
        if d_input is not None:
            terms.append(grad_weight(d_input, gy, ctx.kernel_size, ctx.layer))
        if d_gy is not None:
            terms.append(grad_weight(input, d_gy, ctx.kernel_size, ctx.layer))
        return _sum(terms)


# Function.apply is written in Python and sees to torch.func first; what it then calls is this. Eager calls
# have asked about torch.func themselves, and the kernels below are called beneath it.
_apply_conv_transpose = super(Function, _ConvTranspose).apply
_apply_grad_input = super(Function, _GradInput).apply
_apply_grad_weight = super(Function, _GradWeight).apply


def _register(operator: torch._ops.OpOverload, apply: Any) -> None:
    def kernel(*args: Any) -> Tensor:
        tracked = _grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in args)
        if not tracked and forward_ad._current_level < 0:
            return _run(operator, args)
        *operands, geometry, groups, allow_tf32 = args
        layer = Layer(geometry, groups, allow_tf32)
        if not _functorch_active():
            return apply(*operands, layer)
        # Beneath torch.func PyTorch has unwrapped the level this call belongs to: it is a single one.
        with enable_single_level_autograd_function():
            return apply(*operands, layer)

    LIBRARY.impl(operator, kernel, "Autograd")


_register(CONV_TRANSPOSE, _apply_conv_transpose)
_register(GRAD_INPUT, _apply_grad_input)
_register(GRAD_WEIGHT, _apply_grad_weight)
