"""Packed weights of modules: when they are kept, and when they are made anew."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tconv
from tconv import _packed
from tconv._layer import numbered_layer
from tconv._packed import PackedWeight

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class TestTickets:
    """A ticket stands for one weight with one content, on any device."""

    @pytest.fixture
    def weight(self):
        return nn.Parameter(torch.randn(4, 3, 5))

    @staticmethod
    def renewed(change, weight, other=None):
        """Whether a change of the weight (or another weight) makes the ticket a new one."""
        packed = PackedWeight()
        before = packed.ticket_for(weight).number
        assert packed.ticket_for(weight).number == before
        with torch.no_grad():
            change()
        return packed.ticket_for(weight if other is None else other()).number != before

    def test_nothing_changed(self, weight):
        assert not self.renewed(lambda: weight.sum(), weight)

    def test_changed_in_place(self, weight):
        assert self.renewed(lambda: weight.mul_(2), weight)
        assert self.renewed(lambda: weight[0].zero_(), weight)  # through a view
        assert self.renewed(lambda: weight.detach().add_(1), weight)
        assert self.renewed(lambda: torch._foreach_mul_([weight], 2), weight)

    def test_optimizer_step(self, weight):
        weight.grad = torch.ones_like(weight)
        for foreach in (True, False):
            step = torch.optim.SGD([weight], 0.1, foreach=foreach).step
            assert self.renewed(step, weight)

    def test_loaded_from_a_checkpoint(self):
        module = tconv.nn.ConvTranspose1d(4, 3, 5)
        state = {name: value + 1 for name, value in module.state_dict().items()}
        assert self.renewed(lambda: module.load_state_dict(state), module.weight)

    def test_other_memory(self, weight):
        def change():
            weight.data = weight.data * 2

        assert self.renewed(change, weight)

    def test_other_memory_that_could_come_to_lie_where_the_old_lay(self, weight):
        packed = PackedWeight()
        before = packed.ticket_for(weight).number
        for _ in range(20):
            weight.data = torch.randn(4, 3, 5)  # the memory of the one before is free for the next
        assert packed.ticket_for(weight).number != before

    def test_another_parameter_over_the_same_memory(self, weight):
        # Its count of changes may be any number, the old one's too.
        others = []

        def change():
            weight.mul_(2)
            others.append(nn.Parameter(weight.data))

        assert self.renewed(change, weight, other=lambda: others[0])

    def test_weights_without_a_count_have_none(self):
        with torch.inference_mode():
            weight = nn.Parameter(torch.randn(3), requires_grad=False)
        assert PackedWeight().ticket_for(weight) is None

    def test_frozen_weights_may_not_change(self, weight):
        packed = PackedWeight(frozen=True)
        packed.ticket_for(weight)
        with torch.no_grad():
            weight.mul_(2)
        with pytest.raises(RuntimeError, match="frozen"):
            packed.ticket_for(weight)


class TestAutocast:
    """What is kept of a weight autocast has cast: with the weight's ticket, for a stream."""

    class Stream:
        def __init__(self, number):
            self.cuda_stream, self.waited = number, 0

        def synchronize(self):
            self.waited += 1

    @pytest.fixture
    def module(self):
        return tconv.nn.ConvTranspose1d(4, 3, 5).eval()

    @pytest.fixture
    def call(self, module, monkeypatch):
        """Runs the layer as eager calls on a GPU are; the weight that was used, and what it is kept under."""
        seen = []

        def kept(input, weight, bias, number, ticket, frozen):
            seen.append((weight, ticket))
            return run(input, weight, bias, number)

        def anew(input, weight, bias, number):
            seen.append((weight, None))
            return run(input, weight, bias, number)

        run = _packed.run_conv_transpose
        monkeypatch.setattr(_packed, "run_conv_transpose_kept", kept)
        monkeypatch.setattr(_packed, "run_conv_transpose", anew)

        def call(dtype=torch.bfloat16, stream=None, capturing=False):
            stream = stream or self.Stream(0)
            monkeypatch.setattr(_packed, "_current_stream", lambda weight: (stream, capturing))
            layer = numbered_layer(1, 2, 1, 0, 1, 1, False)
            x = torch.randn(1, 4, 6)
            with torch.no_grad():
                bias, operand = module.bias, x
                if dtype is not None:
                    bias, operand = bias.to(dtype), x.to(dtype)
                y = _packed.run_keeping(module, operand, module.weight, bias, layer.number, dtype)
                expected = F.conv_transpose1d(x, module.weight, module.bias, 2, 1)
            torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=2e-2)
            return seen[-1]

        return call

    def test_cast_once(self, call):
        weight, ticket = call()
        assert weight.dtype == torch.bfloat16
        again = call()
        assert again[0] is weight
        assert again[1] == ticket
        assert call(torch.float16)[0].dtype == torch.float16
        assert call(None)[0].dtype == torch.float32
        assert call()[0] is weight

    def test_cast_anew_when_the_weight_changes(self, call, module):
        weight, _ = call()
        with torch.no_grad():
            module.weight.mul_(2)
        assert call()[0] is not weight

    def test_every_stream_has_its_own(self, call):
        first, second = self.Stream(1), self.Stream(2)
        weight, _ = call(stream=first)
        assert call(stream=second)[0] is not weight
        assert call(stream=first)[0] is weight
        assert first.waited == second.waited == 0

    def test_few_are_kept(self, call, module):
        for number in range(40):
            call(stream=self.Stream(number))
        assert len(module._packed.ticket.casts) == 8

    def test_graphs_cast_for_themselves(self, call):
        weight, _ = call()
        captured, ticket = call(capturing=True)
        assert captured is not weight
        assert ticket is None
        assert call()[0] is weight

    def test_frozen_weights_are_cast_for_all_streams_and_graphs(self, call, module):
        tconv.freeze(module)
        assert call(capturing=True)[1] is None  # memory of the graph's, which holds nothing until it is replayed
        first, second = self.Stream(1), self.Stream(2)
        weight, _ = call(stream=first)
        assert first.waited == 1
        assert call(stream=second)[0] is weight
        assert call(stream=second, capturing=True)[0] is weight
        assert second.waited == 0

    def test_nothing_is_kept_in_training_mode(self, call, module):
        module.train()
        assert call()[1] is None

    def test_inference_mode(self, call):
        with torch.inference_mode():
            weight, _ = call()
            assert call()[0] is weight
        assert call()[0] is weight

    def test_eager_calls_stay_eager(self, module, monkeypatch):
        # The dispatcher's way has no owner, and so nothing to keep a weight with.
        monkeypatch.setattr("tconv.functional._general_conv_transpose", None)
        x = torch.randn(2, 4, 6)
        with torch.autocast("cpu", torch.bfloat16):
            y = module(x)
            with torch.no_grad():
                assert torch.equal(module(x), y)
        assert y.dtype == torch.bfloat16
        y.float().sum().backward()
        assert module.weight.grad.dtype == torch.float32

    def test_autocast_for_another_device_casts_nothing(self, module):
        torch.set_autocast_enabled("cuda", True)
        try:
            assert module(torch.randn(2, 4, 6)).dtype == torch.float32
        finally:
            torch.set_autocast_enabled("cuda", False)


