"""The memory of large results on the CPU, which tconv keeps for the next ones.

Memory fresh from the system is cleared at the first touch, and for a large output that takes longer than the
layer. So where a result of 8 MiB or more is no longer used by anything, its memory waits for the next result of
about its size. Meanwhile the system may take it back without asking, as soon as it is short of memory; and no
more is kept than a limit, an eighth of the machine's memory unless set otherwise::

    tconv.cpu_memory.kept_bytes()    # what waits now
    tconv.cpu_memory.release()       # returns it
    tconv.cpu_memory.set_limit(0)    # keeps nothing: results are allocated by PyTorch

The environment variable ``TCONV_CPU_KEPT_MIB`` sets the limit from the start. Before PyTorch 2.11, which cannot be
handed such memory, nothing is kept.

Such results are tensors like all others but for two things. As with those of ``torch.from_numpy`` their storage
has one size: ``resize_`` to more elements than they have, ``out=`` that would have to grow them and
``untyped_storage().resize_`` are refused. And PyTorch's memory profiler does not see them. ``set_limit(0)`` has
neither. What is kept counts against ``ulimit -v`` and strict overcommit; it is returned when an allocation of
tconv's fails there, not when one of PyTorch's own does.
"""

import ctypes
import operator
import os

from ._library import OPERATOR_LIBRARY

__all__ = ["get_limit", "kept_bytes", "release", "set_limit"]

for _name, _result, _arguments in (
    ("kept_bytes", ctypes.c_int64, []),
    ("kept_limit", ctypes.c_int64, []),
    ("set_kept_limit", None, [ctypes.c_int64]),
    ("release_kept", ctypes.c_int64, []),
):
    _function = getattr(OPERATOR_LIBRARY, f"tconv_torch_{_name}")
    _function.restype, _function.argtypes = _result, _arguments


def kept_bytes() -> int:
    """Bytes that wait for results; the system may have taken their pages back already."""
    return OPERATOR_LIBRARY.tconv_torch_kept_bytes()


def get_limit() -> int:
    """Most bytes that may wait."""
    return OPERATOR_LIBRARY.tconv_torch_kept_limit()


def set_limit(bytes: int) -> None:
    """Sets how many bytes may wait, and returns those beyond. PyTorch allocates what is larger than that."""
    bytes = operator.index(bytes)
    if bytes < 0:
        raise ValueError(f"the limit of kept memory must not be negative, got {bytes}")
    OPERATOR_LIBRARY.tconv_torch_set_kept_limit(min(bytes, 2**63 - 1))


def release() -> int:
    """Returns all that waits to the system; how many bytes that were."""
    return OPERATOR_LIBRARY.tconv_torch_release_kept()


def _obey_environment() -> None:
    text = os.environ.get("TCONV_CPU_KEPT_MIB", "")
    if not text:
        return
    if not text.isdecimal():
        raise ImportError(f'TCONV_CPU_KEPT_MIB must be a number of MiB, got "{text}"')
    set_limit(int(text) << 20)


_obey_environment()
