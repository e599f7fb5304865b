"""What `ckpt convert` is made of."""
