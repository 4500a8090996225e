"""A checkpoint of Hugging Face's GPT-2 as a model folder: a language model that writes."""

from torch import Tensor

from regard import config
from regard.errors import RegardError
from regard.interop import gpt2
from regard.interop.checkpoint import Checkpoint, Imported
from regard.recipe import Recipe
from regard.tasks.texts import TOKENIZER
from regard.text.pretrained import from_gpt2
from regard.training.weights import weights_of


def read(checkpoint: Checkpoint) -> Imported:
    origin, theirs = checkpoint.folder, checkpoint.config
    model = gpt2.config_here(theirs, origin)
    tokenizer = from_gpt2(origin / "vocab.json", origin / "merges.txt")
    entries = int(theirs.get("vocab_size", 50_257))
    if tokenizer.size != entries:
        raise RegardError(f"{origin}: the vocabulary has {tokenizer.size:,} pieces, and config.json says {entries:,}")
    plain = {
        "task": {"kind": "lm", "length": theirs.get("n_positions", 1024)},
        "data": {},
        "text": {"kind": "byte_bpe", "size": entries},
        "model": config.to_plain(model),
    }
    recipe = config.parse(Recipe, config.wrap(plain, str(origin)))
    own = weights_of(model.build(entries))
    weights = gpt2.weights_here(_without_masks(checkpoint), model, own, origin)
    return Imported(recipe, weights, lambda out: tokenizer.save(out / TOKENIZER))


def _without_masks(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Old files hold the causal mask of every layer, too; it is no weight."""
    masks = (".attn.bias", ".attn.masked_bias")
    return {name: tensor for name, tensor in checkpoint.tensors().items() if not name.endswith(masks)}
