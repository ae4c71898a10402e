"""What optimizers remember of gradients: a power of them, and forgotten where a weight was removed."""

import torch
from torch import nn

from lib import pruners
from lib.kernels.block_circulant import circulant
from lib.pruners import blocks
from lib.pruners import groups as gs


def test_the_power_of_adagrads_memory_is_two():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adagrad(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert [power for _, power, _ in gs.moments(model.weight, [optimizer])] == [2]


def test_to_forget_gradients_leaves_what_is_none_as_it_is():
    model = nn.Sequential(nn.Linear(4, 4))
    optimizer = torch.optim.Rprop(model.parameters())
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    mask = torch.rand(4, 4) > 0.5
    pruners.attach(model, {"0.weight": mask})
    gs.forget(model, [optimizer])
    state = optimizer.state[model[0].parametrizations.weight.original]
    assert not bool(state["prev"][~mask].any())
    assert bool((state["step_size"] > 0).all())


def test_the_momentum_of_rmsprop_is_of_normalised_gradients_so_its_scale_stays_and_it_is_forgotten():
    model = nn.Sequential(nn.Linear(4, 4))
    gs.group(model, {"0.weight": circulant(2)}, releasable=True)
    optimizer = torch.optim.RMSprop(model.parameters(), momentum=0.9)
    trained = model[0].parametrizations.weight.original
    for _ in range(5):  # each coefficient's gradient is the same, so its step is, too
        trained.grad = torch.ones_like(trained)
        optimizer.step()
    momentum = optimizer.state[trained]["momentum_buffer"]
    before = momentum.abs().max()
    gs.regroup(model, {"0.weight": blocks.single(2)}, optimizers=[optimizer])
    torch.testing.assert_close(momentum.abs().max(), before)
