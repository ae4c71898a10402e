"""Which layers the rule leaves, counted by the shapes the paper's networks have."""

import pytest

from lib.errors import BadInput
from lib.evaluation.layers import left_dense


@pytest.mark.parametrize("network", ["resnet34", "resnet50"])
def test_only_the_first_convolution_of_an_imagenet_resnet_is_left(network: str):
    """Its inner dimension is 7 x 7 x 3 = 147; all others are multiples of 64, so for 8 bits it is the same one."""
    assert left_dense(network, 16) == left_dense(network, 8) == 1


def test_an_unknown_network_is_refused():
    with pytest.raises(BadInput, match="known are resnet34, resnet50"):
        left_dense("resnet7")
