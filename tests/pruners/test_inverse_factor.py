"""Moments that nearly have no inverse are refused, at whichever of the two factors that shows."""

import torch

from lib.base import BadInput
from lib.pruners.one_shot import inverse_factor


def test_moments_that_nearly_have_no_inverse_are_refused_in_a_line():
    refused = []
    for seed in range(20):  # of moments that nearly have no inverse, the first factor may be found and the second not
        torch.manual_seed(seed)
        inputs = torch.randn(64, 16)
        inputs[:, 1] = inputs[:, 0] * (1 + 2e-7 * torch.randn(64))
        inputs[:, 2] = inputs[:, 0] - inputs[:, 3]
        second = inputs.double().T @ inputs.double() / len(inputs)
        try:
            inverse_factor(second)
        except BadInput as error:
            refused.append("a larger dampening" in str(error))
    assert refused
    assert all(refused)
