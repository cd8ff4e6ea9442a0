"""CUDA tensors through the CUDA engine, against float64. Skipped where there is no GPU."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tconv
from layers import TCONV, norm_error, random_layer, relative_error

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

# Precision: dtype, largest error against float64 (relative, in norm).
PRECISIONS = {
    "fp64": (torch.float64, 1e-13),
    "fp32": (torch.float32, 1e-6),
    "tf32": (torch.float32, 4e-4),
    "fp16": (torch.float16, 1e-3),
    "bf16": (torch.bfloat16, 8e-3),
}


@pytest.fixture
def poisoned():
    """New tensors are full of NaN: what a kernel leaves unwritten shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("chunk", range(4))
@pytest.mark.parametrize("precision", PRECISIONS)
def test_random_layers_against_float64(precision, chunk, poisoned):
    dtype, bar = PRECISIONS[precision]
    for seed in range(chunk * 10, (chunk + 1) * 10):
        layer = random_layer(seed, dtype, "cuda", wide=seed % 2 == 0)
        arguments = dict(layer.arguments)
        if dtype == torch.float32:
            layer.arguments["precision"] = precision
        ours = layer.tconv(*layer.operands)
        layer.arguments = arguments
        exact = layer.pytorch(*[tensor.double().cpu().contiguous() for tensor in layer.operands])
        assert ours.dtype == dtype
        assert ours.is_cuda
        error = norm_error(ours, exact)
        assert error <= bar, f"error {error:.3g}, {layer.about}"


@pytest.mark.parametrize("seed", range(6))
def test_memory_formats_are_the_fake_kernels(seed):
    # What torch.compile is told about strides must be what comes out.
    from torch._subclasses.fake_tensor import FakeTensorMode

    layer = random_layer(seed, torch.float32, "cuda")
    geometry = [*layer.arguments["stride"], *layer.arguments["padding"]]
    geometry += [*layer.arguments["output_padding"], *layer.arguments["dilation"]]
    call = (layer.bias, geometry, layer.arguments["groups"], False)
    real = torch.ops.tconv.conv_transpose(layer.input, layer.weight, *call)
    with FakeTensorMode() as mode:
        x, w, b = (None if t is None else mode.from_tensor(t) for t in (layer.input, layer.weight, layer.bias))
        fake = torch.ops.tconv.conv_transpose(x, w, b, *call[1:])
    assert real.stride() == fake.stride()


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_have_the_memory_format_of_the_output(dims, create_graph):
    last = torch.channels_last if dims == 2 else torch.channels_last_3d
    formats = (torch.contiguous_format, last)
    for x_format in formats:
        for w_format in formats:
            for gy_format in formats:
                x = torch.randn(2, 16, *[5] * dims, device="cuda").contiguous(memory_format=x_format)
                w = torch.randn(16, 24, *[3] * dims, device="cuda").contiguous(memory_format=w_format)
                operands = (x.requires_grad_(), w.requires_grad_())
                y = TCONV[dims](*operands, stride=2)
                gy = torch.randn(y.shape, device="cuda").contiguous(memory_format=gy_format)
                expected = last if last in (x_format, w_format) else torch.contiguous_format
                for tensor in (y, *torch.autograd.grad(y, operands, gy, create_graph=create_graph)):
                    assert tensor.is_contiguous(memory_format=expected), (x_format, w_format, gy_format)


@pytest.mark.parametrize("batch", [2, 0])
@pytest.mark.parametrize("create_graph", [False, True])
def test_an_output_without_elements(batch, create_graph):
    sizes = ((batch, 16, 1, 5), (16, 24, 2, 2), (24,))
    operands = [torch.randn(size, device="cuda", requires_grad=True) for size in sizes]
    y = tconv.conv_transpose2d(*operands, padding=(1, 0))
    assert y.is_cuda
    assert y.shape == (batch, 24, 0, 6)
    gradients = torch.autograd.grad(y.sum(), operands, create_graph=create_graph)
    for operand, gradient in zip(operands, gradients, strict=True):
        assert gradient.is_cuda
        assert gradient.shape == operand.shape
        assert not gradient.any()


def test_precision_is_what_was_asked_for():
    x, w = torch.randn(4, 64, 128, device="cuda"), torch.randn(64, 64, 4, device="cuda")
    exact = F.conv_transpose1d(x.double().cpu(), w.double().cpu(), stride=2)

    def error(precision=None):
        return norm_error(tconv.conv_transpose1d(x, w, stride=2, precision=precision), exact)

    assert error("fp32") < 1e-6
    assert 1e-4 < error("tf32") < 4e-4
    assert error() == error("tf32")  # PyTorch's own default
    with torch.backends.cudnn.flags(allow_tf32=False):
        assert error() == error("fp32")


