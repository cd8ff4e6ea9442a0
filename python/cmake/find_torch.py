"""Prints the folder of the PyTorch to build against.

An isolated build (plain ``pip install .``) hides the environment's packages from the interpreter, but not
where they are: asking for that finds the PyTorch that is installed, where listing it as a build requirement
would download another one.
"""

import importlib.util
import os
import site
import sys
import sysconfig
from pathlib import Path


def candidates() -> list[Path]:
    folders = []
    if "TCONV_TORCH" in os.environ:
        folders.append(Path(os.environ["TCONV_TORCH"]))
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent)
    parents = [sysconfig.get_path("platlib"), sysconfig.get_path("purelib")]
    base = {"base": sys.base_prefix, "platbase": sys.base_prefix}
    parents += [sysconfig.get_path("platlib", vars=base), sysconfig.get_path("purelib", vars=base)]
    parents += site.getsitepackages()
    return folders + [Path(parent) / "torch" for parent in parents]


def main() -> int:
    for folder in candidates():
        if (folder / "include" / "torch" / "csrc" / "stable" / "library.h").exists():
            print(folder)
            return 0
    print(
        "no PyTorch of version 2.10 or later was found: install one into this environment, "
        "or name its folder in the environment variable TCONV_TORCH",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
