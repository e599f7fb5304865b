"""A checkpoint judged: the rules run over it, their findings weighed, and what could not be looked at said."""
