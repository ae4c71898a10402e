"""Laws of distillation: what each term is, whom it teaches, and that stopping changes nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lib.base import BadInput
from lib.data.speech.utterances import Utterances
from lib.models.bifpn import SelfTeacher
from lib.models.speaker_resnet import NETWORKS
from lib.papers.skdfe.experiments.distillation import (
    Classifier,
    DistillationTraining,
    DistillationWeights,
    SelfDistilled,
    TeacherDistilled,
    attention_map,
    embedding_cosine,
    embedding_mse,
    feature_loss,
    label_loss,
    new_classifier,
    train,
    with_self_teacher,
)

SETTINGS = DistillationTraining(epochs=3, batch=4, frames=12, learning_rate=0.003)
BOTH = DistillationWeights(label=2.0, feature=100.0)


@pytest.fixture
def utterances():
    """Ten random utterances of 8 to 26 frames and three speakers."""
    draw = np.random.default_rng(0)
    lengths = np.arange(8, 28, 2)
    features = draw.normal(size=(lengths.sum(), 40)).astype(np.float32)
    return Utterances(features, np.cumsum([0, *lengths]), np.arange(10) % 3, np.zeros((10, 40), np.float32))


def classifier(seed=0, network="resnet18"):
    torch.manual_seed(seed)
    return Classifier(NETWORKS[network](width=2), 3)


def self_distilled(weights=BOTH):
    student = classifier()
    return SelfDistilled(student, SelfTeacher(student.network.channels, 4), weights)


def taught(weights):
    return TeacherDistilled(classifier(), classifier(1, "resnet34"), weights)


def batch():
    draw = torch.Generator().manual_seed(0)
    return torch.randn(4, 12, 40, generator=draw), torch.tensor([0, 1, 2, 0])


# The terms


def test_the_label_term_is_equation_6_and_kl_but_for_the_teachers_entropy():
    own, target = torch.tensor([[1.0, 2, 0], [0, 0, 3]]), torch.tensor([[2.0, 0, 1], [1, 1, 1]])
    soft = target.softmax(1)
    by_hand = -(soft * own.log_softmax(1)).sum() / 2
    assert label_loss(own, target).item() == pytest.approx(by_hand.item())
    entropy = -(soft * soft.log()).sum() / 2
    kl = F.kl_div(own.log_softmax(1), soft, reduction="batchmean")
    assert label_loss(own, target).item() == pytest.approx((kl + entropy).item())
    assert label_loss(own, target, 4.0).item() == pytest.approx(16 * label_loss(own / 4, target / 4).item())


def test_attention_is_the_mean_square_over_channels_scaled_to_length_one():
    hidden = torch.tensor([[[[1.0, 0]], [[1, 2]]]])  # two channels, one band, two frames: mean squares 1 and 2
    torch.testing.assert_close(attention_map(hidden), torch.tensor([[1.0, 2]]) / 5**0.5)


@pytest.mark.parametrize("form", ["mean", "norm"])
def test_the_feature_term_is_zero_for_equal_maps_and_does_not_see_their_scale(form):
    draw = torch.Generator().manual_seed(0)
    maps = [torch.randn(3, 4, 8 // 2**i, 6, generator=draw) for i in range(2)]
    others = [torch.randn(3, 5, 8 // 2**i, 6, generator=draw) for i in range(2)]
    assert feature_loss(maps, maps, form).item() == 0
    whole = feature_loss(maps, others, form)
    assert whole > 0
    scaled = feature_loss([7 * hidden for hidden in maps], [0.1 * hidden for hidden in others], form)
    torch.testing.assert_close(scaled, whole)


def test_both_forms_of_the_feature_term_by_hand():
    left, right = torch.tensor([[[[1.0, 0]]]]), torch.tensor([[[[0.0, 5]]]])  # attentions (1, 0) and (0, 1)
    assert feature_loss([left], [right]).item() == pytest.approx(1)  # two positions, each off by 1
    assert feature_loss([left], [right], "norm").item() == pytest.approx(2**0.5)
    twice = torch.cat([left, left]), torch.cat([right, left])
    assert feature_loss([twice[0]] * 3, [twice[1]] * 3).item() == pytest.approx(1.5)
    assert feature_loss([twice[0]] * 3, [twice[1]] * 3, "norm").item() == pytest.approx(1.5 * 2**0.5)


def test_the_embedding_terms_by_hand():
    own, target = torch.tensor([[1.0, 2], [3, 0]]), torch.tensor([[1.0, 0], [0, 4]])
    assert embedding_mse(own, target).item() == pytest.approx((4 + 25) / 2)
    assert embedding_cosine(own, target).item() == pytest.approx(1 - (5**-0.5 + 0) / 2)


@pytest.mark.parametrize(
    ("term", "shape"),
    [
        (label_loss, (2, 3)),
        (embedding_mse, (2, 3)),
        (embedding_cosine, (2, 3)),
        (lambda own, target: feature_loss([own], [target]), (2, 3, 4, 5)),
        (lambda own, target: feature_loss([own], [target], "norm"), (2, 3, 4, 5)),
    ],
)
def test_no_term_teaches_its_target(term, shape):
    own, target = torch.randn(shape, requires_grad=True), torch.randn(shape, requires_grad=True)
    term(own, target).backward()
    assert own.grad.abs().sum() > 0
    assert target.grad is None


@pytest.mark.parametrize("term", [label_loss, embedding_mse, embedding_cosine])
def test_terms_are_computed_in_float32_whatever_the_network_computes_in(term):
    own, target = (torch.randn(8, 64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    target = own + 0.01 * target  # so near that bfloat16 would lose a tenth of it
    with torch.autocast("cpu", torch.bfloat16):
        found = term(own, target)
    assert torch.equal(found, term(own, target))
    assert term(own.bfloat16(), target.bfloat16()).dtype == torch.float32


# Learners


def gradients(module, loss):
    module.zero_grad(set_to_none=True)
    loss.backward()
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def test_joint_training_is_equations_8_to_10():
    features, labels = batch()
    learner = self_distilled()
    own = learner.student(features)
    refined, embedding = learner.teacher(own.maps)
    logits = learner.head(embedding)
    two = F.cross_entropy(own.logits, labels) + F.cross_entropy(logits, labels)
    terms = {"label": 2 * label_loss(own.logits, logits), "feature": 100 * feature_loss(own.maps, refined)}
    for weights, expected in (
        (DistillationWeights(label=2), two + terms["label"]),
        (DistillationWeights(feature=100), two + terms["feature"]),
        (BOTH, two + terms["label"] + terms["feature"]),
    ):
        learner.weights = weights
        torch.testing.assert_close(learner.loss(features, labels), expected)


def test_the_self_teachers_own_loss_trains_the_student_and_distillation_never_the_teacher():
    features, labels = batch()
    without, with_terms = self_distilled(DistillationWeights()), self_distilled(BOTH)
    plain = gradients(without, without.loss(features, labels))
    both = gradients(with_terms, with_terms.loss(features, labels))
    for name in plain:
        if not name.startswith("student"):
            torch.testing.assert_close(both[name], plain[name])
    assert any(not torch.equal(both[name], plain[name]) for name in plain if name.startswith("student"))
    alone = classifier()
    lone = gradients(alone, alone.loss(features, labels))
    assert not torch.equal(plain["student.network.stem.0.weight"], lone["network.stem.0.weight"])


def test_after_training_the_student_is_as_large_as_a_plain_one(utterances):
    learner = self_distilled()
    train(learner, utterances, replace(SETTINGS, epochs=1), 0)
    plain = classifier().network
    assert {n: p.shape for n, p in learner.student.network.state_dict().items()} == {
        n: p.shape for n, p in plain.state_dict().items()
    }
    features = torch.randn(1, 20, 40)
    assert learner.student.network(features).shape == plain(features).shape


def test_a_pretrained_teacher_stays_as_it_is_and_each_term_counts(utterances):
    features, labels = batch()
    learner = taught(DistillationWeights(label=1))
    before = {name: value.clone() for name, value in learner.teacher.state_dict().items()}
    train(learner, utterances, SETTINGS, 0)
    assert all(torch.equal(value, before[name]) for name, value in learner.teacher.state_dict().items())
    for weights, term in (
        (DistillationWeights(label=3), lambda own, target: 3 * label_loss(own.logits, target.logits)),
        (DistillationWeights(mse=3), lambda own, target: 3 * embedding_mse(own.embedding, target.embedding)),
        (DistillationWeights(cosine=3), lambda own, target: 3 * embedding_cosine(own.embedding, target.embedding)),
    ):
        learner = taught(weights).train()
        assert not learner.teacher.training
        own, target = learner.student(features), learner.teacher(features)
        expected = F.cross_entropy(own.logits, labels) + term(own, target)
        torch.testing.assert_close(learner.loss(features, labels), expected)


def test_new_networks_have_the_seeds_weights_whatever_was_drawn_before():
    def made(seed, before):
        torch.rand(before)
        student = new_classifier("resnet18", 2, 3, seed)
        torch.rand(before)
        return with_self_teacher(student, 4, BOTH, seed)

    one, again, other = (made(seed, before).state_dict() for seed, before in ((0, 1), (0, 2), (1, 1)))
    drawn = [name for name in one if name.endswith("weight") and one[name].dim() > 1]
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in drawn)
    assert not torch.equal(one["head.weight"], one["student.head.weight"])
    student = new_classifier("resnet18", 2, 3, 0).state_dict()
    assert all(torch.equal(one[f"student.{name}"], value) for name, value in student.items())


# Sessions


def test_it_learns_and_every_learner_sees_the_same_crops(utterances):
    seen = []

    class Watched(Classifier):
        def loss(self, features, labels):
            seen[-1].append((features.clone(), labels.clone()))
            return super().loss(features, labels)

    for network in ("resnet18", "resnet34"):
        seen.append([])
        train(Watched(NETWORKS[network](width=2), 3), utterances, SETTINGS, 5)
    assert [len(features) for features, _ in seen[0]] == [4, 4, 2] * 3
    for left, right in zip(*seen, strict=True):
        assert torch.equal(left[0], right[0])
        assert torch.equal(left[1], right[1])
    assert not torch.equal(seen[0][0][0], seen[0][3][0])  # another epoch, other batches
    rows = train(classifier(), utterances, replace(SETTINGS, epochs=15, learning_rate=0.01), 0)
    assert rows[-1]["loss"] < 0.7 * rows[0]["loss"]


def test_crops_begin_at_random_places_of_an_utterance(utterances, monkeypatch):
    places, crops = {}, type(utterances).crops

    def watched(self, chosen, frames, begins):
        for one, begin in zip(chosen, begins, strict=True):
            places.setdefault(one, []).append(begin)
        return crops(self, chosen, frames, begins)

    monkeypatch.setattr(type(utterances), "crops", watched)
    train(classifier(), utterances, SETTINGS, 5)
    assert {len(set(begins)) for begins in places.values()} == {SETTINGS.epochs}  # another in each epoch
    every = [begin for begins in places.values() for begin in begins]
    assert min(every) < 0.2
    assert 0.8 < max(every) < 1


@pytest.mark.parametrize("make", [self_distilled, lambda: taught(DistillationWeights(label=1, mse=0.1)), classifier])
def test_a_session_that_was_stopped_goes_on_to_the_same_weights(make, utterances, tmp_path):
    whole = make()
    rows = train(whole, utterances, SETTINGS, 1)
    calls = iter(range(10))

    def on_progress():
        if next(calls) == 1:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train(make(), utterances, SETTINGS, 1, state=tmp_path / "s.pt", on_progress=on_progress)
    again = make()
    assert train(again, utterances, SETTINGS, 1, state=tmp_path / "s.pt") == rows
    for name, value in again.state_dict().items():
        assert torch.equal(value, whole.state_dict()[name]), name
    with pytest.raises(BadInput, match="a session with other settings"):
        train(make(), utterances, SETTINGS, 2, state=tmp_path / "s.pt")


def test_a_session_of_other_utterances_or_of_another_teacher_is_refused(utterances, tmp_path):
    state, weights = tmp_path / "s.pt", DistillationWeights(label=1)
    train(taught(weights), utterances, SETTINGS, 1, state=state)
    for other in ({"means": utterances.means + 1}, {"speakers": utterances.speakers[::-1].copy()}):
        with pytest.raises(BadInput, match=r"a session with other settings \(data\)"):
            train(taught(weights), replace(utterances, **other), SETTINGS, 1, state=state)
    another = TeacherDistilled(classifier(), classifier(2, "resnet34"), weights)
    with pytest.raises(BadInput, match=r"a session with other settings \(teacher\)"):
        train(another, utterances, SETTINGS, 1, state=state)


def test_bfloat16_trains_too_and_divergence_is_said(utterances):
    rows = train(self_distilled(), utterances, replace(SETTINGS, precision="bfloat16"), 0)
    assert all(math.isfinite(row["loss"]) for row in rows)
    with pytest.raises(FloatingPointError, match="training diverged"):
        train(classifier(), utterances, replace(SETTINGS, learning_rate=1e30), 0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DistillationTraining(0, 4, 12, 0.1), "training: epochs=0: expected a whole number, at least 1"),
        (lambda: DistillationTraining(1, 4, 12, 0.1, math.inf), r"warmup=inf is not in \[0, inf\)"),
        (lambda: DistillationTraining(1, 4, 12, 0.1, 2.0), "warmup=2.0 must not be longer than epochs=1"),
        (lambda: DistillationTraining(1, 4, 12, -0.1), r"learning_rate=-0.1 is not in \(0, inf\)"),
        (lambda: DistillationTraining(1, 4, 12, 0.1, precision="half"), "precision='half'"),
        (lambda: DistillationTraining(1, 4, 12, 0.1, weight_decay=-1.0), r"weight_decay=-1.0 is not in \[0, inf\)"),
        (lambda: DistillationWeights(label=-1), "weights must be 0 or more"),
        (lambda: DistillationWeights(form="sum"), "form='sum': known are mean, norm"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, said):
    with pytest.raises(BadInput, match=said):
        make()
