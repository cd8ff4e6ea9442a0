"""Exported layers: what the exporter writes, that it stands alone, and on a GPU that it is right."""

import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import cpp_extension

import tconv
from test_kernelbench import PROBLEMS, load

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "kernelbench" / "exported"
MISSION = (64, 74, 79, 81)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def load_file(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exported(number):
    return load_file(FOLDER / f"kb{number}.py")


def reference(number, **changes):
    dims, arguments, theirs, _ = PROBLEMS[number]
    return getattr(nn, f"ConvTranspose{dims}d")(*arguments[:3], **{"bias": False, **theirs, **changes})


def benchmark_input_size(number):
    problems = json.loads((ROOT / "bench" / "problems.json").read_text())["problems"]
    problem = next(p for p in problems if p["name"] == f"kb{number}")
    return problem["batch"], problem["in_channels"], *problem["spatial"]


@pytest.mark.parametrize("number", MISSION)
def test_the_files_in_the_repository_are_what_the_exporter_writes(number):
    text = (FOLDER / f"kb{number}.py").read_text()
    signature = inspect.signature(load(number).__init__)
    again = tconv.export(
        reference(number),
        input_size=benchmark_input_size(number),
        precision="tf32",
        name=f"tconv_kb{number}",
        constructor=list(signature.parameters)[1:],
    )

    def without_title(file):
        lines = file.splitlines()
        return lines[:1] + lines[2:]

    assert without_title(again) == without_title(text)


@pytest.mark.parametrize("number", MISSION)
def test_the_benchmarks_constructor_and_weights(number):
    arguments = PROBLEMS[number][1]
    torch.manual_seed(42)
    expected = reference(number)
    torch.manual_seed(42)
    model = exported(number).ModelNew(*arguments)
    assert torch.equal(next(model.parameters()), expected.weight)
    ours, theirs = inspect.signature(type(model)), inspect.signature(load(number))
    assert list(ours.parameters) == list(theirs.parameters)


def test_other_layers_are_refused():
    with pytest.raises(ValueError, match=r"stride must be \(1,\)"):
        exported(64).ModelNew(128, 128, 3, 2)
    with pytest.raises(ValueError, match="in_channels must be 128"):
        exported(64).ModelNew(64, 128, 3)
    with pytest.raises(RuntimeError, match="must be a CUDA tensor"):
        exported(64).ModelNew()(torch.randn(1, 128, 8))


def test_nothing_of_tconv_is_imported():
    script = (
        f"import sys; sys.modules['tconv'] = None; sys.path.insert(0, {str(FOLDER)!r});"
        "import kb64, kb74, kb79, kb81; kb81.ModelNew()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_cannot_be_exported_is_refused():
    layer = nn.ConvTranspose1d(16, 16, 3)
    with pytest.raises(TypeError, match="ConvTranspose1d"):
        tconv.export(nn.Linear(2, 2), input_size=(1, 2))
    with pytest.raises(ValueError, match="input_size"):
        tconv.export(layer, input_size=(1, 8, 100))
    with pytest.raises(RuntimeError, match="'nonsense'"):
        tconv.export(layer, input_size=(1, 16, 100), constructor=["nonsense"])
    with pytest.raises(RuntimeError, match="'kernel_size' twice"):
        tconv.export(layer, input_size=(1, 16, 100), constructor=["kernel_size", "kernel_size"])
    far = nn.ConvTranspose2d(32, 32, 9, dilation=100)
    with pytest.raises(RuntimeError, match=r"the kernel family 'generic'.*use tconv\.nn\.ConvTranspose2d"):
        tconv.export(far, input_size=(1, 32, 500, 500))
    with pytest.raises(RuntimeError, match="name must be letters"):
        tconv.export(layer, input_size=(1, 16, 100), name="a b")


def test_export_writes_its_text(tmp_path):
    layer = nn.ConvTranspose2d(16, 24, (3, 5), stride=(1, 2), dtype=torch.float16)
    text = tconv.export(layer, tmp_path / "layer.py", input_size=(2, 16, 9, 10))
    assert (tmp_path / "layer.py").read_text() == text
    module = load_file(tmp_path / "layer.py")
    assert module.DTYPE is torch.float16
    assert str(module.ModelNew().conv_transpose2d) == str(layer)


@needs_gpu
@pytest.mark.parametrize("number", MISSION)
def test_kernelbench_and_gradients(number):
    arguments = PROBLEMS[number][1]
    batch, *rest = benchmark_input_size(number)
    for seed in range(5):
        torch.manual_seed(seed)
        theirs = reference(number).cuda()
        torch.manual_seed(seed)
        ours = exported(number).ModelNew(*arguments).cuda()
        x = torch.rand(min(batch, 8), *rest, device="cuda")
        with torch.no_grad():
            torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    torch.backends.cudnn.deterministic = True
    small = [x[:2].detach().clone().requires_grad_() for _ in range(2)]
    outputs = [model(s) for model, s in zip((ours, theirs), small, strict=True)]
    cotangent = torch.rand_like(outputs[0])
    for output in outputs:
        output.backward(cotangent)
    torch.backends.cudnn.deterministic = False
    assert torch.equal(small[0].grad, small[1].grad)
    assert torch.equal(next(ours.parameters()).grad, theirs.weight.grad)


@needs_gpu
@pytest.mark.parametrize("number", MISSION)
def test_any_batch_length_and_alignment_with_bias(number):
    exact = reference(number, bias=True).cuda().double()
    ours = exported(number).ModelNew(*PROBLEMS[number][1], bias=True).cuda()
    next(ours.children()).load_state_dict(exact.state_dict())
    for batch, extra in ((1, 0), (3, 1), (2, 2), (5, 3)):
        sizes = [13 + extra + 4 * d for d in range(PROBLEMS[number][0])]
        padded = torch.randn(batch, PROBLEMS[number][1][0], *sizes[:-1], sizes[-1] + extra, device="cuda")
        x = padded[..., extra:]  # a view that begins anywhere
        want = exact(x.double())
        assert (ours(x).double() - want).norm() / want.norm() < 4e-4


GOOD_SIZES = (1, 128, 8), (128, 128, 3), (128,)
# Which of x, weight and bias differs from what kb64 wants, in what, and what is said of it.
BAD_CALLS = (
    (0, {"device": "cpu"}, "x must be a CUDA tensor"),
    (1, {"device": "cpu"}, "weight must be a CUDA tensor"),
    (2, {"device": "cpu"}, "bias must be a CUDA tensor"),
    (0, {"dtype": torch.float64}, "x must hold .*(float32|Float), got .*(float64|Double)"),
    (1, {"dtype": torch.float16}, "weight must hold .*(float32|Float), got .*(float16|Half)"),
    (2, {"dtype": torch.bfloat16}, "bias must hold .*(float32|Float), got .*(bfloat16|BFloat16)"),
    (0, {"size": (1, 64, 8)}, "x must have 128 channels, got 64"),
    (0, {"size": (128, 8)}, "x must have 3 dimensions, got 2"),
    (0, {"size": (1, 128, 8, 8)}, "x must have 3 dimensions, got 4"),
    (0, {"size": (1, 128, 0)}, "x is too small: its size 0 in dimension 0"),
    (1, {"size": (128, 128, 2)}, "weight must have sizes"),
    (1, {"size": (64, 128, 3)}, "weight must have sizes"),
    (2, {"size": (100,)}, "bias must have"),
)


def arguments_with(wrong=None, changes=None, device="cuda"):
    return [
        torch.empty(**{"size": size, "device": device, **((changes or {}) if at == wrong else {})})
        for at, size in enumerate(GOOD_SIZES)
    ]


@pytest.mark.parametrize(("wrong", "changes", "message"), BAD_CALLS)
def test_bad_arguments_are_refused_before_anything_is_compiled(wrong, changes, message):
    with FakeTensorMode():  # CUDA tensors where there is no GPU
        with pytest.raises(RuntimeError, match=message):
            exported(64)._check(*arguments_with(wrong, changes))
        exported(64)._check(*arguments_with())
        exported(64)._check(*arguments_with()[:2], None)


@needs_gpu
def test_a_module_refuses_what_it_is_not_made_for():
    model = exported(64).ModelNew().cuda()
    with pytest.raises(RuntimeError, match="must have 128 channels, got 64"):
        model(torch.randn(1, 64, 8, device="cuda"))
    with pytest.raises(RuntimeError, match=r"must hold torch.float32, got torch.float64"):
        model(torch.randn(1, 128, 8, device="cuda", dtype=torch.float64))
    with pytest.raises(RuntimeError, match="must have 3 dimensions"):
        model(torch.randn(1, 128, 8, 8, device="cuda"))
    with pytest.raises(RuntimeError, match="weight must be a CUDA tensor"):
        exported(64).ModelNew()(torch.randn(1, 128, 8, device="cuda"))
    assert model(torch.randn(0, 128, 8, device="cuda")).shape == (0, 128, 10)


def expect_refusals(forward, device):
    """Calls kb64's forward with everything it must refuse."""
    good = arguments_with(device=device)
    calls = [(arguments_with(wrong, changes, device), message) for wrong, changes, message in BAD_CALLS]
    for at, name in enumerate(("x", "weight", "bias")):
        apart = torch.empty(*GOOD_SIZES[at], 2, device=device)[..., 0]
        calls.append(([*good[:at], apart, *good[at + 1 :]], f"{name} must be contiguous"))
    for arguments, message in calls:
        print("expected:", message, flush=True)
        with pytest.raises(RuntimeError, match=message):
            forward(*arguments)


def run_apart(script, *arguments):
    """In a process of its own, so that a crash is one failed test that says in which call it was."""
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    assert result.returncode == 0, result.stdout + result.stderr


EXTENSION_CHECKS = """
import torch
from test_export import arguments_with, expect_refusals, exported

extension = exported(64)._extension(*torch.cuda.get_device_capability())
expect_refusals(extension.forward, "cuda")
assert extension.forward(*arguments_with()).shape == (1, 128, 10)
"""


@needs_gpu
def test_checks_of_the_extension():
    run_apart(EXTENSION_CHECKS)


# What the host's part of kb64 needs of CUDA and of its kernels, and a call of it with meta tensors in the place of
# CUDA's. The guard is the first thing after the checks.
HOST_FRAME = """
#include <ATen/ATen.h>
#include <torch/library.h>
#include "cuda/kernels/launch_rules.cuh"
namespace c10::cuda {
struct CUDAGuard { explicit CUDAGuard(Device) { TORCH_CHECK(false, "nothing is wrong"); } };
int current_device() { return 0; }
void* getCurrentCUDAStream() { return nullptr; }
}
struct dim3 { dim3(unsigned) {} };
enum { cudaDevAttrMultiProcessorCount, cudaFuncAttributeMaxDynamicSharedMemorySize };
int cudaDeviceGetAttribute(int*, int, int) { return 1; }
int cudaFuncSetAttribute(const void*, int, int) { return 1; }
int cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, void*) { return 1; }
#define C10_CUDA_CHECK(call) TORCH_CHECK((call) == 0, "no CUDA")
namespace tconv::device::selected {
constexpr long long packed_words = 1000;
constexpr bool scaled = true;
void find(ScaleParams) {}
template <class Begin> void find_scales(const Begin& begin) { begin(find, 0); }
namespace packing { void pack(PackParams) {} constexpr int shared_bytes = 0; constexpr GemmConfig config{}; }
struct Turning { void (*one)(TurnParams); void (*several)(TurnParams); int shared_bytes; };
template <class Attempt> bool any(const Attempt&) { return false; }
}
@HOST@
at::Tensor as_cuda(const at::Tensor& t) {
  if (!t.is_meta()) return t;
  c10::Storage nothing(c10::Storage::use_byte_size_t(), 0, at::DataPtr(nullptr, at::Device(at::kCUDA, 0)));
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(nothing), c10::DispatchKeySet(c10::DispatchKey::CUDA), t.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
  return made;
}
at::Tensor call(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  return forward(as_cuda(x), as_cuda(weight), bias ? std::optional(as_cuda(*bias)) : bias);
}
TORCH_LIBRARY(tconv_exported_host, library) {
  library.def("forward(Tensor x, Tensor weight, Tensor? bias) -> Tensor", &call);
}
"""

HOST_CHECKS = """
import sys
import pytest
import torch
from test_export import arguments_with, expect_refusals

torch.ops.load_library(sys.argv[1])
forward = torch.ops.tconv_exported_host.forward
expect_refusals(forward, "meta")
for good in (arguments_with(device="meta"), [*arguments_with(device="meta")[:2], None]):
    with pytest.raises(RuntimeError, match="nothing is wrong"):
        forward(*good)
"""


def test_checks_of_the_extension_with_a_cpp_library_of_its_own(tmp_path):
    """The host's checks, compiled for PyTorch on the CPU with a second libstdc++ beside PyTorch's."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    library = subprocess.run(
        [compiler, "-print-file-name=libstdc++.a"], check=True, capture_output=True, text=True
    )
    if not Path(library.stdout.strip()).is_absolute():
        pytest.skip("no static C++ library")
    text = exported(64).CUDA_SOURCE
    host = re.sub(r"#include <c10/.*\n", "", text[text.index("// ---- Calls from PyTorch") :])
    source, result = tmp_path / "host.cpp", tmp_path / "host.so"
    source.write_text(HOST_FRAME.replace("@HOST@", host))
    command = [compiler, "-std=c++20", "-O1", "-w", "-fPIC", "-shared", "-static-libstdc++", str(source)]
    command += ["-o", str(result), "-I", str(ROOT / "src"), "-I", str(ROOT / "src/cuda/kernels")]
    command += [flag for path in cpp_extension.include_paths() for flag in ("-isystem", path)]
    command += ["-L", cpp_extension.TORCH_LIB_PATH, "-ltorch_cpu", "-lc10"]
    subprocess.run(command, check=True)
    run_apart(HOST_CHECKS, str(result))