class TestModules:
    """What a module holds is its own: it is in no copy, pickle or checkpoint."""

    @pytest.fixture
    def module(self):
        module = tconv.nn.ConvTranspose1d(4, 3, 5)
        module._packed = PackedWeight(frozen=True)
        module._packed.ticket_for(module.weight)
        return module

    def test_copies_have_none(self, module):
        duplicate = copy.deepcopy(module)
        assert duplicate._packed is not module._packed
        assert duplicate._packed.ticket is None
        assert not duplicate._packed.frozen

    def test_parametrized_copies_have_none(self, module):
        nn.utils.parametrizations.weight_norm(module)
        assert copy.deepcopy(module)._packed.ticket is None

    def test_pickles_have_none(self, module):
        buffer = io.BytesIO()
        torch.save(module, buffer)
        buffer.seek(0)
        loaded = torch.load(buffer, weights_only=False)
        assert loaded._packed.ticket is None
        assert torch.equal(loaded.weight, module.weight)

    def test_checkpoints_have_none(self, module):
        assert set(module.state_dict()) == {"weight", "bias"}

    def test_moving_lets_go(self, module):
        assert module.double()._packed is None

    def test_setting_the_mode_lets_go_unless_frozen(self, module):
        assert module.eval()._packed.frozen
        module._packed = PackedWeight()
        assert module.eval()._packed is None

    def test_gradients_let_go_unless_frozen(self, module):
        x = torch.randn(1, 4, 6)
        module(x)
        assert module._packed.frozen
        module._packed = PackedWeight()
        with torch.no_grad():
            module(x)
        assert module._packed is not None
        module(x)
        assert module._packed is None

    def test_reverting_lets_go(self, module):
        model = nn.Sequential(module)
        tconv.revert(model)
        assert "_packed" not in vars(model[0])

    def test_freezing_needs_a_weight_that_stays(self):
        model = nn.Sequential(nn.utils.parametrizations.weight_norm(tconv.nn.ConvTranspose1d(4, 3, 5)))
        with pytest.raises(ValueError, match="0 makes its weight anew"):
            tconv.freeze(model)

    def test_freezing_and_unfreezing(self):
        model = nn.Sequential(tconv.nn.ConvTranspose1d(4, 3, 5), nn.ConvTranspose1d(3, 2, 3))
        assert tconv.freeze(model) is model
        assert model[0]._packed.frozen
        assert "_packed" not in vars(model[1])
        x = torch.randn(1, 4, 6)
        with torch.no_grad():
            expected = model(x)  # nothing is packed on a CPU, so nothing is refused there
            assert torch.equal(tconv.unfreeze(model)(x), expected)
        assert model[0]._packed is None


