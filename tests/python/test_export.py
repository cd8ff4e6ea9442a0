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


@needs_gpu
def test_checks_of_the_extension():
    model = exported(64).ModelNew().cuda()
    with pytest.raises(RuntimeError, match="must have 128 channels, got 64"):
        model(torch.randn(1, 64, 8, device="cuda"))
    with pytest.raises(RuntimeError, match="must hold Float"):
        model(torch.randn(1, 128, 8, device="cuda", dtype=torch.float64))
    with pytest.raises(RuntimeError, match="must have 3 dimensions"):
        model(torch.randn(1, 128, 8, 8, device="cuda"))
    assert model(torch.randn(0, 128, 8, device="cuda")).shape == (0, 128, 10)
