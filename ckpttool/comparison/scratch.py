"""Arrays that are used again for every window: fresh pages cost as much as the arithmetic on them."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class Scratch:
    """Arrays by name. What one holds is lost when its name is asked for again."""

    def __init__(self) -> None:
        self._flat: dict[tuple[str, str], Array] = {}

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> "Array":
        """An array of this type and shape, with anything in it."""
        import numpy as np  # noqa: PLC0415  # 80 ms that only those who read values pay

        size = math.prod(shape)
        flat = self._flat.get((name, dtype))
        if flat is None or flat.size < size:
            flat = self._flat[name, dtype] = np.empty(size, dtype=dtype)
        return flat[:size].reshape(shape)
