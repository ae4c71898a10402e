"""Laws of `lib.models.translator`: nothing leaks, steps compute what teacher forcing does, one table of embeddings."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.models import translator
from lib.models.transformer import LEFT_DENSE, attend
from lib.models.translator import BEGIN, END, PAD
from lib.papers.two_four.experiments.two_phases import block_masks

SYMBOLS = 20
BUILDERS = {"transformer": translator.small_transformer, "recurrent": translator.small_recurrent}


@pytest.fixture(params=BUILDERS)
def model(request):
    torch.manual_seed(0)
    return BUILDERS[request.param](SYMBOLS, 16).eval()


def tokens(*shape):
    return torch.randint(END + 1, SYMBOLS, shape, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def source():
    return torch.cat([tokens(3, 7), torch.full((3, 1), END)], 1)


@pytest.fixture
def written():
    return torch.cat([torch.full((3, 1), BEGIN), tokens(3, 9)], 1)


def test_a_later_token_influences_no_logit(model, source, written):
    other = written.clone()
    other[:, 6:] = END + 1 + (other[:, 6:] - END) % (SYMBOLS - END - 1)
    before, after = model(source, written), model(source, other)
    assert torch.equal(before[:, :6], after[:, :6])
    assert not torch.isclose(before[:, 6:], after[:, 6:]).all(-1).any()


def test_filling_of_the_source_influences_no_logit(model, source, written):
    filled = F.pad(source, (0, 4), value=PAD)
    assert torch.allclose(model(filled, written), model(source, written), atol=1e-5)


def test_a_sentence_does_not_depend_on_the_others_of_its_batch(model, source, written):
    mixed = source.clone()
    mixed[0, 4:] = PAD
    alone = model(mixed[:1, :4], written[:1])
    assert torch.allclose(model(mixed, written)[:1], alone, atol=1e-5)


def test_every_token_of_the_source_influences_the_first_logit(model, source, written):
    for place in range(source.shape[1]):
        other = source.clone()
        other[:, place] = END + 1 + (other[:, place] - END) % (SYMBOLS - END - 1)
        assert not torch.allclose(model(source, written)[:, 0], model(other, written)[:, 0], atol=1e-6)


def test_steps_foresee_what_teacher_forcing_does(model, source, written):
    source[0, 5:] = PAD
    forced, state = model(source, written), model.start(source)
    for place in range(written.shape[1]):
        logits, state = model.step(state, written[:, place])
        assert torch.allclose(logits, forced[:, place], atol=1e-5)
    assert all(len(part) == len(source) for part in state)  # so that sentences can be picked


def test_sentences_can_be_picked_from_a_state(model, source, written):
    _, state = model.step(model.start(source), written[:, 0])
    chosen = torch.tensor([2, 0, 0])
    expected = model.step(state, written[:, 1])[0][chosen]
    picked = tuple(part[chosen] for part in state)
    assert torch.allclose(model.step(picked, written[chosen, 1])[0], expected, atol=1e-6)


def as_torch_has_it(cell):
    """The LSTM of torch with a cell's weights."""
    lstm = nn.LSTM(cell.input.in_features, cell.hidden, batch_first=True)
    weights = (cell.input.weight, cell.recurrent.weight, cell.input.bias, torch.zeros(4 * cell.hidden))
    for own, given in zip(lstm.parameters(), weights, strict=True):
        own.data = given.data
    return lstm


@torch.no_grad()
def test_the_recurrent_translator_written_out(source, written):
    torch.manual_seed(0)
    model = translator.small_recurrent(SYMBOLS, 16).eval()
    source, written = source[:1], written[:1]
    words = model.tokens(source)
    backwards = as_torch_has_it(model.backwards)(words.flip(1))[0].flip(1)
    read = torch.cat([as_torch_has_it(model.forwards)(words)[0], backwards], -1)
    key, value = model.source_key(read)[0], model.source_value(read)[0]
    one, other, told, first, second = *map(as_torch_has_it, (model.first, model.second)), torch.zeros(32), None, None
    logits = model(source, written)[0]
    for place, token in enumerate(written[0]):
        out, first = one(torch.cat([model.tokens(token), told])[None, None], first)
        told = (key @ model.ask(out[0, 0]) / 32**0.5).softmax(0) @ value
        last, second = other(torch.cat([out[0, 0], told])[None, None], second)
        expected = model.head(model.narrow(torch.cat([last[0, 0], told])).tanh())
        torch.testing.assert_close(logits[place], expected)


