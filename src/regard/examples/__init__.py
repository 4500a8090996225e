"""From rows of files to batches of examples: features, masking, segments, dialogues, packing. Knows no loss."""
