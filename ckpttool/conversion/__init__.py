"""From what a checkpoint holds to the files that will hold it: edits, plans, writing, and proof."""
