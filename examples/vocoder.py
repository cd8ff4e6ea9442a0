"""Converts a HiFi-GAN-style generator and trains it ten steps beside its PyTorch original: same losses.

python examples/vocoder.py
"""

import torch
from torch import nn

from models import Vocoder
from side_by_side import compare


def main(steps: int = 10) -> dict[str, float]:
    torch.manual_seed(0)
    model = Vocoder()
    batches = [(torch.randn(2, 40, 12), torch.randn(2, 1, 12 * 256).tanh()) for _ in range(steps)]
    return compare("vocoder", model, batches, nn.functional.l1_loss)


if __name__ == "__main__":
    main()
