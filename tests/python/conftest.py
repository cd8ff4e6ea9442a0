"""Settings all tests of the PyTorch front end share."""

import os

# oneDNN, with which PyTorch's side of the comparisons runs, traps on AMX under some hypervisors.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(20260)
