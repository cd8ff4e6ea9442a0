"""Times tconv on the GPU beside PyTorch, verified against float64 first.

    python3 bench/gpu/bench.py --library build/libtconv.so [--problems bench/gpu/problems.txt] [--json out.json]

For each problem and precision: the whole output of tconv and of PyTorch against a float64 result, then the
median of CUDA-event timings of tconv (weights packed once), of PyTorch's default and of PyTorch autotuned in
both layouts. Copy rate and matrix rates are measured in the same run; a problem's floor is the larger of its
bytes over the copy rate and its FLOPs over the matrix rate of its precision. Needs PyTorch with CUDA; talks
to tconv through its C ABI.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

PRECISIONS = ("tf32", "fp32", "fp16", "bf16")
DTYPES = {"tf32": torch.float32, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
BARS = {"tf32": 4e-4, "fp32": 1e-6, "fp16": 1e-3, "bf16": 8e-3}
I64x3, I64x5 = ctypes.c_int64 * 3, ctypes.c_int64 * 5
FORWARD, CUDA = 0, 1


class Layer(ctypes.Structure):
    _fields_ = [
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
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("sizes", I64x5),
        ("strides", I64x5),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("executor", ctypes.c_void_p),
        ("packed_weight", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    ]


def view(t: torch.Tensor) -> Tensor:
    dtype = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}[t.dtype]
    pad = [0] * (5 - t.dim())
    return Tensor(t.data_ptr(), dtype, t.dim(), I64x5(*t.shape, *pad), I64x5(*t.stride(), *pad))


class Tconv:
    """One layer, planned, bound and packed."""

    def __init__(
        self,
        library: ctypes.CDLL,
        problem: dict,
        precision: str,
        x: torch.Tensor,
        w: torch.Tensor,
        b: torch.Tensor | None,
        y: torch.Tensor,
    ) -> None:
        self.lib = library
        layer = Layer()
        library.tconv_layer_init(ctypes.byref(layer))
        layer.dims, layer.in_channels, layer.out_channels = problem["dims"], problem["in"], problem["out"]
        for name in ("kernel", "stride", "padding", "output_padding", "dilation"):
            getattr(layer, name)[: problem["dims"]] = problem[name]
        layer.groups, layer.bias = problem["groups"], int(b is not None)
        layer.dtype, layer.precision = view(x).dtype, int(precision == "tf32")
        layer.layout = int(x.dim() > 3 and x.stride(1) == 1 and x.size(1) > 1)
        plan, binding, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        self.check(library.tconv_plan_create(ctypes.byref(layer), CUDA, x.device.index or 0, ctypes.byref(plan)))
        self.check(
            library.tconv_bind(
                plan, ctypes.c_int64(x.size(0)), I64x3(*x.shape[2:], *[1] * (5 - x.dim())), ctypes.byref(binding)
            )
        )
        self.check(library.tconv_packed_weight_bytes(plan, FORWARD, ctypes.byref(size)))
        self.packed = torch.empty(max(size.value, 16), dtype=torch.uint8, device=x.device)
        self.options = Options(stream=torch.cuda.current_stream().cuda_stream)
        self.tensors = [view(t) if t is not None else None for t in (x, w, b, y)]
        if size.value:
            self.check(
                library.tconv_pack_weight(
                    plan,
                    FORWARD,
                    ctypes.byref(self.tensors[1]),
                    ctypes.c_void_p(self.packed.data_ptr()),
                    ctypes.byref(self.options),
                )
            )
            self.options.packed_weight = self.packed.data_ptr()
        self.check(library.tconv_workspace_bytes(binding, FORWARD, 1, ctypes.byref(size)))
        self.workspace = torch.empty(max(size.value, 16), dtype=torch.uint8, device=x.device)
        self.options.workspace, self.options.workspace_bytes = self.workspace.data_ptr(), size.value
        self.binding, self.plan = binding, plan

    def check(self, status: int) -> None:
        if status:
            self.lib.tconv_last_error.restype = ctypes.c_char_p
            raise RuntimeError(self.lib.tconv_last_error().decode())

    def __call__(self) -> None:
        x, w, b, y = (ctypes.byref(t) if t is not None else None for t in self.tensors)
        self.check(self.lib.tconv_forward(self.binding, x, w, b, y, ctypes.byref(self.options)))


def median_ms(run: Callable[[], object], repetitions: int = 11) -> float:
    for _ in range(3):
        run()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repetitions + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) for a, b in itertools.pairwise(events))
    return times[len(times) // 2]


def ceilings() -> dict[str, float]:
    source = torch.randn(1 << 28, device="cuda")
    rates = {
        "copy_TBs": 2 * source.nbytes / median_ms(functools.partial(torch.empty_like(source).copy_, source)) / 1e9
    }
    del source
    n = 8192
    for name in PRECISIONS:
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        p, q = (torch.randn(n, n, device="cuda", dtype=DTYPES[name]) for _ in range(2))
        rates["gemm_" + name] = 2 * n**3 / median_ms(functools.partial(torch.mm, p, q), 5) / 1e9
    return rates


def read_problems(path: str) -> list[dict]:
    problems = []
    for line in Path(path).read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        name, *numbers = line.split()
        dims, batch, cin, cout, groups, *rest = map(int, numbers)
        fields = [rest[i * dims : (i + 1) * dims] for i in range(6)]
        keys = ("input", "kernel", "stride", "padding", "output_padding", "dilation")
        problems.append(
            {
                "name": name,
                "dims": dims,
                "batch": batch,
                "in": cin,
                "out": cout,
                "groups": groups,
                **dict(zip(keys, fields, strict=True)),
            }
        )
    return problems


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    error = norm = 0.0
    for g, w in zip(got.split(1), want.split(1), strict=True):  # image by image: the double copies stay small
        error += (g.double() - w).square().sum().item()
        norm += w.square().sum().item()
    return math.sqrt(error / norm) if math.isfinite(error) else math.inf


def run_problem(library: ctypes.CDLL, problem: dict, precision: str, rates: dict[str, float], bias: bool) -> dict:
    dims, dtype = problem["dims"], DTYPES[precision]
    conv = getattr(torch.nn.functional, f"conv_transpose{dims}d")
    keywords = {k: problem[k] for k in ("stride", "padding", "output_padding", "dilation", "groups")}
    shape = (problem["in"], problem["out"] // problem["groups"], *problem["kernel"])
    scale = 1 / math.sqrt(problem["in"] // problem["groups"] * math.prod(problem["kernel"]))
    x = (torch.rand(problem["batch"], problem["in"], *problem["input"], device="cuda") * 2 - 1).to(dtype)
    w = ((torch.rand(shape, device="cuda") * 2 - 1) * scale).to(dtype)
    b = (torch.rand(problem["out"], device="cuda") * 2 - 1).to(dtype) if bias else None
    tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = False
    default = functools.partial(conv, x, w, b, **keywords)
    y = torch.full_like(default(), float("nan"))
    ours = Tconv(library, problem, precision, x, w, b, y)
    ours()
    torch.cuda.synchronize()
    # float64 by our own fp64 kernel, itself checked against the oracle by gpu_check: cuDNN has none that is
    # fast enough for the large problems.
    want = torch.empty_like(y, dtype=torch.float64)
    Tconv(library, problem, "fp64", x.double(), w.double(), b.double() if bias else None, want)()
    error, theirs = relative_error(y, want), relative_error(default(), want)
    del want
    row = {
        "name": problem["name"],
        "precision": precision,
        "error": error,
        "pytorch_error": theirs,
        "right": error <= BARS[precision],
    }
    row["tconv_ms"] = median_ms(ours)
    row["pytorch_ms"] = median_ms(default, 7)
    torch.backends.cudnn.benchmark = True
    row["pytorch_tuned_ms"] = median_ms(default, 7)
    if dims > 1:
        format = torch.channels_last if dims == 2 else torch.channels_last_3d
        xl, wl = x.to(memory_format=format), w.to(memory_format=format)
        row["pytorch_tuned_last_ms"] = median_ms(lambda: conv(xl, wl, b, **keywords), 7)
    flops = 2 * x.numel() * math.prod(shape[1:])
    bytes_ = sum(t.numel() * t.element_size() for t in (x, w, y))
    row["floor_ms"] = max(bytes_ / rates["copy_TBs"], flops / rates["gemm_" + precision]) / 1e9
    return row


def geometric_mean(values: Iterable[float]) -> float:
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--problems", default="bench/gpu/problems.txt")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--bias", action="store_true", help="layers with a bias; the listed problems have none")
    parser.add_argument("--only", default="", help="comma-separated names")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.library)
    torch.manual_seed(0)
    rates = ceilings()
    result = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "rates": rates,
        "rows": [],
    }
    print({k: round(v, 2) for k, v in rates.items()}, flush=True)
    only = set(filter(None, arguments.only.split(",")))
    for precision in arguments.precisions.split(","):
        for problem in read_problems(arguments.problems):
            if only and problem["name"] not in only:
                continue
            row = run_problem(library, problem, precision, rates, arguments.bias)
            result["rows"].append(row)
            torch.cuda.empty_cache()
            print(
                f"{row['name']:18s} {precision} tconv {row['tconv_ms']:8.4f}  "
                f"floor x{row['tconv_ms'] / row['floor_ms']:5.1f}"
                f"  pytorch {row['pytorch_ms']:8.4f} x{row['pytorch_ms'] / row['tconv_ms']:5.2f}"
                f"  tuned {row['pytorch_tuned_ms']:8.4f}"
                f"  last {row.get('pytorch_tuned_last_ms', float('nan')):8.4f}"
                f"  error {row['error']:.1e} ({row['pytorch_error']:.1e}) {'' if row['right'] else 'WRONG'}",
                flush=True,
            )
        rows = [r for r in result["rows"] if r["precision"] == precision and r["name"].startswith("kb")]
        print(
            f"{precision}: geometric mean over kb*: "
            f"x{geometric_mean(r['pytorch_ms'] / r['tconv_ms'] for r in rows):.2f} "
            f"PyTorch default, x{geometric_mean(r['tconv_ms'] / r['floor_ms'] for r in rows):.2f} the floor",
            flush=True,
        )
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(r["right"] for r in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
