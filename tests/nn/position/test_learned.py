"""Learned positions against BERT's embeddings, and what stands past their end."""

import pytest
import torch
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertEmbeddings

from regard.config import parse_config
from regard.errors import RegardError
from regard.models import LanguageModelConfig, TextBatch
from regard.nn.layout import AttentionContext, Layout
from regard.nn.position import LearnedConfig
from regard.nn.sizes import Sizes


def test_embeddings_are_berts() -> None:
    torch.manual_seed(0)
    bert = BertEmbeddings(BertConfig(vocab_size=20, hidden_size=8, num_attention_heads=2, max_position_embeddings=12))
    bert = bert.double().eval()
    ours = LearnedConfig(length=12).build(Sizes.of(8, 2)).double()
    ours.table.data.copy_(bert.position_embeddings.weight)
    ids = torch.randint(20, (3, 9))
    words = bert.word_embeddings(ids) + bert.token_type_embeddings.weight[0]
    torch.testing.assert_close(bert.LayerNorm(ours.embed(words, Layout.of(9))), bert(ids))
    places = torch.tensor([[4, 5], [0, 1], [10, 11]])
    step = ours.embed(words[:, :2], Layout(places, 12))
    torch.testing.assert_close(bert.LayerNorm(step), bert(ids[:, :2], position_ids=places))


def test_concat_by_hand() -> None:
    """W [x; p] with W = [[1, 2, 3, 4], [5, 6, 7, 8]], x = (1, 1), p₁ = (2, 0): (3 + 6, 11 + 14)."""
    position = LearnedConfig(length=2, join="concat").build(Sizes.of(2, 1))
    with torch.no_grad():
        position.join.project.weight.copy_(torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]]))
        position.table.copy_(torch.tensor([[0.0, 1], [2, 0]]))
        out = position.embed(torch.ones(1, 2, 2), Layout.of(2))
    assert out.tolist() == [[[7, 19], [9, 25]]]


def test_past_the_end_is_an_error_of_one_sentence() -> None:
    position = LearnedConfig(length=4).build(Sizes.of(2, 1))
    assert position.longest == 4
    position.embed(torch.zeros(1, 4, 2), Layout.of(4))
    for layout in (Layout.of(5), Layout(torch.tensor([[4]]), 5)):
        with pytest.raises(RegardError, match="5 tokens, but learned positions end at 4"):
            position.embed(torch.zeros(1, layout.length, 2), layout)


@pytest.mark.parametrize("residual", ["pre_norm", "post_norm"])
def test_a_table_for_each_layer_joins_its_input(residual: str) -> None:
    """x ← layer_l(x + E_l), and nothing is added to the word vectors beside that."""
    keys = {"layers": 3, "size": 8, "inner": 12, "heads": 2, "dropout": 0.0, "residual": residual}
    torch.manual_seed(0)
    model = parse_config(LanguageModelConfig, {**keys, "position": "learned_per_layer"}).build(9).double().eval()
    plain = parse_config(LanguageModelConfig, {**keys, "position": "none"}).build(9).double().eval()
    kept = {name: value for name, value in model.state_dict().items() if "position" not in name}
    plain.load_state_dict(kept)
    tables = [layer.attention.position.table for layer in model.layers]
    assert len({table.data_ptr() for table in tables}) == 3
    x = plain.embedding(ids := torch.randint(9, (2, 5)))
    context = AttentionContext(Layout.of(5), Layout.of(5))
    for layer, table in zip(plain.layers, tables, strict=True):
        x = layer(x + table[:5], context)
    torch.testing.assert_close(model(TextBatch(ids)), plain.output(plain.norm(x)))
    assert model.longest == 512


def test_a_list_gives_tables_to_some_layers() -> None:
    keys = {"layers": 4, "size": 8, "inner": 8, "heads": 2, "position": ["learned_per_layer", "rotary"]}
    model = parse_config(LanguageModelConfig, keys).build(9)
    assert [layer.attention.position.joins_layers for layer in model.layers] == [True, False, True, False]
    assert model.layers[0].attention.position is not model.layers[2].attention.position
