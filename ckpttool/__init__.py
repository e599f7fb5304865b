"""Look into, compare, convert and validate training checkpoints without running anything in them."""

__version__ = "0.1.0"
