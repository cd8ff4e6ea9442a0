"""Memory of large CPU results: when it is kept, and that nobody ever shares it."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from torch.nn import functional as F

import tconv
from tconv import cpu_memory

can_keep = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11), reason="this PyTorch takes no memory of others"
)
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _fresh():
    limit = cpu_memory.get_limit()
    cpu_memory.release()
    yield
    cpu_memory.set_limit(limit)
    cpu_memory.release()


def layer(mib=8, seed=0):
    """An input and a weight whose result has `mib` MiB."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, 2, mib << 16, generator=generator), torch.randn(2, 4, 1, generator=generator)


def result(mib=8, seed=0):
    return tconv.conv_transpose1d(*layer(mib, seed))


def expected(mib=8, seed=0):
    return F.conv_transpose1d(*layer(mib, seed))


def is_right(y, mib=8, seed=0):
    return torch.allclose(y, expected(mib, seed), atol=1e-5)


@can_keep
class TestKept:
    def test_is_reused_once_nothing_uses_it(self):
        y = result()
        place = y.data_ptr()
        assert cpu_memory.kept_bytes() == 0
        del y
        assert cpu_memory.kept_bytes() == 8 * MIB
        y = result(seed=1)
        assert y.data_ptr() == place
        assert cpu_memory.kept_bytes() == 0
        assert is_right(y, seed=1)

    @pytest.mark.parametrize(
        "hold",
        [
            lambda y: y[0, 0, :1],
            lambda y: y.detach(),
            lambda y: y.untyped_storage(),
            lambda y: y.numpy(),
            lambda y: torch.from_dlpack(y),
            lambda y: memoryview(y.numpy()),
        ],
    )
    def test_is_not_reused_while_anything_holds_it(self, hold):
        y = result()
        place = y.data_ptr()
        held = hold(y)
        del y
        assert cpu_memory.kept_bytes() == 0
        assert result(seed=1).data_ptr() != place
        del held

    def test_tensors_in_shared_memory_leave_it(self):
        y = result()
        y.share_memory_()
        assert cpu_memory.kept_bytes() == 8 * MIB
        z = result(seed=1)
        assert is_right(y)
        assert is_right(z, seed=1)

    def test_empty_results_take_none(self):
        y = tconv.conv_transpose1d(torch.empty(0, 2, 1 << 22), torch.ones(2, 4, 1))
        assert y.shape == (0, 4, 1 << 22)
        y.resize_(1)
        del y
        assert cpu_memory.kept_bytes() == 0

    def test_goes_back_before_memory_runs_out(self):
        script = """
import resource, torch, tconv
x, w = torch.ones(1, 2, 40 << 16), torch.ones(2, 4, 1)
tconv.conv_transpose1d(x[..., : 8 << 16], w)  # everything is loaded
held = [torch.ones(1, 2, 90 << 16), torch.ones(1, 2, 300 << 16)]
tconv.conv_transpose1d(held[0], w)
assert tconv.cpu_memory.kept_bytes() >= 90 << 20
with open("/proc/self/statm") as f:
    used = int(f.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (260 << 20), -1))
y = tconv.conv_transpose1d(held[1], w)
assert y.shape[-1] == 300 << 16 and float(y.min()) == 2
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr

    def test_a_forked_child_begins_with_none(self):
        del_me = result()
        del del_me
        assert cpu_memory.kept_bytes() == 8 * MIB
        child = os.fork()
        if child == 0:
            os._exit(0 if cpu_memory.kept_bytes() == 0 and cpu_memory.release() == 0 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert cpu_memory.kept_bytes() == 8 * MIB

    def test_results_that_live_together_lie_apart(self):
        ys = [result(seed=s) for s in range(4)]
        assert len({y.data_ptr() for y in ys}) == 4
        assert all(is_right(y, seed=s) for s, y in enumerate(ys))

    def test_a_block_is_not_taken_for_much_less(self):
        large = result(64)
        place = large.data_ptr()
        del large
        assert result(8).data_ptr() != place
        assert result(40).data_ptr() == place

    def test_gradients(self):
        x, w = (t.requires_grad_() for t in layer(32))
        for _ in range(2):
            x.grad = w.grad = None
            tconv.conv_transpose1d(x, w).square().sum().backward()
        gx, gw = x.grad, w.grad
        x.grad = w.grad = None
        F.conv_transpose1d(x, w).square().sum().backward()
        assert torch.allclose(gx, x.grad, atol=1e-4)
        assert torch.allclose(gw, w.grad, rtol=1e-4)

    def test_looks_like_any_result(self):
        y, like = result(), expected()
        assert (y.device, y.dtype, y.shape, y.stride()) == (like.device, like.dtype, like.shape, like.stride())
        assert y.untyped_storage().nbytes() == like.untyped_storage().nbytes()

    def test_threads(self):
        wrong = []

        def work(seed):
            want = expected(seed=seed)
            for _ in range(10):
                if not torch.allclose(result(seed=seed), want, atol=1e-5):
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    def test_forked_processes_have_memory_of_their_own(self):
        program = """
