"""Laws of `lib.training.supervised`: what one step does, which batches are seen, and that stopping changes nothing."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.data import vision
from lib.data.folder import Images
from lib.models.lenet import small_lenet
from lib.training import checkpoints
from lib.training.examples import Examples, crop_flip
from lib.training.supervised import Training, accuracy, learning_rate, train
from tests.training.stopping import same_state, stop_at

SETTINGS = Training(epochs=4, batch=8, learning_rate=0.05, augment="crop_flip")


def data(inputs, labels=None, test=12):
    """The first inputs to train on, the last to test on."""
    labels = np.arange(len(inputs)) % 3 if labels is None else np.asarray(labels)
    return SimpleNamespace(
        train_inputs=inputs[:-test], train_labels=labels[:-test], test_inputs=inputs[-test:], test_labels=labels[-test:]
    )


@pytest.fixture
def images():
    """20 + 12 random images of 2 channels and 3 classes."""
    return Examples.of(data(np.random.default_rng(0).integers(0, 256, (32, 2, 6, 6), dtype=np.uint8)))


def network(seed=0, sparsity=0.5):
    """Everything that has a state or draws random numbers: batch norm, dropout, masks."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(64, 3)
    )
    pruners.attach(model, pruners.unstructured(pruners.random(model, seed), sparsity))
    return model


def seen(model, examples, settings, **more):
    """The batches the model trains on, in order."""
    batches = []
    hook = model.register_forward_pre_hook(
        lambda module, inputs: batches.append(inputs[0].clone()) if module.training else None
    )
    train(model, examples, settings, **more)
    hook.remove()
    return batches


# Examples


def test_images_are_scaled_per_channel_with_the_statistics_of_the_training_set():
    inputs = np.array([[[[0, 2]], [[10, 10]]], [[[4, 2]], [[30, 30]]], [[[9, 9]], [[9, 9]]]], np.uint8)
    examples = Examples.of(data(inputs, test=1))
    assert examples.train_inputs.dtype == torch.uint8
    # channel means 2 and 20; standard deviations sqrt(2) and 10
    half = 2**0.5
    torch.testing.assert_close(
        examples.scaled(examples.train_inputs),
        torch.tensor([[[[-half, 0]], [[-1.0, -1]]], [[[half, 0]], [[1.0, 1]]]]),
    )
    torch.testing.assert_close(
        examples.scaled(examples.test_inputs), torch.tensor([[[[7 / half, 7 / half]], [[-1.1, -1.1]]]])
    )


def test_a_feature_that_never_varies_is_refused():
    with pytest.raises(BadInput, match="train_inputs: 1 of 2 channels never vary"):
        Examples.of(data(np.array([[0.0, 1], [0, 2], [0, 3]]), test=1))
    with pytest.raises(BadInput, match="train_inputs: 1 of 2 channels never vary"):  # whose mean is rounded
        Examples.of(data(np.array([[0.1, 1], [0.1, 2], [0.1, 3]]), test=1))


@pytest.mark.parametrize("part", ["train", "test"])
def test_each_input_needs_a_label(part):
    whole = vars(data(np.random.default_rng(0).normal(size=(20, 4))))
    with pytest.raises(BadInput, match=rf"^{part}: \d+ inputs and \d+ labels: expected one label an input$"):
        Examples.of(SimpleNamespace(**whole | {f"{part}_labels": whole[f"{part}_labels"][:-1]}))


def test_a_network_that_is_wholly_frozen_is_refused(images):
    model = network().requires_grad_(False)
    with pytest.raises(BadInput, match=r"^all of the network is frozen: nothing of it would learn"):
        train(model, images, Training(1, 4, 0.1), seed=0)


