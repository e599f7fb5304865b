"""Value trees of every kind, with shared parts and cycles, for laws."""

from typing import Any

from hypothesis import strategies as st

from ckpttool.dtypes import BY_NAME
from ckpttool.pickles.constructors import PURE_CONSTRUCTORS, build_object
from ckpttool.pickles.views import contiguous_stride
from ckpttool.sources import BytesSource
from ckpttool.values import BytesRef, GlobalRef, Opaque, Record, StorageRef, TensorRef

DTYPES = (
    "float32",
    "bfloat16",
    "int64",
    "complex64",
    "complex128",
    "complex32",
    "bool",
    "float8_e4m3fn",
    "bits16",
    "float4_e2m1fn_x2",
)
REFS = st.sampled_from([GlobalRef("a.b", "C"), GlobalRef("os", "system"), GlobalRef("m\ud800", "n")])


def plain() -> st.SearchStrategy[Any]:
    """Values that hold no others."""
    text = st.text(st.characters(codec=None, categories=None), max_size=5)
    return st.one_of(
        st.none(), st.booleans(), st.integers(), st.integers(2**62, 2**70), st.floats(), text, st.binary(max_size=9),
        st.complex_numbers(), REFS, st.sampled_from(["$ref", "$id", "schema", "", "a.b"]),
    )  # fmt: skip


def scalar(code: str, data: bytes) -> Any:
    """A numpy scalar as the reader makes it."""
    return PURE_CONSTRUCTORS[GlobalRef("numpy._core.multiarray", "scalar")]((dtype(code), data))


def dtype(code: str, state: Any = None) -> Any:
    """A numpy dtype as the reader makes it."""
    made = PURE_CONSTRUCTORS[GlobalRef("numpy", "dtype")]((code[1:], False, True))
    build_object(made, (3, code[0], None, None, None, -1, -1, 0) if state is None else state)
    return made


def array(code: str, shape: tuple[int, ...], data: bytes, *, fortran: bool = False) -> Any:
    """A numpy array as the reader makes it."""
    made = PURE_CONSTRUCTORS[GlobalRef("numpy._core.multiarray", "_reconstruct")](
        (GlobalRef("numpy", "ndarray"), (0,), b"b")
    )
    build_object(made, (1, shape, dtype(code), fortran, data))
    return made


def storage(nbytes: int, **said: Any) -> StorageRef:
    """A storage of different bytes."""
    return StorageRef(BytesSource(bytes(n * 7 % 251 for n in range(nbytes)), "mem"), 0, nbytes, **said)


def view(
    held: StorageRef, dtype: str, shape: tuple[int, ...], stride: Any = None, offset: int = 0, **said: Any
) -> TensorRef:
    """A tensor."""
    steps = contiguous_stride(shape) if stride is None else stride
    return TensorRef(dtype=BY_NAME[dtype], shape=shape, stride=steps, storage=held, storage_offset=offset, **said)


