"""Thirty networks of timm, transformers and diffusers, where these happen to be installed, through every step.

They are built from their configurations with random weights, small where the configuration allows it.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

IMAGES = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
IDS = torch.randint(40, (1, 6), generator=torch.Generator().manual_seed(0))
TIMM = (
    "resnet10t", "resnetv2_50", "regnetx_002", "mobilenetv3_small_050", "efficientnet_lite0", "tf_efficientnet_lite0",
    "convnext_atto", "convnextv2_atto", "densenet121", "ghostnet_050", "nf_regnet_b0", "vit_tiny_patch16_224",
    "beit_base_patch16_224", "mixer_s32_224", "swin_tiny_patch4_window7_224",
)  # fmt: skip
SMALLER = {  # of timm's names that begin so
    "vit": {"img_size": 64, "depth": 2},
    "beit": {"img_size": 64, "depth": 2, "embed_dim": 192, "num_heads": 3},
    "mixer": {"img_size": 64},
    "swin": {"img_size": 64, "depths": (2, 1), "num_heads": (3, 6), "embed_dim": 48},
    "resnetv2": {"layers": (1, 1, 1, 1)},
    "densenet": {"block_config": (2, 2, 2, 2)},
}
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 40}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2, "head_dim": 8}
# class: its configuration's class, what that takes, and what the model is called with
TRANSFORMERS = {
    "GPT2LMHeadModel": ("GPT2Config", {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 40}, {"input_ids": IDS}),
    "BertForMaskedLM": ("BertConfig", SMALL, {"input_ids": IDS}),
    "RobertaForSequenceClassification": ("RobertaConfig", SMALL, {"input_ids": IDS}),
    "LlamaForCausalLM": ("LlamaConfig", SMALL, {"input_ids": IDS}),
    "Qwen2ForCausalLM": ("Qwen2Config", SMALL | {"num_key_value_heads": 2}, {"input_ids": IDS}),
    "MixtralForCausalLM": ("MixtralConfig", SMALL | EXPERTS, {"input_ids": IDS}),
    "GptOssForCausalLM": ("GptOssConfig", SMALL | EXPERTS, {"input_ids": IDS}),
    "OPTForCausalLM": (
        "OPTConfig",
        SMALL | {"ffn_dim": 32, "word_embed_proj_dim": 16, "max_position_embeddings": 32},
        {"input_ids": IDS},
    ),
    "T5ForConditionalGeneration": (
        "T5Config",
        {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "vocab_size": 40},
        {"input_ids": IDS, "decoder_input_ids": IDS},
    ),
    "ViTForImageClassification": ("ViTConfig", SMALL | {"image_size": 64}, {"pixel_values": IMAGES}),
    "MambaForCausalLM": (
        "MambaConfig",
        {"hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 40, "state_size": 4},
        {"input_ids": IDS},
    ),
    "Wav2Vec2Model": (
        "Wav2Vec2Config",
        SMALL | {"conv_dim": (16,) * 7, "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False},
        {"input_values": torch.randn(1, 1600)},
    ),
}
BLOCKS = {"block_out_channels": (16, 16), "norm_num_groups": 4, "sample_size": 8}
STAGES = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
DIFFUSERS = {
    "UNet2DModel": (BLOCKS | STAGES | {"attention_head_dim": 8}, (torch.randn(1, 3, 8, 8), 1)),
    "AutoencoderKL": ({"block_out_channels": (16,), "norm_num_groups": 4}, torch.randn(1, 3, 8, 8)),
    "DiTTransformer2DModel": (
        {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1, "sample_size": 8, "in_channels": 4,
         "norm_num_groups": 4},
        {"hidden_states": torch.randn(1, 4, 8, 8), "timestep": torch.tensor([1]), "class_labels": torch.tensor([3])},
    ),
}  # fmt: skip


def of_timm(name: str) -> tuple[nn.Module, Tensor]:
    timm = pytest.importorskip("timm", reason="timm is not installed", exc_type=ImportError)
    size = next((size for start, size in SMALLER.items() if name.startswith(start)), {})
    model = timm.create_model(name, pretrained=False, num_classes=8, **size)
    if name.startswith("mixer"):
        model.blocks = model.blocks[:2]
    if not (last := list(model.parameters())[-2]).any():  # nothing could be scored: no gradient passes a head of zeros
        nn.init.normal_(last, std=0.1)
    return model, IMAGES


def of_transformers(name: str) -> tuple[nn.Module, dict]:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    configuration, settings, inputs = TRANSFORMERS[name]
    settings = settings | {"use_cache": False}
    return getattr(transformers, name)(getattr(transformers, configuration)(**settings)), inputs


def of_diffusers(name: str) -> tuple[nn.Module, object]:
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed", exc_type=ImportError)
    settings, inputs = DIFFUSERS[name]
    return getattr(diffusers, name)(**settings), inputs


ALL = {name: partial(of_timm, name) for name in TIMM}
ALL |= {name: partial(of_transformers, name) for name in TRANSFORMERS}
ALL |= {name: partial(of_diffusers, name) for name in DIFFUSERS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALL)
def test_no_step_is_raw_or_wrong(name: str, outcomes: Callable):
    torch.manual_seed(0)
    found = outcomes(*ALL[name]())
    assert {step: how for step, how in found.items() if how not in ("ok", "refused")} == {}