def test_a_read_only_memory_map_is_accepted_and_copied(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    inputs = np.load(tmp_path / "x.npy", mmap_mode="r")
    examples = Examples.of(data(inputs, test=2))
    examples.train_inputs.zero_()
    assert inputs[1].tolist() == [2, 3]


# Seeds and batches


def test_an_epoch_shows_each_example_once_in_an_order_of_its_own():
    inputs = np.arange(64, dtype=np.float32).reshape(32, 2)
    examples, settings = Examples.of(data(inputs)), Training(3, batch=8, learning_rate=0.1)
    batches = seen(nn.Linear(2, 3), examples, settings, seed=0)
    assert [len(batch) for batch in batches] == [8, 8, 4] * 3
    orders = [torch.cat(batches[start : start + 3]) for start in (0, 3, 6)]
    orders.append(torch.cat(seen(nn.Linear(2, 3), examples, settings, seed=0, session=1)[:3]))
    orders.append(torch.cat(seen(nn.Linear(2, 3), examples, settings, seed=1)[:3]))
    expected = examples.scaled(examples.train_inputs)
    assert all(torch.equal(order[order[:, 0].argsort()], expected) for order in orders)
    assert len({tuple(order[:, 0].tolist()) for order in orders}) == 5


def test_the_batches_depend_neither_on_masks_nor_on_the_network(images):
    torch.manual_seed(9)
    dense = nn.Sequential(nn.Flatten(), nn.Linear(72, 3))
    masked, dense_batches = network(), seen(dense, images, SETTINGS, seed=3)
    masked_batches = seen(masked, images, SETTINGS, seed=3)
    assert len(dense_batches) == 12
    assert all(torch.equal(*pair) for pair in zip(dense_batches, masked_batches, strict=True))


def test_each_image_is_one_of_its_shifted_crops_mirrored_half_of_the_time():
    draw, count = torch.Generator().manual_seed(0), 200
    images = torch.rand(count, 2, 4, 5, generator=draw) + 0.1
    padded = F.pad(images, (2, 2, 2, 2))
    choices = []
    for index, image in enumerate(crop_flip(images, draw, pad=2)):
        fits = []
        for down in range(5):
            for right in range(5):
                crop = padded[index, :, down : down + 4, right : right + 5]
                fits += [(down, right, flip) for flip in (0, 1) if torch.equal(crop.flip(-1) if flip else crop, image)]
        assert len(fits) == 1
        choices += fits
    down, right, mirrored = zip(*choices, strict=True)
    assert set(down) == set(right) == set(range(5))
    assert len(set(zip(down, right, strict=True))) == 25  # the two shifts are independent
    assert 0.4 < sum(mirrored) / count < 0.6


def test_test_images_are_never_augmented(images):
    model, shown = network(), []
    model.register_forward_pre_hook(lambda module, inputs: None if module.training else shown.append(inputs[0]))
    train(model, images, replace(SETTINGS, epochs=1), seed=0)
    assert torch.equal(torch.cat(shown), images.scaled(images.test_inputs))


# A step


def test_the_rate_warms_up_and_falls_along_a_cosine():
    settings = Training(epochs=10, batch=1, learning_rate=0.2, warmup=2)
    written_out = {
        0: 0.0001,  # 0.2 * 0.001 / 2: not zero, so that the first step is one
        1: 0.1001 * (1 + math.cos(0.1 * math.pi)) / 2,
        2: 0.2 * (1 + math.cos(0.2 * math.pi)) / 2,
        5: 0.1,
        7.5: 0.1 - 0.1 / 2**0.5,
        10: 0,
    }
    assert {at: learning_rate(settings, at) for at in written_out} == pytest.approx(written_out)
    assert learning_rate(replace(settings, warmup=0), 0) == 0.2


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_training_is_nesterov_sgd_with_weight_decay_and_each_session_starts_without_momentum(momentum):
    inputs = np.random.default_rng(1).normal(size=(32, 2))
    examples = Examples.of(data(inputs))
    settings = Training(2, batch=8, learning_rate=0.3, momentum=momentum, weight_decay=0.01)
    torch.manual_seed(0)
    model = nn.Linear(2, 3, bias=False)
    weight = model.weight.detach().double().clone()
    for session in (0, 1):
        batches = seen(model, examples, settings, seed=5, session=session)
        velocity = torch.zeros(3, 2).double()
        known = examples.scaled(examples.train_inputs)
        for step, batch in enumerate(batches):
            labels = torch.stack([examples.train_labels[(known == row).all(1)][0] for row in batch])
            wrong = (batch.double() @ weight.T).softmax(1) - F.one_hot(labels, 3)
            gradient = wrong.T @ batch.double() / len(batch) + 0.01 * weight
            velocity = momentum * velocity + gradient
            weight -= learning_rate(settings, step / 3) * (gradient + momentum * velocity)
    torch.testing.assert_close(model.weight.detach().double(), weight, rtol=1e-4, atol=1e-5)


def test_the_rows_have_the_mean_loss_of_all_training_examples_and_the_test_accuracy():
    examples = Examples.of(data(np.random.default_rng(2).normal(size=(32, 2))))
    model = nn.Linear(2, 3)
    (row,) = train(model, examples, Training(1, batch=8, learning_rate=1e-12), seed=0)  # the model stays as it is
    loss = F.cross_entropy(model(examples.scaled(examples.train_inputs)), examples.train_labels)
    assert row == {"epoch": 1, "loss": pytest.approx(loss.item()), "accuracy": accuracy(model, examples)}


def test_accuracy_is_the_share_of_right_largest_logits_in_percent_whatever_the_batch():
    inputs = np.array([[0.0], [2], [-1], [3], [-4], [0.5]])  # scaled by the first two's mean and deviation: x - 1
    examples = Examples.of(data(inputs, [0, 1, 0, 1, 1, 0], test=4))
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Dropout(0.99))  # dropout is off when it counts
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[-1.0], [1.0]]))  # says 0 for negative inputs, 1 for positive ones
    assert [accuracy(model.train(), examples, batch=batch) for batch in (1, 3, 1000)] == [75.0] * 3
    with pytest.raises(BadInput, match="there are no test examples to measure accuracy on"):
        accuracy(model, replace(examples, test_inputs=examples.test_inputs[:0], test_labels=examples.test_labels[:0]))


