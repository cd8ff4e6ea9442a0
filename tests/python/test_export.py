"""Exported layers: what the exporter writes, that it stands alone, and on a GPU that it is right."""

import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

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


def arguments_with(wrong=None, changes=None):
    return [
        torch.empty(**{"size": size, "device": "cuda", **((changes or {}) if at == wrong else {})})
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


# In a process of its own, so that a crash is one failed test that says in which call it was.
EXTENSION_CHECKS = """
import re
import torch
from test_export import BAD_CALLS, GOOD_SIZES, arguments_with, exported

extension = exported(64)._extension(*torch.cuda.get_device_capability())
good = arguments_with()
calls = [(arguments_with(wrong, changes), message) for wrong, changes, message in BAD_CALLS]
for at, name in enumerate(("x", "weight", "bias")):
    apart = torch.empty(*GOOD_SIZES[at], 2, device="cuda")[..., 0]
    calls.append(([*good[:at], apart, *good[at + 1 :]], f"{name} must be contiguous"))
for arguments, message in calls:
    print("expected:", message, flush=True)
    try:
        extension.forward(*arguments)
    except RuntimeError as error:
        assert re.search(message, str(error)), str(error)
    else:
        raise AssertionError("no error")
assert extension.forward(*good).shape == (1, 128, 10)
"""


@needs_gpu
def test_checks_of_the_extension():
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", EXTENSION_CHECKS],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    assert result.returncode == 0, result.stdout + result.stderr
