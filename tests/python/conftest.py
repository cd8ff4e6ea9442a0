"""Settings all tests of the PyTorch front end share."""

import os

# oneDNN, with which PyTorch's side of the comparisons runs, traps on AMX under some hypervisors.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# Threads that spin while they wait stand in each other's way on a busy machine: minutes instead of seconds.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(20260)
