"""What differs between two tensors, two state_dicts, two checkpoints: figures, not judgements."""
