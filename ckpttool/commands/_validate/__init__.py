"""What `ckpt validate` and `ckpt rules` are made of."""
