"""libtconv through its C ABI, as a program without PyTorch uses it: plan once, bind a shape, lend memory, run.

Outputs, workspace and packed weights belong to the caller and are kept between runs. Tensors are PyTorch's, taken
as views of their memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from tconv.export import _Layer as Layer
from tconv.export import _library

FORWARD, GRAD_INPUT, GRAD_WEIGHT = range(3)
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
int64 = ctypes.c_int64


class View(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int),
        ("sizes", int64 * 5), ("strides", int64 * 5),
    ]  # fmt: skip


class RunOptions(ctypes.Structure):
    _fields_ = [
        ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t), ("executor", ctypes.c_void_p),
        ("packed_weight", ctypes.c_void_p), ("stream", ctypes.c_void_p),
    ]  # fmt: skip


def load() -> ctypes.CDLL:
    """The library the front end uses."""
    library = _library()
    for struct, size in ((View, library.tconv_tensor_bytes), (RunOptions, library.tconv_run_options_bytes)):
        size.restype = ctypes.c_size_t
        assert size() == ctypes.sizeof(struct), f"{struct.__name__} is not what tconv.h says"
    return library


def view(tensor: torch.Tensor) -> View:
    result = View(data=tensor.data_ptr(), dtype=DTYPES[tensor.dtype], rank=tensor.dim())
    result.sizes[: tensor.dim()] = tensor.shape
    result.strides[: tensor.dim()] = tensor.stride()
    return result


class BoundLayer:
    """A layer of the CPU engine, bound to a batch and an input size."""

    def __init__(
        self, library: ctypes.CDLL, entry: dict, batch: int, threads: int, dtype: torch.dtype = torch.float32
    ) -> None:
        self._library, self._threads = library, threads
        self._plan, self._binding = ctypes.c_void_p(), ctypes.c_void_p()
        layer = Layer()
        library.tconv_layer_init(ctypes.byref(layer))
        layer.dtype = DTYPES[dtype]
        for field in ("dims", "in_channels", "out_channels", "groups"):
            setattr(layer, field, entry[field])
        for field in ("kernel", "stride", "padding", "output_padding", "dilation"):
            getattr(layer, field)[: entry["dims"]] = entry[field]
        cpu, first_device = 0, 0
        self._call("plan_create", ctypes.byref(layer), cpu, first_device, ctypes.byref(self._plan))
        spatial = (int64 * 3)(*entry["spatial"])
        self._call("bind", self._plan, int64(batch), spatial, ctypes.byref(self._binding))

    def __del__(self) -> None:
        self._library.tconv_binding_destroy(self._binding)
        self._library.tconv_plan_destroy(self._plan)

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._library, f"tconv_{name}")(*arguments) != 0:
            raise RuntimeError(self._library.tconv_last_error().decode())

    def _options(self, which: int) -> tuple[RunOptions, torch.Tensor]:
        """Run options with the workspace `which` needs. Room for so many workers is what limits the threads."""
        size = ctypes.c_size_t()
        self._call("workspace_bytes", self._binding, which, self._threads, ctypes.byref(size))
        workspace = torch.empty(max(1, size.value), dtype=torch.uint8)
        return RunOptions(workspace=workspace.data_ptr(), workspace_bytes=size.value), workspace

    def _pack(self, weight: torch.Tensor) -> torch.Tensor:
        size = ctypes.c_size_t()
        self._call("packed_weight_bytes", self._plan, FORWARD, ctypes.byref(size))
        packed = torch.empty(max(1, size.value), dtype=torch.uint8)
        place = ctypes.c_void_p(packed.data_ptr())
        self._call("pack_weight", self._plan, FORWARD, ctypes.byref(view(weight)), place, None)
        return packed

    def forward(self, x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> Callable[[], torch.Tensor]:
        """A run into y. The weight is packed here, once, as for inference."""
        options, workspace = self._options(FORWARD)
        packed = self._pack(weight)
        options.packed_weight = packed.data_ptr()
        tensors = [view(t) for t in (x, weight, y)]
        lent = (workspace, packed, x, weight)  # must live as long as the run that points to them

        def run() -> torch.Tensor:
            x_view, w_view, y_view = map(ctypes.byref, tensors)
            self._call("forward", self._binding, x_view, w_view, None, y_view, ctypes.byref(options))
            return y

        run.lent = lent
        return run

    def backward(
        self, x: torch.Tensor, weight: torch.Tensor, gy: torch.Tensor, gx: torch.Tensor, gw: torch.Tensor
    ) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
        """A run into gx and gw. The weight is packed in every run, since training changes it."""
        for_input, input_workspace = self._options(GRAD_INPUT)
        for_weight, weight_workspace = self._options(GRAD_WEIGHT)
        tensors = [view(t) for t in (x, weight, gy, gx, gw)]
        lent = (input_workspace, weight_workspace, x, weight, gy)

        def run() -> tuple[torch.Tensor, torch.Tensor]:
            x_view, w_view, gy_view, gx_view, gw_view = map(ctypes.byref, tensors)
            self._call("grad_input", self._binding, gy_view, w_view, gx_view, ctypes.byref(for_input))
            self._call("grad_weight", self._binding, x_view, gy_view, gw_view, ctypes.byref(for_weight))
            return gx, gw

        run.lent = lent
        return run
