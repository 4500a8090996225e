"""The same weights give the logits, gradients and greedy output of Hugging Face's GPT-2, and come back as they went."""

import numpy as np
import pytest
import torch

from regard.decoding import Greedy, Symbols
from regard.errors import RegardError
from regard.interop import gpt2
from regard.io.tensors import load_weights, unique_state_dict
from regard.models.batch import TextBatch, collate_texts
from regard.models.lm import LanguageModel, LanguageModelConfig
from regard.nn.position import RotaryConfig
from tests.models.test_lm import to_continue
from tests.searches import greedy_search

transformers = pytest.importorskip("transformers")

ENTRIES, PAD, EOS = 41, 0, 3
SHAPES = {
    "plain": {},
    "narrow": {"n_layer": 3, "n_embd": 12, "n_head": 3, "n_inner": 20, "activation_function": "gelu"},
    "one head, relu, its own output": {"n_head": 1, "activation_function": "relu", "tie_word_embeddings": False},
    "unscaled": {"scale_attn_weights": False, "layer_norm_epsilon": 1e-3, "n_positions": 17},
}


def their_model(shape: str) -> torch.nn.Module:
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 4, "n_positions": 24, "vocab_size": ENTRIES, **SHAPES[shape]}
    marks = {"bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": PAD}
    made = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **marks, initializer_range=0.3))
    with torch.no_grad():
        for p in made.parameters():  # biases and norms too, or they would be compared at zero and one
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))
    return made.double().eval()


def our_model(theirs: torch.nn.Module) -> LanguageModel:
    config = gpt2.gpt2_config_from_hf(theirs.config.to_dict(), "there")
    ours = config.build(ENTRIES).double().eval()
    weights = gpt2.gpt2_weights_from_hf(theirs.state_dict(), config, unique_state_dict(ours), "there")
    load_weights(ours, weights, "there")
    return ours


def rows(lengths: tuple[int, ...], seed: int = 1) -> list[list[int]]:
    g = np.random.default_rng(seed)
    return [g.integers(4, ENTRIES, n).tolist() for n in lengths]


def batch(lengths: tuple[int, ...]) -> TextBatch:
    return to_continue(rows(lengths), pad=PAD, bos=EOS, eos=EOS)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_with_padding(shape: str) -> None:
    theirs = their_model(shape)
    ours, b = our_model(theirs), batch((9, 3, 16, 1))
    with torch.no_grad():
        expected = theirs(input_ids=b.ids, attention_mask=b.real.long()).logits.flatten(0, 1)[b.label_positions]
        found = ours(b)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    assert found.std() > 0.3  # far from a flat model, where everything would agree


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_in_single_precision(shape: str) -> None:
    theirs = their_model(shape).float()
    ours, b = our_model(theirs).float(), batch((9, 3, 16, 1))
    with torch.no_grad():
        expected = theirs(input_ids=b.ids).logits.flatten(0, 1)[b.label_positions]
        torch.testing.assert_close(ours(b), expected, atol=1e-5, rtol=1e-5)


def test_the_loss_and_its_gradients() -> None:
    theirs = their_model("plain")
    ours, b = our_model(theirs), batch((9, 3, 16, 1))
    ours(b, smoothing=0.0).backward()
    logits = theirs(input_ids=b.ids).logits.flatten(0, 1)[b.label_positions]
    torch.nn.functional.cross_entropy(logits, b.labels, reduction="sum").backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    expected = gpt2.gpt2_weights_from_hf(gradients, ours.config, unique_state_dict(ours), "gradients")
    for name, p in ours.named_parameters():
        torch.testing.assert_close(p.grad, expected[name], atol=1e-9, rtol=1e-9, msg=name)


def test_greedy_output_after_prompts_of_different_lengths() -> None:
    theirs = their_model("plain")
    ours, prompts = our_model(theirs), rows((4, 1, 7, 2), seed=4)
    found = greedy_search(ours, collate_texts(prompts, PAD), [12] * 4, Symbols(EOS, EOS), Greedy())
    for prompt, hypothesis in zip(prompts, found, strict=True):
        told = torch.tensor([prompt])
        said = theirs.generate(told, attention_mask=torch.ones_like(told), max_new_tokens=12, do_sample=False)
        assert [*hypothesis.tokens, EOS][: len(said[0]) - len(prompt)] == said[0, len(prompt) :].tolist()
    assert len({tuple(h.tokens) for h in found}) == 4


@pytest.mark.parametrize("shape", SHAPES)
def test_there_and_back(shape: str) -> None:
    """What we write is what they save: names, shapes and numbers; and their class reads our config."""
    theirs = their_model(shape)
    ours = our_model(theirs)
    back = gpt2.gpt2_key_map(ours.config).to_hf(unique_state_dict(ours), "here")
    kept = {n: p for n, p in theirs.state_dict().items() if n != "lm_head.weight" or ours.config.output == "own"}
    assert set(back) == set(kept)
    assert all(torch.equal(back[name], kept[name]) for name in kept)
    said = gpt2.gpt2_config_to_hf(ours.config, ENTRIES)
    again = transformers.GPT2LMHeadModel(transformers.GPT2Config(**said)).double().eval()
    assert not again.load_state_dict(back, strict=False).unexpected_keys
    ids = batch((5, 8)).ids
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, theirs(ids).logits, atol=0, rtol=0)


def test_files_without_the_prefix_and_with_old_masks() -> None:
    theirs = their_model("plain")
    saved = {n.removeprefix("transformer."): p for n, p in theirs.state_dict().items() if n != "lm_head.weight"}
    saved |= {f"h.{n}.attn.bias": torch.ones(1, 1, 24, 24) for n in range(2)}
    ours = our_model(theirs)
    found = gpt2.gpt2_weights_from_hf(saved, ours.config, unique_state_dict(ours), "there")
    assert all(torch.equal(found[name], p) for name, p in unique_state_dict(ours).items())


def test_what_cannot_be_said_is_refused() -> None:
    with pytest.raises(RegardError, match="scale_attn_by_inverse_layer_idx is True"):
        gpt2.gpt2_config_from_hf({"scale_attn_by_inverse_layer_idx": True}, "there")
    with pytest.raises(RegardError, match="activation sigmoid is not one of"):
        gpt2.gpt2_config_from_hf({"activation_function": "sigmoid"}, "there")
    with pytest.raises(RegardError, match=r"there: .*heads do not divide the size"):
        gpt2.gpt2_config_from_hf({"n_embd": 10, "n_head": 4}, "there")
    other = LanguageModelConfig(residual="post_norm", activation="swiglu", position=RotaryConfig())
    with pytest.raises(RegardError, match="residual is post_norm, activation is swiglu, position is rotary"):
        gpt2.gpt2_config_to_hf(other, ENTRIES)
