"""Converts a U-Net and trains it ten steps beside its PyTorch original: same losses.

python examples/unet.py
"""

import torch
from torch import nn

from models import UNet
from side_by_side import compare


def main(steps: int = 10) -> dict[str, float]:
    torch.manual_seed(0)
    model = UNet(width=8)
    # 30 x 45 is no multiple of 8: the way up has to be told odd sizes.
    batches = [(torch.randn(2, 1, 30, 45), torch.randint(0, 3, (2, 30, 45))) for _ in range(steps)]
    return compare("unet", model, batches, nn.functional.cross_entropy)


if __name__ == "__main__":
    main()
