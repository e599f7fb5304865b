"""Byte formats to write: what a file will hold is planned first, byte for byte, then written beside its place."""
