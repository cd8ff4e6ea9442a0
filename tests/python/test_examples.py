"""The examples, run as their readers run them."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.utils import weight_norm as old_weight_norm

import tconv

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import unet
import vocoder
from models import UNet, Vocoder


@pytest.mark.parametrize(("example", "layers"), [(vocoder, 4), (unet, 3)], ids=["vocoder", "unet"])
def test_ten_steps_give_the_same_losses(example, layers):
    result = example.main()
    assert result["changed"] == layers
    assert result["output"] <= 1e-5
    assert result["loss"] <= 1e-4


@pytest.mark.parametrize("build", [Vocoder, UNet, lambda: Vocoder(normalise=old_weight_norm)])
def test_checkpoints_load_in_either_direction(build):
    plain, other = build(), build()
    tconv.convert(other)
    x = torch.randn(1, 40, 3) if isinstance(plain, Vocoder) else torch.randn(1, 1, 16, 24)
    plain.eval(), other.eval()
    other.load_state_dict(copy.deepcopy(plain.state_dict()))
    torch.testing.assert_close(other(x), plain(x), rtol=1e-5, atol=1e-5)
    fresh = build().eval()
    fresh.load_state_dict(copy.deepcopy(other.state_dict()))
    torch.testing.assert_close(fresh(x), plain(x), rtol=1e-5, atol=1e-5)
