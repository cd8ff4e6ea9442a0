"""Loads the operator library and names its operators.

Each operator is the gradient of the other two, so derivatives of every order are made of them:

========================  =================================  ==================================
operator                  computes                           is
========================  =================================  ==================================
``CONV_TRANSPOSE``        ``y = T(x, w) + bias``             the layer
``GRAD_INPUT``            ``gx = C(gy, w)``                  the adjoint of T in x
``GRAD_WEIGHT``           ``gw = W(x, gy)``                  the adjoint of T in w
========================  =================================  ==================================

All three take the layer's geometry as one list, see :mod:`tconv._layer`. The ``run_`` functions are the same
for eager calls: they take a layer's number, and nothing stands between them and the kernels. Those for gradients
have kernels for CPU tensors alone; the gradients of CUDA tensors are in :mod:`tconv._pytorch`.
"""

import ctypes
from pathlib import Path

import torch

_LIBRARY = Path(__file__).parent / "libtconv_torch.so"

if not _LIBRARY.exists():
    raise ImportError(
        f"tconv's operator library is missing: {_LIBRARY} does not exist. "
        "Install the package with pip (see docs/pytorch.md); the source folder alone is not enough."
    )
torch.ops.load_library(str(_LIBRARY))

CONV_TRANSPOSE = torch.ops.tconv.conv_transpose.default
GRAD_INPUT = torch.ops.tconv.conv_transpose_grad_input.default
GRAD_WEIGHT = torch.ops.tconv.conv_transpose_grad_weight.default

LIBRARY = torch.library.Library("tconv", "IMPL")
"""Where the Python side registers its kernels for the operators."""

layer_number = torch.ops.tconv._layer_number.default

EAGER = ("", "_grad_input", "_grad_weight", "_backward", "_kept", "_by_pytorch")
"""What the names of the operators for eager calls end with."""

for _name in EAGER:
    LIBRARY.impl(f"_conv_transpose{_name}", torch.library.fallthrough_kernel, "Autograd")

# OpOverload.__call__ only forwards to these.
run_conv_transpose = torch.ops.tconv._conv_transpose.default._op
run_grad_input = torch.ops.tconv._conv_transpose_grad_input.default._op
run_grad_weight = torch.ops.tconv._conv_transpose_grad_weight.default._op
run_conv_transpose_kept = torch.ops.tconv._conv_transpose_kept.default._op
"""The layer of a module on a GPU: ``(x, w, bias, number, ticket, frozen)``, see :mod:`tconv._packed`."""
run_backward = torch.ops.tconv._conv_transpose_backward.default._op
"""All gradients of the layer at once: ``(gy, x, w, needs_x, needs_w, needs_bias, number) -> (gx, gw, gb)``."""

# No operator: it is called when tickets are collected, at any moment, and must not be seen by whatever is
# tracing operators at that moment.
OPERATOR_LIBRARY = ctypes.CDLL(str(_LIBRARY))
forget_packed = OPERATOR_LIBRARY.tconv_torch_forget_packed
"""Lets go of the packed weights kept under a ticket's number; returns how many there were."""
forget_packed.argtypes = [ctypes.c_int64]
forget_packed.restype = ctypes.c_int64
