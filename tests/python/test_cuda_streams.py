"""Streams, threads and CUDA graphs. Skipped where there is no GPU."""

import threading

import pytest
import torch

import tconv

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

A_WHILE = 100_000_000  # clock cycles: about 50 ms, in which everything else here is over


@pytest.fixture
def layer():
    return tconv.nn.ConvTranspose1d(64, 32, 4, 2, 1).cuda().eval().requires_grad_(False)


def inputs():
    return torch.randn(2, 64, 37, device="cuda")


def captured(layer, x):
    """A graph of the layer on x, after the warm-up PyTorch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            layer(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(x)
    return graph, y


def test_work_goes_to_the_current_stream(layer):
    late, stream = inputs(), torch.cuda.Stream()
    expected = layer(late)
    x = torch.full_like(late, float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(A_WHILE)
        x.copy_(late)  # nobody on another stream sees this in time
        y = layer(x)
        z = tconv.conv_transpose1d(x, layer.weight, layer.bias, 2, 1)
    stream.synchronize()
    assert torch.equal(y, expected)
    assert torch.equal(z, expected)


def test_a_packing_is_not_used_before_it_is_there(layer):
    x = inputs()
    expected = tconv.conv_transpose1d(x, layer.weight, layer.bias, 2, 1)
    torch.cuda.synchronize()
    slow, fast = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(slow):
        torch.cuda._sleep(A_WHILE)
        first = layer(x)  # packs the weight when the stream comes to it
    with torch.cuda.stream(fast):
        second = layer(x)
    torch.cuda.synchronize()
    assert torch.equal(first, expected)
    assert torch.equal(second, expected)


def test_two_streams_at_once(layer):
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    xs = [[inputs() for _ in range(20)] for _ in streams]
    expected = [[layer(x) for x in each] for each in xs]
    torch.cuda.synchronize()
    ys = [[], []]
    for turn in range(20):
        for side, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                ys[side].append(layer(xs[side][turn]))
    torch.cuda.synchronize()
    for each, reference in zip(ys, expected, strict=True):
        assert all(torch.equal(a, e) for a, e in zip(each, reference, strict=True))


def test_many_threads(layer):
    xs = [inputs() for _ in range(4)]
    expected = [layer(x) for x in xs]
    fresh = tconv.nn.ConvTranspose1d(64, 32, 4, 2, 1).cuda().eval().requires_grad_(False)
    fresh.load_state_dict(layer.state_dict())
    torch.cuda.synchronize()
    wrong = []

    def work(x, y):
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                if not torch.equal(fresh(x), y):
                    wrong.append(threading.current_thread().name)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(xs, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_a_graph_gives_the_bits_of_an_eager_call(layer, dtype):
    layer.to(dtype)
    x = inputs().to(dtype)
    graph, y = captured(layer, x)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(y, layer(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_layers_that_turn_their_input(dtype):
    # Two kernels each, and the second begins while the first one ends.
    layers = torch.nn.Sequential(
        tconv.nn.ConvTranspose2d(512, 256, 4, 2, 1),
        tconv.nn.ConvTranspose2d(256, 512, 2, 2),
    ).to("cuda", dtype)
    layers.requires_grad_(False)
    x = torch.randn(8, 512, 8, 8, device="cuda", dtype=dtype)
    graph, y = captured(layers, x)
    for _ in range(5):
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert torch.equal(y, layers(x))
        want = x.double()
        for layer in layers:
            want = torch.nn.functional.conv_transpose2d(
                want, layer.weight.double(), layer.bias.double(), layer.stride, layer.padding
            )
        assert (y.double() - want).norm() <= 2e-3 * want.norm()


def test_a_graph_sees_the_weight_change(layer):
    x = inputs()
    graph, y = captured(layer, x)
    for change in (lambda: layer.weight.mul_(2), lambda: layer.weight.data.add_(1)):
        change()
        graph.replay()
        assert torch.equal(y, tconv.conv_transpose1d(x, layer.weight, layer.bias, 2, 1))


def test_first_use_inside_a_capture():
    # Nothing of this layer has been compiled or loaded.
    layer = tconv.nn.ConvTranspose1d(48, 40, 5, 3).cuda().requires_grad_(False)
    x = torch.randn(3, 48, 21, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(x)
    graph.replay()
    assert torch.equal(y, layer(x))


def test_training_in_a_graph():
    def train(graphed):
        torch.manual_seed(5)
        layer = tconv.nn.ConvTranspose1d(32, 16, 4, 2, 1).cuda()
        x = torch.randn(2, 32, 20, device="cuda")
        call = torch.cuda.make_graphed_callables(layer, (x,)) if graphed else layer
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = call(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert train(graphed=True) == pytest.approx(train(graphed=False), rel=1e-4)


class TestFrozen:
    def test_graphs_hold_the_packed_weight(self, layer):
        x = inputs()
        graph, y = captured(tconv.freeze(layer), x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        before = y.clone()
        assert torch.equal(before, layer(x))
        layer.weight.data.zero_()  # nothing counts this, which shows what the graph reads
        graph.replay()
        assert torch.equal(y, before)

    def test_all_streams_share_one_packing(self, layer):
        x = inputs()
        tconv.freeze(layer)
        expected = layer(x)
        layer.weight.data.zero_()
        with torch.cuda.stream(torch.cuda.Stream()):
            y = layer(x)
        torch.cuda.synchronize()
        assert torch.equal(y, expected)

    def test_a_changed_weight_is_refused(self, layer):
        x = inputs()
        tconv.freeze(layer)
        layer(x)
        layer.weight.mul_(2)
        with pytest.raises(RuntimeError, match="frozen"):
            layer(x)
        tconv.unfreeze(layer)
        assert torch.equal(layer(x), tconv.conv_transpose1d(x, layer.weight, layer.bias, 2, 1))