import os, torch, tconv
torch.set_num_threads(1)
x = torch.ones(1, 2, 8 << 16)
y = tconv.conv_transpose1d(x, torch.ones(2, 4, 1))
del y
child = os.fork()
y = tconv.conv_transpose1d(x, torch.full((2, 4, 1), 3.0 if child else 5.0))
right = bool((y == (6 if child else 10)).all())
if not child:
    os._exit(0 if right else 1)
assert os.waitpid(child, 0)[1] == 0 and right
"""
        subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@can_keep
class TestLimit:
    def test_release(self):
        del_me = result(8), result(12)
        del del_me
        assert cpu_memory.kept_bytes() == 20 * MIB
        assert cpu_memory.release() == 20 * MIB
        assert cpu_memory.kept_bytes() == 0
        assert is_right(result())

    def test_longest_kept_goes_first(self):
        cpu_memory.set_limit(20 * MIB)
        first, second, third = result(8), result(12), result(8)
        places = [t.data_ptr() for t in (second, third)]
        del first
        del second
        assert cpu_memory.kept_bytes() == 20 * MIB
        del third
        assert cpu_memory.kept_bytes() == 20 * MIB
        assert [result(12).data_ptr(), result(8).data_ptr()] == places

    def test_a_smaller_limit_holds_at_once(self):
        y = result(12)
        del y
        cpu_memory.set_limit(8 * MIB)
        assert cpu_memory.kept_bytes() == 0
        y = result(12)  # more than may ever be kept
        assert is_right(y, 12)
        del y
        assert cpu_memory.kept_bytes() == 0

    def test_many_sizes_stay_within_it(self):
        cpu_memory.set_limit(64 * MIB)
        for mib in range(8, 40):
            assert is_right(result(mib), mib)
            assert cpu_memory.kept_bytes() <= 64 * MIB


def test_nothing_is_kept_with_a_limit_of_zero():
    cpu_memory.set_limit(0)
    y = result()
    assert is_right(y)
    y.resize_(2 * y.numel())  # PyTorch's own memory, in every respect
    del y
    assert cpu_memory.kept_bytes() == 0


def test_negative_limits_are_refused():
    with pytest.raises(ValueError, match="negative, got -1"):
        cpu_memory.set_limit(-1)


@pytest.mark.parametrize(("text", "limit"), [("0", 0), ("100", 100 * MIB)])
def test_environment(text, limit):
    environment = {**os.environ, "TCONV_CPU_KEPT_MIB": text}
    program = f"import tconv; assert tconv.cpu_memory.get_limit() == {limit}"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)


def test_environment_that_is_no_number():
    environment = {**os.environ, "TCONV_CPU_KEPT_MIB": "lots"}
    done = subprocess.run(
        [sys.executable, "-c", "import tconv"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0
    assert 'TCONV_CPU_KEPT_MIB must be a number of MiB, got "lots"' in done.stderr