def test_same_bits_run_after_run():
    for dtype in (torch.float32, torch.float16):
        x = torch.randn(3, 100, 9, 11, device="cuda", dtype=dtype)
        w = torch.randn(100, 40, 3, 3, device="cuda", dtype=dtype)
        first = tconv.conv_transpose2d(x, w, stride=2)
        for _ in range(5):
            assert torch.equal(tconv.conv_transpose2d(x, w, stride=2), first)


def test_empty_batch_and_unbatched():
    w, b = torch.randn(8, 6, 4, device="cuda"), torch.randn(6, device="cuda")
    assert tconv.conv_transpose1d(torch.randn(0, 8, 5, device="cuda"), w, b).shape == (0, 6, 8)
    x = torch.randn(8, 5, device="cuda")
    assert torch.equal(tconv.conv_transpose1d(x, w, b), tconv.conv_transpose1d(x[None], w, b)[0])


def test_devices_must_agree():
    with pytest.raises(RuntimeError, match="same device"):
        tconv.conv_transpose1d(torch.randn(1, 2, 3, device="cuda"), torch.randn(2, 2, 2))
    with pytest.raises(RuntimeError, match="same device"):
        tconv.conv_transpose1d(torch.randn(1, 2, 3), torch.randn(2, 2, 2, device="cuda"))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_a_device_that_is_not_the_current_one():
    x, w = torch.randn(2, 64, 9, device="cuda:1"), torch.randn(64, 32, 4, device="cuda:1")
    with torch.cuda.device(0):
        ours = tconv.conv_transpose1d(x, w, stride=2, precision="fp32")
        assert torch.cuda.current_device() == 0
    exact = F.conv_transpose1d(x.double().cpu(), w.double().cpu(), stride=2)
    assert ours.device == x.device
    assert norm_error(ours, exact) <= 1e-6


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_are_pytorchs(dims):
    torch.manual_seed(dims)
    arguments = {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}
    x = torch.randn(2, 8, *[6] * dims, device="cuda")
    w, b = torch.randn(8, 5, *[3] * dims, device="cuda"), torch.randn(10, device="cuda")

    def derivatives(function):
        operands = [tensor.clone().requires_grad_() for tensor in (x, w, b)]
        y = function(*operands, **arguments)
        torch.manual_seed(7)
        cotangent = torch.randn_like(y).requires_grad_()
        first = torch.autograd.grad(y, operands, cotangent, create_graph=True)
        second = torch.autograd.grad([g.pow(2).sum() for g in first], [*operands[:2], cotangent])
        return [*first, *second]

    ours = derivatives(getattr(tconv, f"conv_transpose{dims}d"))
    theirs = derivatives(getattr(F, f"conv_transpose{dims}d"))
    for a, e in zip(ours, theirs, strict=True):
        assert relative_error(a, e) <= 2e-3  # products of TF32 products, on both sides

    with torch.backends.cudnn.flags(allow_tf32=False):
        ours = derivatives(getattr(tconv, f"conv_transpose{dims}d"))
        theirs = derivatives(getattr(F, f"conv_transpose{dims}d"))
    for a, e in zip(ours, theirs, strict=True):
        assert relative_error(a, e) <= 1e-5


def test_gradients_with_output_padding_of_more_than_a_stride():
    for seed in range(40):
        layer = random_layer(seed, torch.float64, "cuda")
        stride, padding = layer.arguments["stride"], layer.arguments["output_padding"]
        if all(p < s for p, s in zip(padding, stride, strict=True)):
            continue
        results = []
        for device in ("cuda", "cpu"):
            x, w = (t.detach().to(device).requires_grad_() for t in (layer.input, layer.weight))
            y = layer.tconv(x, w)
            gy = torch.linspace(-1, 1, y.numel(), dtype=y.dtype, device=device).view(y.shape)
            results.append(torch.autograd.grad(y, (x, w), gy))
        for ours, exact in zip(*results, strict=True):
            assert norm_error(ours, exact) <= 1e-12, layer.about


