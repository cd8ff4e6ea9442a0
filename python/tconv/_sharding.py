"""Sharding rules for DTensor: which shards of the operands give which shard of the result.

One mesh dimension at a time, with N the batch, I the in-channels and O the out-channels of the layer,
x [N, I, …], w [I, O / groups, …], y [N, O, …]:

==============  ==============  ==============  ==============
                x               w               y
==============  ==============  ==============  ==============
replicate       whole           whole           whole
batch           Shard(0)        whole           Shard(0)
out-channels    whole           Shard(1)        Shard(1)
in-channels     Shard(1)        Shard(0)        Partial()
==============  ==============  ==============  ==============

Read with the result in another column, the same table holds for the gradients: whatever index is summed
over turns the result into a partial sum. Channels are split only where groups = 1: in a grouped layer a
shard of one operand's channels meets parts of groups only.

Importing this module registers the rules; :mod:`tconv.functional` does so when it meets a tensor subclass
in a program that uses DTensor.
"""

from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from ._library import CONV_TRANSPOSE, GRAD_INPUT, GRAD_WEIGHT


@register_sharding(CONV_TRANSPOSE)
def _conv_transpose(input, weight, bias, geometry, groups, allow_tf32):  # noqa: ANN001, ANN202
    rest = [None, None, None]

    def rule(y, x, w, b):  # noqa: ANN001, ANN202
        return [y], [x, w, None if bias is None else b, *rest]

    rules = [
        rule(Replicate(), Replicate(), Replicate(), Replicate()),
        rule(Shard(0), Shard(0), Replicate(), Replicate()),
    ]
    if groups == 1:
        rules.append(rule(Shard(1), Replicate(), Shard(1), Shard(0)))
        # Every rank adds its bias to its partial sum, so the bias must be one whose sum is the bias.
        rules.append(rule(Partial(), Shard(1), Shard(0), Partial()))
    return rules


@register_sharding(GRAD_INPUT)
def _grad_input(gy, weight, geometry, groups, allow_tf32):  # noqa: ANN001, ANN202
    rest = [None, None, None]
    rules = [
        ([Replicate()], [Replicate(), Replicate(), *rest]),
        ([Shard(0)], [Shard(0), Replicate(), *rest]),
    ]
    if groups == 1:
        rules.append(([Partial()], [Shard(1), Shard(1), *rest]))
        rules.append(([Shard(1)], [Replicate(), Shard(0), *rest]))
    return rules


@register_sharding(GRAD_WEIGHT)
def _grad_weight(input, gy, kernel_size, geometry, groups, allow_tf32):  # noqa: ANN001, ANN202
    rest = [None, None, None, None]
    rules = [
        ([Replicate()], [Replicate(), Replicate(), *rest]),
        ([Partial()], [Shard(0), Shard(0), *rest]),
    ]
    if groups == 1:
        rules.append(([Shard(1)], [Replicate(), Shard(1), *rest]))
        rules.append(([Shard(0)], [Shard(1), Replicate(), *rest]))
    return rules
