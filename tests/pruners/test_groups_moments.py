"""What optimizers remember of gradients: a power of them, and forgotten where a weight was removed."""

import torch
from torch import nn

from lib import pruners
from lib.pruners import groups as gs


def test_the_power_of_adagrads_memory_is_two():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adagrad(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert [power for _, power in gs.moments(model.weight, [optimizer])] == [2]


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
