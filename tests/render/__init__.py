"""Reports as text and as JSON."""
