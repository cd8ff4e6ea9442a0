"""What each of the two processes of test_distributed.py does. Every function is one check."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import tconv


def run(rank: int, address: str, results: object) -> None:
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (2,))
    outcome = {}
    for name, check in CHECKS.items():
        try:
            check(mesh, rank)
            outcome[name] = "passed"
        except Exception as error:
            outcome[name] = f"{type(error).__name__}: {error}"
    results.put((rank, outcome))
    dist.barrier()
    dist.destroy_process_group()
    # Once in some dozens of runs a process aborted as it ended, when every check was over ("terminate called
    # without an active exception": a thread that nobody had joined; whose is not known).
    os._exit(0)


def network() -> nn.Sequential:
    torch.manual_seed(11)
    return nn.Sequential(
        nn.ConvTranspose1d(4, 6, 4, 2, 1), nn.Tanh(), nn.ConvTranspose1d(6, 2, 3, 3, groups=2), nn.Tanh()
    )


def data() -> torch.Tensor:
    return torch.randn(4, 4, 9, generator=torch.Generator().manual_seed(5))


def train(model: nn.Module, batches: list[torch.Tensor]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in batches:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()


def trained_alone() -> nn.Module:
    model = network()
    train(model, [data(), data() + 1, data() * 2])
    return model


def shard_of(rank: int) -> list[torch.Tensor]:
    return [batch[2 * rank : 2 * rank + 2] for batch in (data(), data() + 1, data() * 2)]


def data_parallel(mesh: DeviceMesh, rank: int) -> None:
    model = network()
    tconv.convert(model)
    train(DistributedDataParallel(model), shard_of(rank))
    for a, e in zip(model.parameters(), trained_alone().parameters(), strict=True):
        torch.testing.assert_close(a, e)


def fully_sharded(mesh: DeviceMesh, rank: int) -> None:
    model = network()
    tconv.convert(model)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, shard_of(rank))
    for a, e in zip(model.parameters(), trained_alone().parameters(), strict=True):
        assert isinstance(a, DTensor)
        torch.testing.assert_close(a.full_tensor(), e)


def fully_sharded_weight_norm(mesh: DeviceMesh, rank: int) -> None:
    def build() -> nn.Module:
        torch.manual_seed(2)
        return nn.utils.parametrizations.weight_norm(nn.ConvTranspose1d(4, 6, 4, 2))

    model, alone = build(), build()
    tconv.convert(model)
    fully_shard(model, mesh=mesh)
    train(model, shard_of(rank))
    train(alone, [data(), data() + 1, data() * 2])
    for a, e in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a.full_tensor(), e)


# Placements of x, w and bias; the placement of y that must follow without anything being moved.
PLACEMENTS = {
    "replicate": (Replicate(), Replicate(), Replicate(), Replicate()),
    "batch": (Shard(0), Replicate(), Replicate(), Shard(0)),
    "out-channels": (Replicate(), Shard(1), Shard(0), Shard(1)),
    "in-channels": (Shard(1), Shard(0), None, Partial()),
}


def sharding_rule(name: str) -> object:
    def check(mesh: DeviceMesh, rank: int) -> None:
        torch.manual_seed(1)
        x, w, b = torch.randn(4, 6, 5, 4), torch.randn(6, 4, 3, 2), torch.randn(4)
        on_x, on_w, on_b, on_y = PLACEMENTS[name]
        plain = [t.clone().requires_grad_() for t in (x, w, b)]
        sharded = [distribute_tensor(x, mesh, [on_x]), distribute_tensor(w, mesh, [on_w])]
        if on_b is not None:
            sharded.append(distribute_tensor(b, mesh, [on_b]))
        sharded = [t.detach().requires_grad_() for t in sharded]
        y = tconv.conv_transpose2d(*sharded, stride=2, padding=1)
        assert list(y.placements) == [on_y], f"{y.placements} instead of {on_y}"
        expected = tconv.conv_transpose2d(*plain[: len(sharded)], stride=2, padding=1)
        torch.testing.assert_close(y.full_tensor(), expected)
        y.redistribute(mesh, [Replicate()]).pow(2).sum().backward()
        expected.pow(2).sum().backward()
        for a, e in zip(sharded, plain, strict=False):
            torch.testing.assert_close(a.grad.full_tensor(), e.grad)

    return check


def bias_beside_a_partial_sum(mesh: DeviceMesh, rank: int) -> None:
    # The bias must enter the sum once, whatever it costs to see to that.
    x, w, b = torch.randn(4, 6, 5), torch.randn(6, 4, 3), torch.randn(4)
    for tensor in (x, w, b):
        dist.broadcast(tensor, 0)
    sharded = (distribute_tensor(x, mesh, [Shard(1)]), distribute_tensor(w, mesh, [Shard(0)]))
    y = tconv.conv_transpose1d(*sharded, distribute_tensor(b, mesh, [Replicate()]))
    torch.testing.assert_close(y.full_tensor(), tconv.conv_transpose1d(x, w, b))


def grouped_layer(mesh: DeviceMesh, rank: int) -> None:
    # Channels of a grouped layer are not split: the operands are gathered, and the result is right.
    x, w = torch.randn(4, 6, 5), torch.randn(6, 2, 3)
    for tensor in (x, w):
        dist.broadcast(tensor, 0)
    y = tconv.conv_transpose1d(
        distribute_tensor(x, mesh, [Shard(1)]), distribute_tensor(w, mesh, [Shard(0)]), groups=3
    )
    torch.testing.assert_close(y.full_tensor(), tconv.conv_transpose1d(x, w, groups=3))


def tensor_parallel_module(mesh: DeviceMesh, rank: int) -> None:
    # Out-channels of the first layer split, which are the in-channels of the second: a Megatron pair.
    torch.manual_seed(4)
    model = nn.Sequential(tconv.nn.ConvTranspose1d(3, 8, 4, 2), nn.ReLU(), tconv.nn.ConvTranspose1d(8, 2, 3))
    alone = nn.Sequential(nn.ConvTranspose1d(3, 8, 4, 2), nn.ReLU(), nn.ConvTranspose1d(8, 2, 3))
    alone.load_state_dict(model.state_dict())
    placements = {"0.weight": Shard(1), "0.bias": Shard(0), "2.weight": Shard(0), "2.bias": Replicate()}
    for name, parameter in list(model.named_parameters()):
        index, key = name.split(".")
        sharded = distribute_tensor(parameter.detach(), mesh, [placements[name]])
        setattr(model[int(index)], key, nn.Parameter(sharded))
    x = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(8))
    y = model(distribute_tensor(x, mesh, [Replicate()])).full_tensor()
    expected = alone(x)
    torch.testing.assert_close(y, expected)
    y.pow(2).sum().backward()
    expected.pow(2).sum().backward()
    for a, e in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(a.grad.full_tensor(), e.grad)


CHECKS = {
    "data_parallel": data_parallel,
    "fully_sharded": fully_sharded,
    "fully_sharded_weight_norm": fully_sharded_weight_norm,
    **{f"sharding: {name}": sharding_rule(name) for name in PLACEMENTS},
    "bias_beside_a_partial_sum": bias_beside_a_partial_sum,
    "grouped_layer": grouped_layer,
    "tensor_parallel_module": tensor_parallel_module,
}
