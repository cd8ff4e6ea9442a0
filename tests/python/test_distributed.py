"""Two real processes over gloo: DistributedDataParallel, FSDP2 and DTensor's sharding rules."""

import pytest
import torch.multiprocessing as multiprocessing

import distributed_worker


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What every check gave in either process. Starting processes takes longer than all checks together."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    address = f"file://{tmp_path_factory.mktemp('gloo') / 'meeting'}"
    multiprocessing.spawn(distributed_worker.run, (address, results), nprocs=2, join=True)
    return [results.get()[1] for _ in range(2)]


@pytest.mark.parametrize("check", distributed_worker.CHECKS)
def test_two_processes(outcomes, check):
    for outcome in outcomes:
        assert outcome[check] == "passed"
