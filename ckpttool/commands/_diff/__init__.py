"""What `ckpt diff` is made of."""
