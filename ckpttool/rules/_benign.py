"""Buffers that come and go between versions of a model and hold nothing that was learned."""

import re

from ckpttool.values import TensorRef

_BUFFER = re.compile(
    r"(?:^|\.)(?:position_ids|inv_freq|original_inv_freq|masked_bias|num_batches_tracked|relative_position_index"
    r"|causal_mask|attn_mask)$"
)
_TRIANGLE = re.compile(r"(?:^|\.)(?:attn|attention|self_attn)\.bias$")
_TRIANGLE_RANK = 3  # of GPT-2's causal mask at the least; a bias that was learned has one dimension


def is_benign(name: str, tensor: TensorRef) -> bool:
    """Whether a tensor is a buffer that a model computes for itself, by the names that models give them."""
    triangle = _TRIANGLE.search(name) is not None and len(tensor.shape) >= _TRIANGLE_RANK
    return triangle or _BUFFER.search(name) is not None