@pytest.mark.parametrize("switch", [True, False])
@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-5), ("tf32", 1e-3)])
def test_the_precision_of_a_layer_is_that_of_its_gradients(precision, most, switch):
    x, w, gy = (torch.randn(s, device="cuda") for s in ((4, 64, 128), (64, 64, 4), (4, 64, 258)))

    def gradients(function, x, w, gy, create_graph=False, **arguments):
        operands = [x.clone().requires_grad_(), w.clone().requires_grad_()]
        return torch.autograd.grad(
            function(*operands, stride=2, **arguments), operands, gy, create_graph=create_graph
        )

    exact = gradients(F.conv_transpose1d, *[t.double().cpu() for t in (x, w, gy)])
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=precision == "tf32"):
        theirs = gradients(F.conv_transpose1d, x, w, gy)
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=switch):
        ours = gradients(tconv.conv_transpose1d, x, w, gy, precision=precision)
        again = gradients(tconv.conv_transpose1d, x, w, gy, create_graph=True, precision=precision)
        assert torch.backends.cudnn.allow_tf32 is switch
    for a, b, t, e in zip(ours, again, theirs, exact, strict=True):
        assert torch.equal(a, t)  # the same call, with the same switches
        assert norm_error(a, e) <= most
        assert norm_error(b, e) <= most


def test_backward_inside_autocast_keeps_the_dtype_of_forward():
    # A gradient of more than fp16 holds.
    x = torch.randn(2, 16, 9, device="cuda", requires_grad=True)
    w = torch.randn(16, 8, 4, device="cuda", requires_grad=True)
    y = tconv.conv_transpose1d(x, w, stride=2, precision="fp32")
    gy = torch.full_like(y, 1e5)
    expected = torch.autograd.grad(y, (x, w), gy, retain_graph=True)
    with torch.autocast("cuda", torch.float16):
        for create_graph in (False, True):
            for ours, e in zip(
                torch.autograd.grad(y, (x, w), gy, create_graph=create_graph), expected, strict=True
            ):
                assert relative_error(ours, e) <= 1e-5


def test_ten_training_steps():
    def train(library):
        torch.manual_seed(3)
        layers = library.ConvTranspose1d(16, 32, 4, 2, 1), library.ConvTranspose1d(32, 8, 3)
        model = nn.Sequential(layers[0], nn.Tanh(), layers[1]).cuda()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        x, target = torch.randn(4, 16, 20, device="cuda"), torch.randn(4, 8, 42, device="cuda")
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = (model(x) - target).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            losses.append((model(x) - target).pow(2).mean().item())
        return losses

    assert train(tconv.nn) == pytest.approx(train(nn), rel=2e-3)


def test_autocast():
    module = tconv.nn.ConvTranspose2d(32, 24, 4, 2, 1).cuda()
    reference = nn.ConvTranspose2d(32, 24, 4, 2, 1).cuda()
    reference.load_state_dict(module.state_dict())
    x = torch.randn(2, 32, 9, 9, device="cuda", requires_grad=True)
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cuda", dtype):
            ours, theirs = module(x), reference(x)
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
        cotangent = torch.randn_like(ours)
        for a, e in zip(
            torch.autograd.grad(ours, [x, module.weight], cotangent),
            torch.autograd.grad(theirs, [x, reference.weight], cotangent),
            strict=True,
        ):
            assert relative_error(a, e) <= 2e-2


@pytest.mark.parametrize("backend", ["aot_eager", "cudagraphs"])
def test_compile(backend):
    torch._dynamo.reset()
    module = tconv.nn.ConvTranspose2d(16, 12, 4, 2, 1).cuda()
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    x = torch.randn(2, 16, 9, 9, device="cuda").to(memory_format=torch.channels_last)
    with torch.no_grad():
        for step in range(4):
            x.copy_(torch.randn_like(x))
            ours = compiled(x).clone()
            assert torch.equal(ours, module(x)), f"call {step}"
            module.weight.mul_(0.5)  # a graph must not go on with the old weight


def test_a_compiled_model_follows_the_tf32_switch():
    torch._dynamo.reset()
    x, w = torch.randn(4, 64, 128, device="cuda"), torch.randn(64, 64, 4, device="cuda")
    compiled = torch.compile(lambda x: tconv.conv_transpose1d(x, w, stride=2), fullgraph=True, backend="aot_eager")
    for allowed in (True, False, True):
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=allowed):
            assert torch.equal(compiled(x), tconv.conv_transpose1d(x, w, stride=2))


