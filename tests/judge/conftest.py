"""What the judge's tests share."""

import pytest
import torch


@pytest.fixture
def seeded():
    torch.manual_seed(11)