class Builder:
    """Draws a tree; what was made before may come again, anywhere, also inside itself."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.made: list[Any] = []
        self.begun: list[Any] = []  # objects whose class and arguments are being drawn, which cannot hold them
        self.storages = [storage(64, dtype=BY_NAME["float32"]), storage(200, location="cuda:0")]

    def keep(self, value: Any) -> Any:
        self.made.append(value)
        return value

    def value(self, depth: int) -> Any:
        kinds = ["plain"] * 3 + ["again"] * (2 if self.made_before() else 0)
        if depth:
            kinds += ["list", "tuple", "dict", "record", "opaque", "set", "frozenset", "tensor", "other"]
        return getattr(self, f"_{self.draw(st.sampled_from(kinds))}")(depth - 1)

    def made_before(self) -> list[Any]:
        return [made for made in self.made if not any(made is begun for begun in self.begun)]

    def values(self, depth: int) -> list[Any]:
        return [self.value(depth) for _ in range(self.draw(st.integers(0, 3)))]

    def key(self) -> Any:
        return self.draw(st.one_of(plain(), st.tuples(st.integers(), st.text(max_size=2))))

    def _plain(self, _depth: int) -> Any:
        return self.draw(plain())

    def _again(self, _depth: int) -> Any:
        return self.draw(st.sampled_from(self.made_before()))

    def _list(self, depth: int) -> Any:
        made = self.keep([])
        made += self.values(depth)
        return made

    def _tuple(self, depth: int) -> Any:
        return self.keep(tuple(self.values(depth)))

    def _entries(self, target: Any, depth: int) -> Any:
        for value in self.values(depth):
            target[self.draw(st.text(max_size=3)) if self.draw(st.booleans()) else self.key()] = value
        return target

    def _dict(self, depth: int) -> Any:
        return self._entries(self.keep({}), depth)

    def _record(self, depth: int) -> Any:
        args = tuple(self.values(0))
        made = self.keep(Record(self.draw(REFS), args))
        self._entries(made, depth)
        made.state = self.value(depth)
        return made

    def _opaque(self, depth: int) -> Any:
        how = self.draw(st.sampled_from(["reduce", "newobj", "persistent", "extension"]))
        cls = self.draw(st.one_of(REFS, st.none(), st.builds(Opaque, REFS)))
        made = self.keep(Opaque(cls, how=how))
        self.begun.append(made)
        made.args = tuple(self.values(depth)) if self.draw(st.booleans()) else self.value(0)
        self.begun.pop()
        made.kwargs = self.draw(st.sampled_from([None, {}, {"k": 1}]))
        made.state = self.value(depth)
        made.items = self.draw(st.sampled_from([None, 1])) and self.values(depth)
        made.entries = self.draw(st.sampled_from([None, 1])) and self._entries({}, depth)
        return made

    def _set(self, _depth: int) -> Any:
        return self.keep({self.key() for _ in range(self.draw(st.integers(0, 2)))})

    def _frozenset(self, _depth: int) -> Any:
        return self.keep(frozenset(self.key() for _ in range(self.draw(st.integers(0, 2)))))

    def _tensor(self, _depth: int) -> Any:
        held = self.draw(st.sampled_from(self.storages))
        dtype = self.draw(st.sampled_from(DTYPES))
        shape = self.draw(st.sampled_from([(), (1,), (2,), (2, 1), (1, 2), (0, 2), (2, 2)]))
        most = held.nbytes // (BY_NAME[dtype].bits // 8)
        stride = tuple(self.draw(st.integers(0, max(0, (most - 1) // 4))) for _ in shape)
        stride = self.draw(st.sampled_from([stride, contiguous_stride(shape)]))
        last = sum((extent - 1) * step for extent, step in zip(shape, stride, strict=True) if extent)
        offset = self.draw(st.integers(0, max(0, most - 1 - last)))
        if (offset + last + 1) * BY_NAME[dtype].bits // 8 > held.nbytes:
            stride, offset = contiguous_stride(shape), 0
        flags = {"requires_grad": self.draw(st.booleans()), "parameter": self.draw(st.booleans())}
        conj = dtype.startswith("complex") and self.draw(st.booleans())
        return self.keep(view(held, dtype, shape, stride, offset, conj=conj, **flags))

    def _other(self, _depth: int) -> Any:
        return self.draw(
            st.one_of(
                st.binary(max_size=9).map(lambda data: self.keep(bytearray(data))),
                st.binary(min_size=8, max_size=8).map(lambda data: self.keep(scalar("<f8", data))),
                st.binary(min_size=1, max_size=1).map(lambda data: self.keep(scalar("|b1", data))),
                st.sampled_from(["<f4", ">f4", "<u4"]).map(
                    lambda code: self.keep(array(code, (2, 3), bytes(range(24))))
                ),
                st.just(0).map(lambda _: self.keep(array("<i2", (2, 3), bytes(range(12)), fortran=True))),
                st.booleans().map(
                    lambda mutable: self.keep(BytesRef(BytesSource(bytes(range(200))), 3, 150, mutable=mutable))
                ),
                st.sampled_from(self.storages),
            )
        )


@st.composite
def trees(draw: Any) -> Any:
    """A tree."""
    return Builder(draw).value(4)