def test_export():
    module = tconv.nn.ConvTranspose1d(32, 16, 4, 2, 1).cuda()
    x = torch.randn(2, 32, 9, device="cuda")
    length = torch.export.Dim("length", min=2, max=100)
    program = torch.export.export(module, (x,), dynamic_shapes=({2: length},))
    longer = torch.randn(2, 32, 23, device="cuda")
    assert torch.equal(program.module()(longer), module(longer))


@pytest.fixture
def half_a_gigabyte():
    """Limits PyTorch, from when it is called, to 512 MiB more than it holds."""

    def limit():
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 29)) / total)

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_memory_that_runs_out_is_pytorchs_error(half_a_gigabyte):
    x, w = torch.randn(1, 16, 1 << 18, device="cuda"), torch.randn(16, 256, 4, device="cuda")
    module = tconv.nn.ConvTranspose1d(16, 256, 4, stride=4).cuda()
    small = torch.randn(1, 16, 8, device="cuda")
    tconv.conv_transpose1d(small, w, stride=4)
    half_a_gigabyte()
    with pytest.raises(torch.OutOfMemoryError):  # an output of 1 GiB
        tconv.conv_transpose1d(x, w, stride=4)
    with pytest.raises(torch.OutOfMemoryError):
        module(x)
    with pytest.raises(torch.OutOfMemoryError), torch.no_grad():
        module(x)
    with pytest.raises(torch.OutOfMemoryError), torch.autocast("cuda", torch.bfloat16):
        module(torch.cat([x, x], -1))
    with pytest.raises(torch.OutOfMemoryError):
        torch.compile(module, backend="aot_eager")(x)
    with pytest.raises(torch.OutOfMemoryError):
        torch.func.vmap(lambda x: tconv.conv_transpose1d(x, w, stride=4))(x[None])
    assert tconv.conv_transpose1d(small, w, stride=4).isfinite().all()


def test_memory_that_runs_out_in_backward_is_pytorchs_error(half_a_gigabyte):
    x = torch.randn(1, 256, 1 << 20, device="cuda", requires_grad=True)  # and a gradient of 1 GiB
    y = tconv.conv_transpose1d(x, torch.randn(256, 1, 1, device="cuda"))
    half_a_gigabyte()
    for create_graph in (False, True):
        with pytest.raises(torch.OutOfMemoryError):
            torch.autograd.grad(y.sum(), x, retain_graph=True, create_graph=create_graph)


def run_script(script, **environment):
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_verbose_says_what_computed():
    script = (
        "import torch, tconv; x = torch.randn(1, 2, 5, device='cuda', requires_grad=True);"
        "tconv.conv_transpose1d(x, torch.randn(2, 3, 3, device='cuda')).sum().backward()"
    )
    result = run_script(script, TCONV_VERBOSE="1")
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    assert any(line.startswith("tconv,cuda,forward,") for line in lines)
    assert any(line.startswith("tconv,pytorch,grad_input,fallback: ") for line in lines)


FALLBACK = """
import warnings, torch, tconv
x, w = torch.randn(2, 16, 9, device="cuda"), torch.randn(16, 32, 4, device="cuda")
exact = torch.nn.functional.conv_transpose1d(x.double().cpu(), w.double().cpu(), stride=2)
warnings.simplefilter("always")
for _ in range(3):
    y = tconv.conv_transpose1d(x, w, stride=2, precision="fp32")
    assert ((y.double().cpu() - exact).norm() / exact.norm()).item() < 1e-6
tconv.conv_transpose1d(x, w, stride=3)
"""


def test_without_nvrtc_pytorch_computes_and_says_so_once(tmp_path):
    # A library that is none: found first, and found to be of no use.
    shutil.copy(Path(tconv.__file__).parent / "libhwy.so.1", tmp_path / "libnvrtc.so.13")
    result = run_script(FALLBACK, TCONV_NVRTC_PATH=str(tmp_path), TCONV_CACHE_DIR=str(tmp_path / "cache"))
    assert result.returncode == 0, result.stderr
    said = [line for line in result.stderr.splitlines() if "tconv's CUDA engine cannot be used here" in line]
    assert len(said) == 1
    assert "NVRTC" in said[0]


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path):
    (tmp_path / "file").write_text("")
    result = run_script(FALLBACK, TCONV_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert result.returncode == 0, result.stderr
    said = [line for line in result.stderr.splitlines() if "tconv" in line]
    assert len(said) == 1, result.stderr
    assert said[0].startswith("tconv: compiled kernels are not kept for the next process: cannot write to ")
