"""Laws of `lib.training.adversarial`: whose weights a loss moves, what is learned, stopping without a trace."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib.base import BadInput
from lib.models.dcgan import small_dcgan
from lib.training import adversarial
from lib.training.adversarial import AdversarialTraining, fit, make, scaled, toward

IMAGES = torch.randint(256, (70, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
SETTINGS = AdversarialTraining(epochs=3, batch=16, learning_rate=1e-3)


def pair():
    torch.manual_seed(4)
    return small_dcgan(width=4)


def play(settings=SETTINGS, images=IMAGES, **more):
    generator, discriminator = pair()
    rows = fit(generator, discriminator, images, settings, 7, **more)
    return generator, discriminator, rows


def states(*networks):
    return torch.cat([value.flatten().float() for network in networks for value in network.state_dict().values()])


def test_pixels_are_scaled_to_what_the_generator_makes():
    assert scaled(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1.0, 1.0]


def test_losses_are_cross_entropies():
    logits = torch.tensor([0.3, -1.2])
    right = logits.sigmoid()
    assert float(toward(logits, 1.0)) == pytest.approx(float(-right.log().mean()))
    assert float(toward(logits, 0.0)) == pytest.approx(float(-(1 - right).log().mean()))


def test_each_loss_moves_its_own_network_only(monkeypatch):
    moved = []
    step = adversarial._step

    def watched(optimizer, loss):
        before = states(*networks)
        parts = len(states(networks[0]))
        step(optimizer, loss)
        change = (states(*networks) != before).nonzero().flatten()
        moved.append((bool((change < parts).any()), bool((change >= parts).any())))

    networks = pair()
    monkeypatch.setattr(adversarial, "_step", watched)
    fit(*networks, IMAGES, replace(SETTINGS, epochs=1), 7)
    assert moved == [(False, True), (True, False)] * 4
    assert all(parameter.requires_grad for parameter in networks[1].parameters())


def test_the_discriminator_tells_apart_and_the_generator_asks_to_be_taken_for_real(monkeypatch):
    networks, judged, losses = pair(), [], []
    networks[1].register_forward_hook(lambda module, inputs, logits: judged.append(logits.detach()))
    monkeypatch.setattr(adversarial, "_step", lambda optimizer, loss: losses.append(loss.item()))
    fit(*networks, IMAGES[:16], AdversarialTraining(epochs=1, batch=16), 7)
    real, made, again = judged
    told = F.softplus(-real).mean() + F.softplus(made).mean()
    assert losses == pytest.approx([float(told), float(F.softplus(-again).mean())], rel=1e-5)


def test_adam_forgets_as_dcgan_has_it(monkeypatch):
    betas = []
    monkeypatch.setattr(adversarial, "_step", lambda optimizer, loss: betas.append(optimizer.defaults["betas"]))
    fit(*pair(), IMAGES[:16], AdversarialTraining(epochs=1, batch=16), 7)
    assert betas == [(0.5, 0.999)] * 2


def test_a_frozen_layer_of_either_network_stays_frozen():
    networks = pair()
    frozen = [network.layers[0].requires_grad_(False).weight for network in networks]
    before = [weight.clone() for weight in frozen]
    fit(*networks, IMAGES, replace(SETTINGS, epochs=1), 7)
    assert not any(weight.requires_grad for weight in frozen)
    assert all(map(torch.equal, frozen, before))


@pytest.mark.parametrize("place", [0, 1])
def test_a_network_that_is_wholly_frozen_is_refused(place):
    networks = pair()
    networks[place].requires_grad_(False)
    with pytest.raises(BadInput, match=f"all of the {('generator', 'discriminator')[place]} is frozen"):
        fit(*networks, IMAGES, replace(SETTINGS, epochs=1), 7)


def test_a_batch_that_is_not_full_is_left_out_and_rows_are_epochs():
    generator, _, rows = play(measure=lambda generator: float(not generator.training))
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert all(row["measured"] == 1 for row in rows)  # measured in evaluation mode
    assert generator.layers[1].num_batches_tracked == 3 * (70 // 16)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns_the_brightness_of_the_images(precision):
    dark = torch.full((64, 1, 8, 8), 20, dtype=torch.uint8)
    generator, _, _ = play(AdversarialTraining(epochs=30, batch=16, learning_rate=2e-3, precision=precision), dark)
    assert make(generator, 100, 0).float().mean() < 60
    assert make(pair()[0], 100, 0).float().mean() > 100


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_bfloat16_computes_in_bfloat16_and_keeps_float32_weights_and_losses(monkeypatch, precision):
    networks, computed, losses, step = pair(), [], [], adversarial._step
    for network in networks:
        network.layers[0].register_forward_hook(lambda module, inputs, output: computed.append(output.dtype))
    note = lambda optimizer, loss: (losses.append(loss.dtype), step(optimizer, loss))  # noqa: E731
    monkeypatch.setattr(adversarial, "_step", note)
    fit(*networks, IMAGES, replace(SETTINGS, precision=precision), 7)
    assert set(computed) == {getattr(torch, precision)}
    assert set(losses) == {torch.float32}
    assert {weight.dtype for network in networks for weight in network.parameters()} == {torch.float32}


def test_made_images_depend_on_the_seed_and_not_on_batches():
    generator, _, _ = play()
    one, batched, other = make(generator, 30, 0), make(generator, 30, 0, batch=7), make(generator, 30, 1)
    assert one.dtype == torch.uint8
    assert (one.int() - batched.int()).abs().max() <= 1
    assert not torch.equal(one, other)


def test_a_session_that_was_stopped_ends_with_the_same_numbers(tmp_path):
    *expected, rows = play()
    calls = iter([None, KeyboardInterrupt])

    def stop():
        if error := next(calls):
            raise error

    state = tmp_path / "pair.pt"
    with pytest.raises(KeyboardInterrupt):
        play(state=state, on_progress=stop)
    *found, again = play(state=state)
    assert [{k: v for k, v in row.items() if k != "measured"} for row in again] == [
        {k: v for k, v in row.items() if k != "measured"} for row in rows
    ]
    assert torch.equal(states(*found), states(*expected))
    with pytest.raises(BadInput, match=r"other settings \(data\)"):
        play(state=state, images=255 - IMAGES)


def test_other_sessions_see_other_batches():
    assert play(session=1)[2][0]["generator"] != play()[2][0]["generator"]


def test_bad_settings_are_refused():
    with pytest.raises(BadInput, match="epochs=0"):
        AdversarialTraining(epochs=0, batch=2)
    with pytest.raises(BadInput, match="training: batch=1: expected a whole number, at least 2"):
        AdversarialTraining(epochs=1, batch=1)
    with pytest.raises(BadInput, match="learning_rate=-1"):
        AdversarialTraining(epochs=1, batch=2, learning_rate=-1)
    with pytest.raises(BadInput, match="precision='float16'"):
        AdversarialTraining(epochs=1, batch=2, precision="float16")
    with pytest.raises(BadInput, match="batch=80, but there are only 70 images"):
        play(AdversarialTraining(epochs=1, batch=80))
    assert math.isfinite(play(AdversarialTraining(epochs=1, batch=70))[2][0]["discriminator"])


def test_dropout_is_drawn_from_the_seed_whatever_was_drawn_before():
    def rows(drawn_before: int):
        generator, discriminator = pair()
        torch.manual_seed(drawn_before)
        return fit(generator, nn.Sequential(discriminator, nn.Dropout(0.3)), IMAGES, SETTINGS, 7)

    assert rows(1) == rows(2)
