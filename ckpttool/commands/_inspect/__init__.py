"""What `ckpt inspect` is made of."""