@torch.no_grad()
def test_the_transformer_written_out(source, written):
    torch.manual_seed(0)
    model = translator.small_transformer(SYMBOLS, 16).eval()
    for norm in (part for part in model.modules() if isinstance(part, nn.LayerNorm)):
        norm.weight.uniform_(0.5, 2)
        norm.bias.uniform_(-1, 1)
    reader, writer = model.encoder[0], model.decoder[0]
    states = model.tokens(source) + model.places.weight[: source.shape[1]]
    seen = reader.norm1(states)
    states = states + reader.out(attend(reader.query(seen), reader.key(seen), reader.value(seen), 2))
    memory = model.source_norm(reader.think(states))
    states = model.tokens(written) + model.places.weight[: written.shape[1]]
    seen = writer.norm1(states)
    states = states + writer.out(attend(writer.query(seen), writer.key(seen), writer.value(seen), 2, causal=True))
    read = attend(writer.ask(writer.norm3(states)), writer.source_key(memory), writer.source_value(memory), 2)
    expected = model.head(model.norm(writer.think(states + writer.told(read))))
    torch.testing.assert_close(model(source, written), expected)


def test_the_table_of_embeddings_is_one_weight_counted_once(model):
    layers = {layer.name: layer for layer in pruners.prunable(model)}
    assert layers["head.weight"].tied == ((model.tokens, "weight"),)
    assert "tokens.weight" not in layers
    assert model.head.weight is model.tokens.weight
    with torch.no_grad():
        model.tokens.weight.add_(1)
    assert torch.equal(model.head.weight, model.tokens.weight)


def test_prunable_sees_every_matrix_and_two_four_leaves_the_table_alone(model):
    matrices = {name for name, weight in model.named_parameters() if weight.dim() == 2}
    lookups = {"tokens.weight", "places.weight"}
    layers = {layer.name for layer in pruners.prunable(model)}
    assert layers - {"head.weight"} == matrices - lookups
    assert pruners.refused(model) == {}
    masks = block_masks(model)
    assert set(masks) == layers - {"head.weight"}
    assert all((mask.reshape(-1, 4).sum(1) == 2).all() for mask in masks.values())
    left = {rule.name for rule in pruners.layer_rule(model, leave=LEFT_DENSE) if not rule.pruned}
    assert left <= {"head.weight", "places.weight"}


@pytest.mark.parametrize("build", [translator.transformer, translator.recurrent])
def test_both_have_about_two_million_weights_and_all_but_the_table_and_places_are_pruned(build):
    model = build(4000, 65)
    assert 1.9e6 < sum(parameter.numel() for parameter in model.parameters()) < 2.1e6
    assert len(block_masks(model)) == len(pruners.prunable(model)) - 1


def test_bad_input_is_refused(source):
    with pytest.raises(BadInput, match="8 tokens is longer than the window, 4"):
        translator.small_transformer(SYMBOLS, 4)(source, source[:, :2])
    with pytest.raises(BadInput, match="width=32 is not a multiple of heads=5"):
        translator.Transformer(SYMBOLS, 4, width=32, blocks=1, heads=5)


@pytest.mark.parametrize("training", [False, True])
def test_what_the_encoder_has_read_is_dropped_in_training_like_everything_else(training: bool, source):
    torch.manual_seed(0)
    model, dropped = translator.Recurrent(SYMBOLS, 32, 32, dropout=0.2).train(training), []
    model.dropout.register_forward_hook(lambda module, args, output: dropped.append(output))
    reads = []
    model.source_key.register_forward_pre_hook(lambda module, args: reads.append(args[0]))
    model.start(source)
    assert reads[0] is dropped[-1]


@pytest.mark.parametrize("width", [64, 256])
def test_embeddings_begin_so_that_a_logit_of_them_has_the_scale_of_one(width: int):
    torch.manual_seed(0)
    table = translator.Translator(500, width, 0.0).tokens.weight
    assert float(table.std()) == pytest.approx(width**-0.5, rel=0.02)
