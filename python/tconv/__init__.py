"""tconv: transposed convolutions for PyTorch.

Four ways in, from the least to the most of your code changed::

    tconv.convert(model)                          # every transposed convolution of a model, in place
    with tconv.patched(): y = model(x)            # calls of torch.nn.functional.conv_transpose1d as well
    layer = tconv.nn.ConvTranspose1d(512, 256, 16, stride=8, padding=4)
    y = tconv.conv_transpose1d(x, weight, bias, stride=8, padding=4)

All of them take what PyTorch's own take and give what PyTorch's own give, gradients of any order included.
"""

from importlib.metadata import PackageNotFoundError, version

from . import _autocast, _fake, _flops, _vmap, cpu_memory, nn
from .convert import Report, convert, revert
from .decompositions import decompositions
from .export import export
from .freeze import freeze, unfreeze
from .functional import conv_transpose1d, conv_transpose2d, conv_transpose3d
from .patched import patched

__all__ = [
    "Report",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convert",
    "cpu_memory",
    "decompositions",
    "export",
    "freeze",
    "nn",
    "patched",
    "revert",
    "unfreeze",
]

try:
    __version__ = version("tconv")
except PackageNotFoundError:
    __version__ = "0+unknown"

del PackageNotFoundError, version
del _autocast, _fake, _flops, _vmap  # imported for what they register
