"""What of a recipe does not go together, found before any file is read."""

from typing import Any, cast

from regard.examples.recipe_like import RecipeLike
from regard.models.transformer import PositionsConfig
from regard.tasks.guided_alignment import Guide


def check(recipe: RecipeLike, guide: Guide | None) -> None:
    """Raise ValueError, which names the key, where that is so in a recipe for translation."""
    if getattr(recipe.model, "share", None) == "all" and not recipe.text.shared:
        raise ValueError("model.share: all needs text.shared: true, since one matrix serves both languages")
    training = recipe.training
    if training.goal not in ("loss", "perplexity") and not training.validation.decode:
        raise ValueError(
            f"training.goal: {training.goal} needs training.validation.decode: true; without it, write goal: loss"
        )
    if guide is not None:
        _guide(recipe)
    _trees(recipe)
    longest = recipe.data.filters.max_length + 1  # and the end, or the start
    fits(recipe, longest, longest)


def fits(recipe: RecipeLike, *lengths: int) -> None:
    """Raise ValueError where the model's choices cannot serve inputs of these lengths."""
    try:
        cast(Any, recipe.model).check(*lengths)
    except ValueError as error:
        raise ValueError(f"model.{error}" if str(error).startswith("position.") else f"model: {error}") from None


def refuse_sampling(recipe: RecipeLike) -> None:
    """Raise ValueError where the text section asks for what only translation does."""
    for key in ("dropout", "alpha"):
        if getattr(recipe.text, key, 0.0):
            task = recipe.task.kind
            raise ValueError(f"text.{key} draws pieces anew for every epoch, which the task {task} does not; write 0")


def _guide(recipe: RecipeLike) -> None:
    if not hasattr(recipe.model, "attention"):
        raise ValueError(f"task.guide teaches attention to the source, and the model {recipe.model.kind} has none")
    bare = [c for c in recipe.data.train if c.alignments is None]
    if bare:
        raise ValueError(
            f"task.guide needs the word alignments of every training corpus, and {bare[0].name} has none; "
            "name their file (alignments: FILE, beside source and target)"
        )


def _trees(recipe: RecipeLike) -> None:
    position, data = getattr(recipe.model, "position", None), recipe.data
    bare = [c for c in (*data.train, *data.valid, *data.test) if c.heads is None]
    if bare and isinstance(position, PositionsConfig) and "structural" in {p.kind for p in position.of("encoder")}:
        raise ValueError(
            "model.position.encoder: structural needs the dependency tree of every sentence, and "
            f"{bare[0].name} has none; name its CoNLL-U file (heads: FILE, beside source and target)"
        )
