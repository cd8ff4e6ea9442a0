"""``tconv.export``: a transposed convolution as one Python file that needs PyTorch and a CUDA toolkit alone."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from ._precision import Precision, allow_tf32

_DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
_I64x3 = ctypes.c_int64 * 3


class _Layer(ctypes.Structure):
    """``tconv_layer`` of ``tconv/tconv.h``."""

    _fields_ = (
        ("dims", ctypes.c_int),
        ("in_channels", ctypes.c_int64),
        ("out_channels", ctypes.c_int64),
        ("kernel", _I64x3),
        ("stride", _I64x3),
        ("padding", _I64x3),
        ("output_padding", _I64x3),
        ("dilation", _I64x3),
        ("groups", ctypes.c_int64),
        ("bias", ctypes.c_int),
        ("dtype", ctypes.c_int),
        ("precision", ctypes.c_int),
        ("layout", ctypes.c_int),
    )


def _library() -> ctypes.CDLL:
    """libtconv, which lies beside this file."""
    library = ctypes.CDLL(str(next(Path(__file__).parent.glob("libtconv.so*"))))
    library.tconv_last_error.restype = ctypes.c_char_p
    library.tconv_layer_bytes.restype = ctypes.c_size_t
    if library.tconv_layer_bytes() != ctypes.sizeof(_Layer):
        raise ImportError("libtconv is of another version than the Python package beside it; install tconv again")
    return library


def export(
    module: nn.Module,
    path: str | Path | None = None,
    *,
    input_size: Sequence[int],
    precision: Precision | None = None,
    name: str = "tconv_layer",
    constructor: Sequence[str] = (),
) -> str:
    """Writes a ``ConvTranspose1d``, ``2d`` or ``3d`` as a Python file: its CUDA kernels, a module ``ModelNew``.

    The file needs PyTorch and a CUDA toolkit, and nothing of tconv; the first call of its module compiles it.
    The kernels serve any batch and length; ``input_size``, ``(batch, channels, *size)``, is what their tiles are
    chosen for. Weights are not written: ``ModelNew`` has PyTorch's initialisation and takes the module's
    ``state_dict`` under its own prefix.

    ``precision`` is ``"fp32"``, ``"tf32"`` or ``None``: the module's own, else PyTorch's switches. ``constructor``
    names the parameters of ``ModelNew`` in their order; without it they are those of PyTorch's module. Returns the
    text, and writes it where a ``path`` is given. Needs no GPU.
    """
    dims = {nn.ConvTranspose1d: 1, nn.ConvTranspose2d: 2, nn.ConvTranspose3d: 3}
    kind = next((dims[c] for c in dims if isinstance(module, c)), None)
    if kind is None:
        raise TypeError(f"module must be a ConvTranspose1d, 2d or 3d, got {type(module).__name__}")
    if len(input_size) != kind + 2 or input_size[1] != module.in_channels:
        expected = f"(batch, {module.in_channels}, and {kind} for the size)"
        raise ValueError(f"input_size must be {expected}, got {tuple(input_size)}")
    dtype = module.weight.dtype
    if dtype not in _DTYPES:
        raise TypeError(f"the module's weight must be float16, bfloat16, float32 or float64, got {dtype}")
    tf32 = allow_tf32(precision if precision is not None else getattr(module, "precision", None))
    library = _library()
    layer = _Layer()
    library.tconv_layer_init(ctypes.byref(layer))
    layer.dims, layer.groups = kind, module.groups
    layer.in_channels, layer.out_channels = module.in_channels, module.out_channels
    layer.kernel[:kind] = module.kernel_size
    for field in ("stride", "padding", "output_padding", "dilation"):
        getattr(layer, field)[:kind] = getattr(module, field)
    layer.bias, layer.dtype = module.bias is not None, _DTYPES[dtype]
    layer.precision = int(tf32 and dtype == torch.float32)

    def call(text: ctypes.Array[ctypes.c_char] | None, room: ctypes.c_size_t) -> None:
        status = library.tconv_export(
            ctypes.byref(layer),
            ctypes.c_int64(input_size[0]),
            _I64x3(*input_size[2:], *[1] * (3 - kind)),
            name.encode(),
            ",".join(constructor).encode(),
            text,
            ctypes.byref(room),
        )
        if status:
            raise RuntimeError(library.tconv_last_error().decode())

    size = ctypes.c_size_t(0)
    call(None, size)
    buffer = ctypes.create_string_buffer(size.value)
    call(buffer, size)
    text = buffer.value.decode()
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text
