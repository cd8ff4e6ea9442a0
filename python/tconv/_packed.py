"""Packed weights of modules on a GPU, kept until the weight changes.

The engine reads weights in an order of its own. A function has to bring them into it in every call; a module in
eval mode does so once for each content of its weight. A :class:`Ticket` stands for one weight with one content:
the operator library keeps what it packs under the ticket's number and lets go of it with the ticket.

A content is told by three things together: which tensor it is, PyTorch's count of the changes made to that
tensor, and the address of its memory. PyTorch does not count every change: not those of fused optimizers, of
CUDA graphs, and through ``weight.data``. So nothing is kept in training mode, and a module lets go of what it
has when its mode is set, even to the one it has, and when it runs with gradients recorded.

Nor is anything kept for CUDA graphs: they pack what the weight holds when they are replayed, unless the module
is frozen (:mod:`tconv.freeze`).

Under autocast what is packed is the weight in autocast's dtype, a tensor of its own. It is kept with the ticket of
the weight it was made of, by the same rules: for the stream it was made on, for all where the module is frozen.
"""

from itertools import count

import torch
from torch import Tensor

from ._library import forget_packed, run_conv_transpose, run_conv_transpose_kept

_numbers = count()
_MAX_CASTS = 8
"""Dtypes times streams of one weight. Few have more than one."""


def _current_stream(weight: Tensor) -> tuple[torch.cuda.Stream, bool]:
    """The stream of a call, and whether it is being captured in a CUDA graph."""
    with torch.cuda.device_of(weight):
        return torch.cuda.current_stream(), torch.cuda.is_current_stream_capturing()


class Ticket:
    """One weight with one content."""

    __slots__ = ("_memory", "address", "casts", "number", "version", "weight")

    def __init__(self, weight: Tensor) -> None:
        self.number = next(_numbers)
        self.weight = weight
        self.version = weight._version
        self.address = weight.data_ptr()
        self._memory = weight.detach()  # as long as it is held, no other content can come to lie at the address
        self.casts: dict[tuple, Ticket] = {}

    def stands_for(self, weight: Tensor) -> bool:
        return self.weight is weight and self.version == weight._version and self.address == weight.data_ptr()

    def cast(self, dtype: torch.dtype, frozen: bool) -> "Ticket | None":
        """The ticket of the weight in another dtype; None where it can be neither found nor kept."""
        stream, capturing = _current_stream(self.weight)
        if capturing and not frozen:
            return None  # a graph casts what the weight holds when it is replayed
        key = (dtype, None if frozen else stream.cuda_stream)
        found = self.casts.get(key)
        if found is None and not capturing:
            with torch.inference_mode(False), torch.no_grad():
                found = Ticket(self.weight.detach().to(dtype))
            if frozen:
                stream.synchronize()
            elif len(self.casts) >= _MAX_CASTS:
                self.casts.pop(next(iter(self.casts)), None)
            self.casts[key] = found
        return found

    def __del__(self, forget: object = forget_packed) -> None:
        forget(self.number)


class PackedWeight:
    """What a module holds: its ticket. Copies and pickles of a module begin without one."""

    __slots__ = ("frozen", "ticket")

    def __init__(self, frozen: bool = False) -> None:
        self.ticket: Ticket | None = None
        self.frozen = frozen

    def __reduce__(self) -> tuple:
        return PackedWeight, ()

    def ticket_for(self, weight: Tensor) -> Ticket | None:
        """The ticket of a weight as it is now; None where PyTorch does not count its changes."""
        ticket = self.ticket
        if ticket is not None and ticket.stands_for(weight):
            return ticket
        if self.frozen and ticket is not None:
            raise RuntimeError(
                "the weight of a frozen transposed convolution has changed; CUDA graphs may still hold the old "
                "one. Call tconv.unfreeze(model) before changing it"
            )
        if weight.is_inference():
            return None
        ticket = self.ticket = Ticket(weight)
        return ticket


def let_go(module: torch.nn.Module) -> None:
    """Forgets what a module keeps, because its weight may be about to change. Frozen weights do not."""
    packed = module._packed
    if packed is not None and not packed.frozen:
        module.__dict__.pop("_packed", None)  # another thread may have been quicker


def run_keeping(
    module: torch.nn.Module,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    number: int,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The layer of a module, without gradients; the weight cast to ``dtype`` and packed once where that may be."""
    packed = module._packed
    if packed is None and not module.training:
        packed = module._packed = PackedWeight()
    ticket = None
    if packed is not None and (packed.frozen or not module.training):
        ticket = packed.ticket_for(weight)
    if ticket is not None and dtype is not None:
        ticket = ticket.cast(dtype, packed.frozen)
    if ticket is None:
        return run_conv_transpose(input, weight if dtype is None else weight.to(dtype), bias, number)
    return run_conv_transpose_kept(input, ticket.weight, bias, number, ticket.number, packed.frozen)
