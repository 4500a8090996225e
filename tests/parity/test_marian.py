"""The same weights give the same logits, and the same greedy output, as Hugging Face's Marian."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard import config
from regard.decoding import Greedy, Symbols
from regard.io.tensors import load_weights
from regard.models.batch import PairBatch, RaggedRows, collate_pairs, collate_sources
from regard.models.transformer import Transformer, TransformerConfig
from tests.searches import greedy_search

transformers = pytest.importorskip("transformers")

ENTRIES, PAD, EOS = 37, 0, 3
SHAPES = {"layers": 2, "decoder_layers": 3, "size": 16, "inner": 24, "heads": 4, "dropout": 0.0}


def marian(activation: str, scale: bool, spread: float = 0.2) -> torch.nn.Module:
    torch.manual_seed(0)
    made = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=ENTRIES,
            d_model=16,
            encoder_layers=2,
            decoder_layers=3,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            activation_function=activation,
            scale_embedding=scale,
            max_position_embeddings=64,
            dropout=0.0,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=PAD,
            share_encoder_decoder_embeddings=True,
            tie_word_embeddings=True,
            init_std=spread,
        )
    )
    with torch.no_grad():
        for p in made.parameters():  # biases and norms too, or they would be compared at zero and one
            if p.dim() == 1:
                p.add_(0.1 * torch.randn_like(p))
        table = made.model.shared.weight  # rows of one length, so that no word is always the likeliest; none of zeros
        table.copy_(torch.nn.functional.normalize(torch.randn_like(table), dim=-1))
    return made.double().eval()


def translate_names(theirs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Marian's state under our names; keys and values are one matrix here."""
    ours = {"source_embedding.weight": theirs["model.shared.weight"]}
    for side, layers in (("encoder", SHAPES["layers"]), ("decoder", SHAPES["decoder_layers"])):
        for n in range(layers):
            old, new = f"model.{side}.layers.{n}", f"{side}.{n}"
            attentions = [("self_attn", "attention"), ("encoder_attn", "cross")][: 1 + (side == "decoder")]
            norms = [
                "self_attn_layer_norm",
                *(["encoder_attn_layer_norm"] if side == "decoder" else []),
                "final_layer_norm",
            ]
            for kind in ("weight", "bias"):
                for a, b in attentions:
                    ours[f"{new}.{b}.query.{kind}"] = theirs[f"{old}.{a}.q_proj.{kind}"]
                    both = [theirs[f"{old}.{a}.{part}_proj.{kind}"] for part in "kv"]
                    ours[f"{new}.{b}.key_value.{kind}"] = torch.cat(both)
                    ours[f"{new}.{b}.output.{kind}"] = theirs[f"{old}.{a}.out_proj.{kind}"]
                ours[f"{new}.feed_forward.expand.{kind}"] = theirs[f"{old}.fc1.{kind}"]
                ours[f"{new}.feed_forward.contract.{kind}"] = theirs[f"{old}.fc2.{kind}"]
                for place, norm in enumerate(norms):
                    ours[f"{new}.residuals.{place}.norm.{kind}"] = theirs[f"{old}.{norm}.{kind}"]
    return ours


def build(theirs: torch.nn.Module, activation: str, scale: bool) -> Transformer:
    position = {"kind": "sinusoidal", "layout": "halves"}
    keys = {**SHAPES, "activation": activation, "scale_embedding": scale, "position": position, "share": "all"}
    ours = config.parse_config(TransformerConfig, keys).build(ENTRIES, ENTRIES).double().eval()
    load_weights(ours, translate_names(theirs.state_dict()), Path("marian"))
    return ours


@pytest.mark.parametrize("activation", ["swish", "relu"])
@pytest.mark.parametrize("scale", [True, False])
def test_logits_with_padding(activation: str, scale: bool) -> None:
    theirs = marian(activation, scale)
    ours = build(theirs, activation, scale)
    g = np.random.default_rng(1)
    rows = [(g.integers(4, ENTRIES, s), g.integers(4, ENTRIES, t)) for s, t in ((9, 4), (3, 11), (6, 6), (1, 1))]
    source, target = (RaggedRows.of(side) for side in zip(*rows, strict=True))
    batch = collate_pairs(source, target, *2 * [SimpleNamespace(pad=PAD, bos=PAD, eos=EOS)])
    with torch.no_grad():
        expected = theirs(
            input_ids=batch.source, attention_mask=batch.source_real.long(), decoder_input_ids=batch.target
        )
        found = ours(batch)
    wanted = (expected.logits - theirs.final_logits_bias).flatten(0, 1)[batch.label_positions]
    # Marian keeps its position table in float32; everything else is float64.
    torch.testing.assert_close(found, wanted, atol=2e-6, rtol=2e-6)
    assert found.std() > 0.3  # far from a flat model, where everything would agree


def test_greedy_output() -> None:
    theirs = marian("swish", True, spread=1.0)  # wild weights, so that not every sentence is the same
    ours = build(theirs, "swish", True)
    g = np.random.default_rng(2)
    rows = [g.integers(4, ENTRIES, n) for n in (8, 2, 5, 12, 3, 7)]
    source, real = collate_sources(RaggedRows.of(rows), PAD, EOS)
    with torch.no_grad():
        outputs = theirs.generate(
            input_ids=source,
            attention_mask=real.long(),
            num_beams=1,
            do_sample=False,
            max_new_tokens=12,
            bad_words_ids=[[PAD]],
            forced_eos_token_id=None,
            renormalize_logits=False,
        )
    found = greedy_search(ours, PairBatch(source, real), [12] * len(rows), Symbols(PAD, EOS, (PAD,)), Greedy())
    for theirs_row, h in zip(outputs.tolist(), found, strict=True):
        words = theirs_row[1:13]
        assert h.tokens == (words[: words.index(EOS)] if EOS in words else words)
    assert len({word for h in found for word in h.tokens}) > 2
