"""The words of models with a source and a target: two tables of vectors and the scores, which may be one matrix."""

from typing import Literal

from regard.nn.embedding import Embedding

Share = Literal["none", "target", "all"]
SHARE = "one matrix for target embedding and output (target), and for the source embedding too (all)"


def shared_embeddings(
    share: Share, source_entries: int, target_entries: int, size: int, scale: bool = True
) -> tuple[Embedding, Embedding, Embedding | None]:
    """Of the source, of the target, and the one whose matrix scores words too; none: they have their own."""
    if share == "all" and source_entries != target_entries:
        raise ValueError("model.share: all needs one shared vocabulary (text.shared: true)")
    source = Embedding(source_entries, size, scale)
    target = source if share == "all" else Embedding(target_entries, size, scale)
    return source, target, None if share == "none" else target
