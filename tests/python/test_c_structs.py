"""The structs of ``tconv/tconv.h`` as Python declares them: as large as libtconv has them."""

import ctypes
import importlib.util
from pathlib import Path

import pytest

from tconv.export import _Layer, _library

BENCH = Path(__file__).parents[2] / "bench"


def bytes_of(struct: str) -> int:
    function = getattr(_library(), f"tconv_{struct}_bytes")
    function.restype = ctypes.c_size_t
    return function()


def test_the_layer_of_the_exporter():
    assert ctypes.sizeof(_Layer) == bytes_of("layer")


@pytest.mark.parametrize(
    ("folder", "structs"),
    [(BENCH, ("Layer", "View", "RunOptions")), (BENCH / "gpu", ("_Layer", "_Tensor", "_Options"))],
)
def test_those_of_the_benchmarks(folder, structs, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location(f"library_of_{folder.name}", folder / "library.py")
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    sizes = [ctypes.sizeof(getattr(library, name)) for name in structs]
    assert sizes == [bytes_of("layer"), bytes_of("tensor"), bytes_of("run_options")]