def test_masks_stay_zero_through_training(images):
    model = network()
    masks, before = pruners.attached(model), {layer.name: layer.weight for layer in pruners.prunable(model)}
    train(model, images, SETTINGS, seed=0)
    for layer in pruners.prunable(model):
        assert torch.equal(layer.weight != 0, masks[layer.name])
        assert (layer.weight != before[layer.name])[masks[layer.name]].all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_bfloat16_computes_in_bfloat16_and_keeps_float32_weights(images, precision):
    model, computed = network(), []
    model[5].register_forward_hook(lambda module, inputs, output: computed.append(output.dtype))
    rows = train(model, images, replace(SETTINGS, precision=precision), seed=0)
    assert set(computed) == {getattr(torch, precision)}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(math.isfinite(row["loss"]) for row in rows)
    assert pruners.sparsity(model) == 0.5


def test_a_diverging_loss_is_said_and_not_kept(images, tmp_path):
    with pytest.raises(FloatingPointError, match=r"the loss is (nan|inf) in epoch \d: training diverged"):
        train(network(), images, replace(SETTINGS, learning_rate=1e30), seed=0, state=tmp_path / "s.pt")
    assert list(tmp_path.iterdir()) == []


# Stop and go on


@pytest.fixture
def whole(images):
    """A session that was never stopped: its rows and its model."""
    model = network()
    return train(model, images, SETTINGS, seed=1), model


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(images, whole):
    rows, model = whole
    again, other = network(), network()
    torch.rand(7)  # what else has been drawn does not matter
    assert train(again, images, SETTINGS, seed=1) == rows
    assert same_state(again, model)
    assert train(other, images, SETTINGS, seed=2) != rows
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]


