"""The values of tensors: the one way from a `TensorRef` to its elements.

`windows` yields them in bounded pieces, `number` reads a single one without numpy, `sha256` names a whole tensor.
numpy is imported only when values are asked for.
"""

from ckpttool.elements.floats import as_floats
from ckpttool.elements.scalars import number
from ckpttool.elements.torch_text import torch_text
from ckpttool.elements.trees import tensors_in
from ckpttool.elements.windows import Box, sha256, windows

__all__ = ["Box", "as_floats", "number", "sha256", "tensors_in", "torch_text", "windows"]
