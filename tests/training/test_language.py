"""Laws of `lib.training.language`: bits as defined, each character foreseen once, and stopping without a trace."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.models.transformer import Decoder, LanguageModel
from lib.training.language import bits, share_right, windows
from lib.training.steps import StepTraining, entropy, fit, groups, learning_rate

SCHEDULE = StepTraining(steps=6, every=2, batch=4, learning_rate=0.01)
TEXT = torch.randint(10, (200,), generator=torch.Generator().manual_seed(0))


class Always(nn.Module):
    """The same logits wherever it is asked."""

    def __init__(self, logits: torch.Tensor):
        super().__init__()
        self.logits = logits

    def forward(self, tokens):
        return self.logits.expand(*tokens.shape, -1)


def model():
    torch.manual_seed(3)
    return LanguageModel(Decoder(10, 16, width=32, blocks=2, heads=2, dropout=0.1))


def train(state=None, on_progress=lambda: None, **changed):
    network = model()
    measure = lambda network: bits(network, TEXT, 16)  # noqa: E731
    rows = fit(
        network, windows(TEXT, 16, 4), SCHEDULE, 5, 0, state, on_progress=on_progress, measure=measure, **changed
    )
    return network, rows


@pytest.mark.parametrize("window", [7, 16, 199, 300])
def test_a_model_that_knows_nothing_needs_the_logarithm_of_the_symbols(window):
    assert bits(Always(torch.zeros(10)), TEXT, window) == pytest.approx(math.log2(10), rel=1e-6)


@pytest.mark.parametrize("window", [7, 16])
def test_bits_are_the_mean_of_minus_log2_of_what_each_next_character_was_given(window):
    share = torch.arange(1, 11) / 55
    expected = -share[TEXT[1:]].log2().mean()
    assert bits(Always(share.log()), TEXT, window, batch=3) == pytest.approx(float(expected), rel=1e-6)


def test_targets_are_the_same_stretch_one_token_later():
    inputs, targets = windows(torch.arange(100), 16, 8)(torch.Generator().manual_seed(0))
    assert inputs.shape == targets.shape == (8, 16)
    assert torch.equal(targets, inputs + 1)
    assert torch.equal(inputs - inputs[:, :1], torch.arange(16).expand(8, 16))


def test_every_stretch_of_the_text_is_drawn():
    draw, generator = windows(torch.arange(20), 16, 64), torch.Generator().manual_seed(0)
    assert draw(generator)[0][:, 0].unique().tolist() == [0, 1, 2, 3]


def test_it_learns():
    text = torch.arange(400) % 10
    network = model()
    rows = fit(network, windows(text, 16, 4), replace(SCHEDULE, steps=120, every=40), 0)
    assert [row["step"] for row in rows] == [40, 80, 120]
    assert bits(network, text, 16) < 0.5 < bits(model(), text, 16)


def test_bfloat16_computes_products_in_it_and_attention_weights_and_loss_in_float32():
    """Attention is slower in bfloat16 on a CPU; a loss of rounded logits would be noise."""
    network, types = model(), {}

    def note(module: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        types[module] = inputs[0].dtype, output.dtype

    block = network.decoder.blocks[0]
    for layer in (block.wide, block.narrow, block.out):
        layer.register_forward_hook(note)
    fit(network, windows(TEXT, 16, 4), replace(SCHEDULE, precision="bfloat16"), 0)
    assert {found[1] for found in types.values()} == {torch.bfloat16}
    assert types[block.out][0] == torch.float32  # what attention has read
    assert {weight.dtype for weight in network.parameters()} == {torch.float32}
    logits, classes = torch.randn(4, 3, 5).bfloat16(), torch.randint(5, (4, 3))
    assert torch.equal(entropy(logits, classes), entropy(logits.float(), classes))


def test_bfloat16_learns_about_what_float32_does():
    text = torch.arange(400) % 10
    needed = {}
    for precision in ("float32", "bfloat16"):
        network = model()
        fit(network, windows(text, 16, 4), replace(SCHEDULE, steps=60, every=60, precision=precision), 0)
        needed[precision] = bits(network, text, 16)
    assert needed["bfloat16"] != needed["float32"]
    assert needed["bfloat16"] == pytest.approx(needed["float32"], abs=0.1)


def test_a_session_that_was_stopped_ends_with_the_same_numbers(tmp_path):
    expected, rows = train()
    count = 0

    def stop():
        nonlocal count
        count += 1
        if count == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(tmp_path / "s.pt", stop)
    done = []
    gone_on, found = train(tmp_path / "s.pt", lambda: done.append(1))
    assert found == rows
    assert len(done) == 3  # two of them had been done before
    states = expected.state_dict()
    assert all(torch.equal(states[name], value) for name, value in gone_on.state_dict().items())


def test_a_file_of_another_session_is_refused(tmp_path):
    train(tmp_path / "s.pt", identity={"variant": "dense"})
    with pytest.raises(BadInput, match=r"other settings \(variant\)"):
        train(tmp_path / "s.pt", identity={"variant": "sparse"})


def test_the_rate_rises_then_falls_to_zero():
    schedule = StepTraining(steps=100, every=1, batch=1, learning_rate=0.5, warmup=0.1)
    rates = [learning_rate(schedule, step) for step in range(100)]
    assert rates.index(max(rates)) == 9
    assert max(rates) <= 0.5
    assert rates[0] == pytest.approx(0.05)
    assert rates[50] == pytest.approx(0.25)
    assert rates[-1] < 0.001


def test_training_is_adamw_on_shortened_gradients():
    schedule = StepTraining(steps=3, every=3, batch=4, learning_rate=0.1, weight_decay=0.5, clip=0.01)
    one, other, drawn = nn.Linear(3, 2), nn.Linear(3, 2), []
    other.load_state_dict(one.state_dict())

    def draw(generator):
        drawn.append((torch.randn(4, 3, generator=generator), torch.randint(2, (4,), generator=generator)))
        return drawn[-1]

    fit(one, draw, schedule, 0)
    decays = [{"params": [other.weight], "weight_decay": 0.5}, {"params": [other.bias], "weight_decay": 0.0}]
    theirs = torch.optim.AdamW(decays, 0.1)
    for step, (inputs, targets) in enumerate(drawn):
        for group in theirs.param_groups:
            group["lr"] = learning_rate(schedule, step)
        theirs.zero_grad()
        F.cross_entropy(other(inputs), targets).backward()
        length = torch.cat([weight.grad.flatten() for weight in other.parameters()]).norm()
        assert length > schedule.clip
        for weight in other.parameters():
            weight.grad *= schedule.clip / length
        theirs.step()
    torch.testing.assert_close(one.weight, other.weight)
    torch.testing.assert_close(one.bias, other.bias)


def test_only_matrices_decay():
    decays, others = groups(model(), 0.1)
    assert (decays["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert {parameter.dim() for parameter in decays["params"]} == {2}
    assert {parameter.dim() for parameter in others["params"]} == {1}
    assert len(decays["params"]) + len(others["params"]) == len(list(model().parameters()))


def test_share_right_counts_passages():
    labels = torch.tensor([2, 1, 2, 2, 0])
    answers = nn.Sequential(nn.Embedding(3, 3), nn.Flatten(0, 1))
    answers[0].weight = nn.Parameter(torch.eye(3))
    assert share_right(answers, torch.tensor([[2], [1], [1], [2], [0]]), labels, batch=2) == 80.0


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"every": 7},
        {"every": 1.5},
        {"batch": 0},
        {"learning_rate": 0.0},
        {"warmup": 1.0},
        {"clip": 0.0},
        {"weight_decay": -1.0},
        {"weight_decay": math.nan},
        {"precision": "float16"},
    ],
)
def test_a_schedule_that_cannot_be_is_refused(change):
    with pytest.raises(BadInput, match=next(iter(change))):
        replace(SCHEDULE, **change)


def test_a_text_shorter_than_the_window_is_refused():
    with pytest.raises(BadInput, match="16 tokens is too short for a window of 16"):
        windows(torch.arange(16), 16, 1)


@pytest.mark.parametrize("count", [0, 1])
def test_a_text_in_which_nothing_comes_next_is_refused(count):
    with pytest.raises(BadInput, match=f"a text of {count} tokens is too short to be foretold: expected two or more"):
        bits(Always(torch.zeros(3)), torch.zeros(count, dtype=torch.int64), 4)


@pytest.mark.parametrize("read", [windows, lambda *sizes: bits(Always(torch.zeros(10)), *sizes)])
def test_a_window_or_a_batch_of_nothing_is_refused(read):
    with pytest.raises(BadInput, match="window=0: expected a whole number, at least 1"):
        read(TEXT, 0, 4)
    with pytest.raises(BadInput, match="batch=0: expected a whole number, at least 1"):
        read(TEXT, 16, 0)


def test_a_network_that_is_wholly_frozen_is_refused():
    with pytest.raises(BadInput, match=r"^all of the network is frozen: nothing of it would learn"):
        fit(model().requires_grad_(False), windows(torch.arange(50) % 5, 8, 4), StepTraining(2, 1, 4, 1e-3), seed=0)


def test_to_measure_leaves_each_module_in_its_mode():
    network = model().train()
    frozen = next(module for module in network.modules() if isinstance(module, nn.Linear))
    frozen.eval()
    before = [module.training for module in network.modules()]
    bits(network, torch.arange(50) % 5, 8)
    assert [module.training for module in network.modules()] == before
    assert len(set(before)) == 2


def test_a_network_of_nan_has_no_share_of_right_answers():
    model = nn.Embedding(4, 3)
    nn.init.constant_(model.weight, math.nan)
    with pytest.raises(FloatingPointError, match="a logit is not a number"):
        share_right(model, torch.zeros(5, dtype=torch.long), torch.zeros(5, dtype=torch.long))


def test_the_weights_that_are_left_of_a_sparse_layer_decay_as_the_masked_ones_do():
    masked = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    pruners.attach(masked, pruners.unstructured(pruners.magnitude(masked), 0.5, scope="layer"))
    sparse = pruners.sparse(masked)
    counts = [[sum(p.numel() for p in group["params"]) for group in groups(one, 0.1)] for one in (masked, sparse)]
    assert counts == [[8 * 16 + 16 * 4, 16 + 4], [4 * 16 + 8 * 4, 16 + 4]]