@on_gpu
class TestOnTheGpu:
    @pytest.fixture
    def module(self):
        return tconv.nn.ConvTranspose2d(32, 24, 4, 2, 1).cuda().eval()

    @staticmethod
    def assert_right(module, x):
        """The module, which may use a kept packing, gives the bits of the function, which never does."""
        with torch.no_grad():
            expected = tconv.conv_transpose2d(x, module.weight, module.bias, 2, 1)
            assert torch.equal(module(x), expected)
            assert torch.equal(module(x), expected)

    @pytest.fixture
    def x(self):
        return torch.randn(2, 32, 7, 9, device="cuda")

    def test_packed_once(self, module, x):
        with torch.no_grad():
            before = module(x)
            shorter = tconv.conv_transpose2d(x[..., :6], module.weight, module.bias, 2, 1)
            module.weight.data.zero_()  # nothing counts this, which shows what the module reads
            assert torch.equal(module(x), before)
            assert torch.equal(module(x[..., :6]), shorter)  # another length, the same packing
            module.keep_packed_weight = False
            assert torch.equal(module(x), module.bias.view(1, -1, 1, 1).expand_as(before))

    def test_packed_anew_when_the_weight_changes(self, module, x):
        self.assert_right(module, x)
        with torch.no_grad():
            module.weight.mul_(2)
        self.assert_right(module, x)
        module.weight.data = torch.randn_like(module.weight)
        self.assert_right(module, x)
        module.weight = nn.Parameter(torch.randn_like(module.weight))
        self.assert_right(module, x)
        module.load_state_dict({name: value.neg() for name, value in module.state_dict().items()})
        self.assert_right(module, x)

    @pytest.mark.parametrize("fused", [False, True])
    def test_packed_anew_after_training(self, module, x, fused):
        # A fused optimizer changes weights and PyTorch does not count it.
        optimizer = torch.optim.AdamW(module.parameters(), 0.1, fused=fused)
        for training in (True, False, True, False):
            self.assert_right(module, x)
            module.train(training)
            module(x).pow(2).mean().backward()
            optimizer.step()
        self.assert_right(module, x)
        module.train()
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()  # without a call of the module
        self.assert_right(module.eval(), x)

    def test_nothing_is_kept_in_training_mode(self, module, x):
        module.train()
        self.assert_right(module, x)
        module.weight.data.mul_(2)
        self.assert_right(module, x)

    def test_setting_the_mode_lets_go(self, module, x):
        self.assert_right(module, x)
        module.weight.data.mul_(2)
        self.assert_right(nn.Sequential(module).eval()[0], x)

    def test_packed_anew_for_another_kind_of_call(self, module, x):
        self.assert_right(module, x)
        self.assert_right(module, x.to(memory_format=torch.channels_last))
        self.assert_right(module, x[..., ::2])
        with torch.backends.cudnn.flags(allow_tf32=False):
            self.assert_right(module, x)
        self.assert_right(module.half(), x.half())
        self.assert_right(module.double(), x.double())

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("frozen", [False, True])
    def test_autocast(self, module, x, dtype, frozen):
        if frozen:
            tconv.freeze(module)

        def expected():
            weight, bias = module.weight.to(dtype), module.bias.to(dtype)
            return tconv.conv_transpose2d(x.to(dtype), weight, bias, 2, 1)

        with torch.no_grad():
            before = expected()
            with torch.autocast("cuda", dtype):
                assert torch.equal(module(x), before)
                module.weight.data.mul_(3)  # nothing counts this, which shows what the module reads
                assert torch.equal(module(x), before)
            graph, static = torch.cuda.CUDAGraph(), x.clone()
            with torch.autocast("cuda", dtype), torch.cuda.graph(graph):
                y = module(static)
            graph.replay()
            assert torch.equal(y, before if frozen else expected())
            if not frozen:
                module.weight.mul_(2)
                with torch.autocast("cuda", dtype):
                    assert torch.equal(module(x), expected())

    def test_output_size(self, module, x):
        with torch.no_grad():
            for size in ((14, 18), (15, 19)):
                padding = (size[0] - 14, size[1] - 18)
                expected = tconv.conv_transpose2d(x, module.weight, module.bias, 2, 1, padding)
                assert torch.equal(module(x, output_size=size), expected)

    def test_inference_mode(self, module, x):
        with torch.inference_mode():
            expected = module(x)
            assert torch.equal(module(x), expected)
            made_here = tconv.nn.ConvTranspose2d(32, 24, 4, 2, 1).cuda().eval()
            made_here.weight.copy_(module.weight)
            made_here.bias.copy_(module.bias)
            assert torch.equal(made_here(x), expected)
            made_here.weight.zero_()
            assert torch.equal(made_here(x), module.bias.view(1, -1, 1, 1).expand_as(expected))

    @pytest.mark.parametrize("kind", ["parametrization", "hook"])
    def test_weight_norm(self, kind, x):
        module = tconv.nn.ConvTranspose2d(32, 24, 4, 2, 1).cuda().eval()
        norm = nn.utils.parametrizations.weight_norm if kind == "parametrization" else nn.utils.weight_norm
        norm(module)
        scale = module.parametrizations.weight.original0 if kind == "parametrization" else module.weight_g
        with torch.no_grad():
            for _ in range(3):
                y = module(x)
                assert torch.equal(y, tconv.conv_transpose2d(x, module.weight, module.bias, 2, 1))
                scale.mul_(1.5)

    def test_copies_are_independent(self, module, x):
        self.assert_right(module, x)
        duplicate = copy.deepcopy(module)
        with torch.no_grad():
            duplicate.weight.mul_(2)
        self.assert_right(duplicate, x)
        self.assert_right(module, x)

    def test_memory_is_returned(self, x):
        def cycle():
            module = tconv.nn.ConvTranspose2d(32, 24, 4, 2, 1).cuda().eval()
            with torch.no_grad():
                for _ in range(20):
                    module(x)
                    module.weight.mul_(1.01)

        cycle()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            cycle()
        assert torch.cuda.memory_allocated() == before
