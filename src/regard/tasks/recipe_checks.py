"""Checks of a recipe whose sections do not go together, before any file is read."""

from regard.examples.document_encoder import KEEPS_SPACES
from regard.examples.recipe_like import RecipeLike
from regard.models.decoders.pairs import DecoderOnlyConfig
from regard.models.transformer import PositionsConfig, TransformerConfig
from regard.tasks.guided_alignment import GuidedAlignment


def check_translation(recipe: RecipeLike, guide: GuidedAlignment | None) -> None:
    """Raise ValueError, which names the key, where the sections of a recipe for translation do not go together."""
    if getattr(recipe.model, "share", None) == "all" and not recipe.text.shared:
        raise ValueError("model.share: all needs text.shared: true, since one matrix serves both languages")
    if isinstance(recipe.model, DecoderOnlyConfig) and not recipe.text.shared:
        raise ValueError("model.kind: decoder_only needs text.shared: true, since source and target are one sequence")
    training = recipe.training
    if training.goal not in ("loss", "perplexity") and not training.validation.decode:
        raise ValueError(
            f"training.goal: {training.goal} needs training.validation.decode: true; without it, write goal: loss"
        )
    if guide is not None:
        _check_guide(recipe)
    _check_trees(recipe)
    longest = recipe.data.filters.max_length + 1  # and the end, or the start
    check_lengths(recipe, longest, longest)


def check_lengths(recipe: RecipeLike, *lengths: int) -> None:
    """Raise ValueError where the model's choices cannot serve inputs of these lengths."""
    try:
        recipe.model.check(*lengths)
    except ValueError as error:
        raise ValueError(f"model.{error}" if str(error).startswith("position.") else f"model: {error}") from None


def check_no_sampling(recipe: RecipeLike) -> None:
    """Raise ValueError where the text section samples segmentations, which only translation does."""
    for key in recipe.text.sampling:
        task = recipe.task.kind
        raise ValueError(f"text.{key} draws pieces anew for every epoch, which the task {task} does not; write 0")


def check_leads(recipe: RecipeLike, languages: tuple[str, str], guide: GuidedAlignment | None) -> None:
    """Raise ValueError where sections do not suit pairs that are drawn from articles."""
    if languages[0] != languages[1]:
        raise ValueError(f"task.leads is of one language: write task.target: {languages[0]}, as task.source")
    if guide is not None:
        raise ValueError("task.leads draws its pairs, which have no alignments; leave out task.guide")
    if not recipe.text.shared:
        raise ValueError("task.leads is of one language, which has one vocabulary: write text.shared: true")
    if recipe.text.kind in KEEPS_SPACES:
        raise ValueError(
            "task.leads joins passages by spaces: text.kind must cut at spaces, as bpe, word and wordpiece do, not "
            f"{recipe.text.kind}"
        )
    check_no_sampling(recipe)
    parallel = [c for c in (*recipe.data.train, *recipe.data.valid, *recipe.data.test) if c.source is not None]
    if parallel:
        raise ValueError(f"task.leads reads articles, and {parallel[0].name} is two files of pairs; name one of text")


def _check_guide(recipe: RecipeLike) -> None:
    if not hasattr(recipe.model, "attention"):
        raise ValueError(f"task.guide teaches attention to the source, and the model {recipe.model.kind} has none")
    unaligned = [c for c in recipe.data.train if c.alignments is None]
    if unaligned:
        raise ValueError(
            f"task.guide needs the word alignments of every training corpus, and {unaligned[0].name} has none; "
            "name their file (alignments: FILE, beside source and target)"
        )


def _check_trees(recipe: RecipeLike) -> None:
    model, data = recipe.model, recipe.data
    position = model.position if isinstance(model, TransformerConfig) else None
    unparsed = [c for c in (*data.train, *data.valid, *data.test) if c.heads is None]
    if unparsed and isinstance(position, PositionsConfig) and "structural" in {p.kind for p in position.of("encoder")}:
        raise ValueError(
            "model.position.encoder: structural needs the dependency tree of every sentence, and "
            f"{unparsed[0].name} has none; name its CoNLL-U file (heads: FILE, beside source and target)"
        )
