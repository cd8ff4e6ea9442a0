"""libtconv through its C ABI: a layer planned, bound and packed once, then run on any tensors of its shape."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from problems import Problem

FORWARD, CUDA = 0, 1
I64x3, I64x5 = ctypes.c_int64 * 3, ctypes.c_int64 * 5
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}


class _Layer(ctypes.Structure):
    _fields_ = (
        ("dims", ctypes.c_int),
        ("in_channels", ctypes.c_int64),
        ("out_channels", ctypes.c_int64),
        ("kernel", I64x3),
        ("stride", I64x3),
        ("padding", I64x3),
        ("output_padding", I64x3),
        ("dilation", I64x3),
        ("groups", ctypes.c_int64),
        ("bias", ctypes.c_int),
        ("dtype", ctypes.c_int),
        ("precision", ctypes.c_int),
        ("layout", ctypes.c_int),
    )


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("sizes", I64x5),
        ("strides", I64x5),
    )


class _Options(ctypes.Structure):
    _fields_ = (
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("executor", ctypes.c_void_p),
        ("packed_weight", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


def _view(t: torch.Tensor) -> _Tensor:
    pad = [0] * (5 - t.dim())
    return _Tensor(t.data_ptr(), DTYPES[t.dtype], t.dim(), I64x5(*t.shape, *pad), I64x5(*t.stride(), *pad))


class Library:
    def __init__(self, path: Path) -> None:
        self.c = ctypes.CDLL(str(path))
        self.c.tconv_last_error.restype = ctypes.c_char_p
        self.c.tconv_version.restype = ctypes.c_char_p

    def version(self) -> str:
        return self.c.tconv_version().decode()

    def check(self, status: int) -> None:
        if status:
            raise RuntimeError(self.c.tconv_last_error().decode())


class BoundLayer:
    """A problem's layer on the current GPU. Making one compiles its kernels, or takes them from the cache."""

    def __init__(self, library: Library, problem: Problem, dtype: torch.dtype, tf32: bool, last: bool) -> None:
        self.library = library
        c = library.c
        layer = _Layer()
        c.tconv_layer_init(ctypes.byref(layer))
        layer.dims, layer.groups = problem.dims, problem.groups
        layer.in_channels, layer.out_channels = problem.in_channels, problem.out_channels
        for name in ("kernel", "stride", "padding", "output_padding", "dilation"):
            values = getattr(problem, name)
            getattr(layer, name)[: problem.dims] = values
        layer.dtype, layer.precision, layer.layout = DTYPES[dtype], int(tf32), int(last)
        self.plan, self.binding = ctypes.c_void_p(), ctypes.c_void_p()
        device = torch.cuda.current_device()
        library.check(c.tconv_plan_create(ctypes.byref(layer), CUDA, device, ctypes.byref(self.plan)))
        size = I64x3(*problem.spatial, *[1] * (3 - problem.dims))
        batch = ctypes.c_int64(problem.batch)
        library.check(c.tconv_bind(self.plan, batch, size, ctypes.byref(self.binding)))
        self.packed: torch.Tensor | None = None
        self.weight: _Tensor | None = None

    def __del__(self) -> None:
        self.library.c.tconv_binding_destroy(self.binding)
        self.library.c.tconv_plan_destroy(self.plan)

    def pack(self, weight: torch.Tensor) -> None:
        """Packs the weight for all runs that follow."""
        bytes_ = ctypes.c_size_t()
        c, check = self.library.c, self.library.check
        check(c.tconv_packed_weight_bytes(self.plan, FORWARD, ctypes.byref(bytes_)))
        self.packed = torch.empty(max(bytes_.value, 16), dtype=torch.uint8, device="cuda")
        check(c.tconv_workspace_bytes(self.binding, FORWARD, 1, ctypes.byref(bytes_)))
        self.workspace = torch.empty(max(bytes_.value, 16), dtype=torch.uint8, device="cuda")
        self.tensor, self.weight = weight, _view(weight)
        packed = ctypes.c_void_p(self.packed.data_ptr())
        options = self._options(packed=False)
        check(c.tconv_pack_weight(self.plan, FORWARD, ctypes.byref(self.weight), packed, ctypes.byref(options)))

    def run(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """y = T(x), on PyTorch's current stream."""
        self.library.check(
            self.library.c.tconv_forward(
                self.binding,
                ctypes.byref(_view(x)),
                ctypes.byref(self.weight),
                None,
                ctypes.byref(_view(y)),
                ctypes.byref(self._options(packed=True)),
            )
        )

    def _options(self, packed: bool) -> _Options:
        options = _Options(stream=torch.cuda.current_stream().cuda_stream)
        options.workspace, options.workspace_bytes = self.workspace.data_ptr(), self.workspace.numel()
        if packed:
            options.packed_weight = self.packed.data_ptr()
        return options