@pytest.mark.parametrize("stops", [(1,), (2,), (3,), (4,), (1, 2, 3), (1, 3)])
def test_a_session_stopped_by_advance_goes_on_to_the_same_numbers(images, whole, tmp_path, stops):
    state = tmp_path / "below" / "session.pt"
    for stop in stops:
        with pytest.raises(InterruptedError):
            train(network(), images, SETTINGS, seed=1, state=state, on_progress=stop_at(stop))
    resumed, on_progress = network(seed=8), stop_at()  # another initialisation: all of it comes from the file
    torch.rand(3)
    rows = train(resumed, images, SETTINGS, seed=1, state=state, on_progress=on_progress)
    assert rows == whole[0]
    assert same_state(resumed, whole[1])
    assert on_progress.calls == 4  # epochs done before count too
    assert [path.name for path in state.parent.iterdir()] == ["session.pt"]


@pytest.mark.parametrize("save_seconds", [0, 1e9])
@pytest.mark.parametrize("batch", [1, 2, 5, 12])
def test_a_session_killed_in_the_middle_of_an_epoch_goes_on_to_the_same_numbers(
    images, whole, tmp_path, save_seconds, batch, monkeypatch
):
    monkeypatch.setattr(checkpoints, "SAVE_SECONDS", save_seconds)
    state, model, steps = tmp_path / "session.pt", network(), stop_at(batch)
    model.register_forward_pre_hook(lambda module, inputs: steps() if module.training else None)
    with pytest.raises(InterruptedError):
        train(model, images, SETTINGS, seed=1, state=state)
    assert state.exists() == (save_seconds == 0 and batch > 3)  # 3 batches an epoch
    resumed, trained = network(), []
    resumed.register_forward_pre_hook(lambda module, inputs: trained.append(1) if module.training else None)
    assert train(resumed, images, SETTINGS, seed=1, state=state) == whole[0]
    assert same_state(resumed, whole[1])
    assert len(trained) == 12 - (0 if save_seconds else (batch - 1) // 3 * 3)  # only whole epochs are kept


def test_a_finished_session_only_loads_its_weights_and_leaves_the_same_mode(images, whole, tmp_path):
    state = tmp_path / "session.pt"
    model = network()
    train(model, images, SETTINGS, seed=1, state=state)
    content = state.read_bytes()
    loaded = network(seed=8)
    loaded.register_forward_pre_hook(lambda module, inputs: pytest.fail("nothing is left to train"))
    assert train(loaded, images, SETTINGS, seed=1, state=state) == whole[0]
    assert same_state(loaded, whole[1])
    assert state.read_bytes() == content
    assert not any(module.training for module in (*model.modules(), *loaded.modules()))


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("learning_rate", {"settings": replace(SETTINGS, learning_rate=0.06)}),
        ("epochs, batch", {"settings": replace(SETTINGS, epochs=5, batch=4)}),
        ("seed", {"seed": 2}),
        ("session", {"session": 1}),
        ("masks", {"model": network(sparsity=0.75)}),
        ("network, masks", {"model": nn.Sequential(nn.Flatten(), nn.Linear(72, 3))}),
    ],
)
def test_a_session_of_other_settings_is_refused_and_stays(images, tmp_path, what, changes):
    state = tmp_path / "session.pt"
    asked = {"model": network(), "examples": images, "settings": SETTINGS, "seed": 1, "state": state}
    with pytest.raises(InterruptedError):
        train(**asked, on_progress=stop_at(1))
    content = state.read_bytes()
    with pytest.raises(BadInput, match=rf"session\.pt is a session with other settings \({what}\): move it away"):
        train(**asked | changes)
    assert state.read_bytes() == content


@pytest.mark.parametrize("part", ["train_inputs", "train_labels", "test_inputs", "test_labels"])
def test_a_finished_session_is_refused_for_other_data_of_the_same_shape(images, tmp_path, part):
    state = tmp_path / "session.pt"
    train(network(), images, SETTINGS, seed=1, state=state)
    other = replace(images, **{part: getattr(images, part).flip(0)})  # the same numbers in another order
    with pytest.raises(BadInput, match=r"session\.pt is a session with other settings \(data\): move it away"):
        train(network(), other, SETTINGS, seed=1, state=state)


