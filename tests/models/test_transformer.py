"""Laws of `lib.models.transformer`: no token sees a later one, attention as it is defined, what 2:4 prunes."""

import math

import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.models.transformer import LEFT_DENSE, Block, Decoder, TextClassifier, attend, decoder, small_decoder
from lib.papers.two_four.experiments.two_phases import block_masks
from lib.pruners.layers import as_matrix


@pytest.fixture
def model():
    torch.manual_seed(0)
    return small_decoder(symbols=10, window=16).eval()


def test_about_a_million_weights_stand_in_the_blocks():
    model = decoder(symbols=65, window=128)
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_024_705
    assert sum(layer.weight.numel() for layer in pruners.prunable(model) if "blocks" in layer.name) == 983_040


def test_a_later_token_influences_no_logit(model):
    tokens = torch.randint(10, (3, 16))
    other = tokens.clone()
    other[:, 9:] = (other[:, 9:] + 1) % 10
    before, after = model(tokens), model(other)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.isclose(before[:, 9:], after[:, 9:]).all(-1).any()


def test_an_earlier_token_influences_a_later_logit(model):
    tokens = torch.randint(10, (1, 16))
    other = tokens.clone()
    other[:, 0] = (other[:, 0] + 1) % 10
    assert not torch.allclose(model(tokens)[:, -1], model(other)[:, -1])


def test_a_block_computes_what_it_says():
    """Attention written out: softmax of query . key / sqrt(size) over what has been read, head by head."""
    torch.manual_seed(1)
    block, states = Block(width=8, heads=2, dropout=0.0), torch.randn(1, 5, 8)
    seen = block.norm1(states)[0]
    query, key, value = (layer(seen) for layer in (block.query, block.key, block.value))
    read = torch.zeros(5, 8)
    for head in (slice(0, 4), slice(4, 8)):
        for t in range(5):
            share = torch.softmax(key[: t + 1, head] @ query[t, head] / math.sqrt(4), 0)
            read[t, head] = share @ value[: t + 1, head]
    between = states[0] + block.out(read)
    expected = between + block.narrow(torch.nn.functional.gelu(block.wide(block.norm2(between))))
    assert torch.allclose(block(states)[0], expected, atol=1e-6)


def test_every_linear_of_the_blocks_is_two_four_along_its_reduction_and_nothing_else(model):
    masks = block_masks(model)
    layers = {layer.name: layer for layer in pruners.prunable(model)}
    assert set(masks) == {name for name in layers if "blocks" in name}
    assert len(masks) == 2 * 6
    assert set(layers) - set(masks) == {"head.weight"}
    for name, mask in masks.items():
        groups = as_matrix(layers[name].weight.abs()).reshape(-1, 4)
        kept = as_matrix(mask).reshape(-1, 4)
        assert (kept.sum(1) == 2).all()
        assert (groups.masked_fill(~kept, torch.inf).amin(1) >= groups.masked_fill(kept, 0).amax(1)).all()
    left = {rule.name for rule in pruners.layer_rule(model, leave=LEFT_DENSE) if not rule.pruned}
    assert left == {"head.weight", "decoder.tokens.weight", "decoder.places.weight"}


def test_a_classifier_reads_the_state_at_the_last_token(model):
    classes = TextClassifier(model, 4).eval()
    tokens = torch.randint(10, (3, 16))
    expected = classes.head(model.decoder(tokens))[:, -1]
    assert torch.allclose(classes(tokens), expected, atol=1e-6)


def test_a_classifier_has_the_masks_of_its_language_model_and_leaves_it_alone(model):
    masks = block_masks(model)
    pruners.attach(model, masks)
    classes = TextClassifier(model, 4)
    inside = {layer.name: layer.weight for layer in pruners.prunable(classes) if "blocks" in layer.name}
    assert all(torch.equal(weight != 0, masks[name]) for name, weight in inside.items())
    before = model.decoder.tokens.weight.clone()
    with torch.no_grad():
        classes.decoder.tokens.weight.add_(1)
    assert torch.equal(model.decoder.tokens.weight, before)


def test_bad_input_is_refused(model):
    with pytest.raises(BadInput, match="17 tokens is longer than the window, 16"):
        model(torch.zeros(1, 17, dtype=torch.int64))
    with pytest.raises(BadInput, match="width=32 is not a multiple of heads=5"):
        type(model.decoder)(10, 16, 32, 1, 5)
    with pytest.raises(BadInput, match="17 tokens is longer than the window, 16"):
        TextClassifier(model, 4)(torch.zeros(1, 17, dtype=torch.int64))


def test_a_block_has_a_norm_for_each_of_its_two_parts():
    torch.manual_seed(0)
    block, states = Block(8, 2, 0.0), torch.randn(1, 5, 8)
    nn.init.constant_(block.norm2.weight, 2.0)
    wide = torch.nn.functional.gelu(block.wide(block.norm2(states)))
    torch.testing.assert_close(block.think(states), states + block.narrow(wide))


def test_the_same_token_is_another_state_at_another_place():

    torch.manual_seed(0)
    first, second = Decoder(5, 4, width=8, blocks=1, heads=2)(torch.zeros(1, 2, dtype=torch.long))[0]
    assert not torch.allclose(first, second)


def test_attention_is_causal_within_autocast_too():

    query, key, value = torch.randn(3, 2, 5, 8).unbind()
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(query, key, value, 2, causal=True)
    torch.testing.assert_close(found, attend(query, key, value, 2, causal=True))


def test_tokens_and_places_begin_as_small_as_in_gpt_2():
    torch.manual_seed(0)
    model = decoder(symbols=65, window=128)
    weights = {name: weight for name, weight in model.named_parameters() if weight.shape in ((65, 128), (128, 128))}
    tables = [weight for name, weight in weights.items() if "tokens" in name or "places" in name]
    assert len(tables) == 2
    assert all(abs(float(table.detach().std()) - 0.02) < 0.001 for table in tables)