def test_of_image_files_the_count_and_the_labels_tell_the_data(images):
    files = replace(images, train_inputs=Images((Path("a.png"), Path("b.png"))))
    more = replace(files, train_inputs=Images((*files.train_inputs.files, Path("c.png"))))
    other = replace(files, train_labels=1 - files.train_labels)
    assert len({tuple(one.checksums()) for one in (images, files, more, other)}) == 4


def test_without_a_file_nothing_is_written(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InterruptedError):
        train(network(), images, SETTINGS, seed=1, on_progress=stop_at(2))
    assert list(tmp_path.iterdir()) == []


def test_the_progress_bar_counts_epochs_and_goes_on_where_the_session_was_stopped(images, tmp_path, capsys):
    state = tmp_path / "session.pt"
    with pytest.raises(InterruptedError):
        train(network(), images, SETTINGS, seed=1, state=state, on_progress=stop_at(3))
    assert capsys.readouterr() == ("", "")
    train(network(), images, SETTINGS, seed=1, state=state, progress=True)
    bar = capsys.readouterr().err
    assert "3/4" in bar
    assert "4/4" in bar
    assert "2/4" not in bar


# Real data, and bad input


def test_a_small_lenet_learns_digits_in_four_epochs_and_half_of_it_2_4_keeps_up():
    examples, settings = Examples.of(vision.load("digits")), Training(4, batch=64, learning_rate=0.1)
    torch.manual_seed(0)
    model = small_lenet()
    assert train(model, examples, settings, seed=0)[-1]["accuracy"] > 90
    pruners.attach(model, pruners.two_four(model))
    assert train(model, examples, settings, seed=0, session=1)[-1]["accuracy"] > 94


def test_points_of_two_features_are_learned_too():
    examples = Examples.of(vision.load("moons"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    rows = train(model, examples, Training(15, batch=50, learning_rate=0.3), seed=0)
    assert rows[-1]["accuracy"] > 97
    with pytest.raises(BadInput, match=r"'crop_flip' is for images \[N, C, H, W\], each input here has shape \(2,\)"):
        train(model, examples, SETTINGS, seed=0)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"epochs": 0}, "epochs=0: expected a whole number, at least 1"),
        ({"epochs": 1.5}, "epochs=1.5: expected a whole number, at least 1"),
        ({"batch": 0}, "batch=0: expected a whole number, at least 1"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0"),
        ({"learning_rate": math.nan}, "learning_rate=nan"),
        ({"warmup": -3.0}, r"warmup=-3.0 is not in \[0, inf\)"),
        ({"warmup": math.inf}, r"warmup=inf is not in \[0, inf\)"),
        ({"momentum": 5.0}, r"momentum=5.0 is not in \[0, 1\)"),
        ({"weight_decay": -1.0}, r"weight_decay=-1.0 is not in \[0, inf\)"),
        ({"weight_decay": math.nan}, r"weight_decay=nan is not in \[0, inf\)"),
        ({"warmup": 99.0}, "warmup=99.0 must not be longer than epochs="),
        ({"augment": "flip"}, "augment='flip': known are none, crop_flip"),
        ({"precision": "float16"}, "precision='float16': known are float32, bfloat16"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(change, line):
    with pytest.raises(BadInput, match=f"training: {line}"):
        replace(SETTINGS, **change)


def test_an_example_that_is_left_over_joins_the_batch_before_it(images):
    seen, count = [], len(images.train_labels)
    model = nn.Sequential(nn.Flatten(), layer := nn.Linear(72, 3), nn.BatchNorm1d(3))
    layer.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])) if module.training else None)
    train(model, images, replace(SETTINGS, epochs=1, batch=count - 1), seed=0)
    assert seen == [count]
    train(model[:2], images, replace(SETTINGS, epochs=1, batch=1), seed=0)
    assert seen == [count] + [1] * count
