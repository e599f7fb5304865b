"""Stored bytes that no tensor looks at are counted, and devices are named."""

from ckpttool.commands._inspect.storage import storage_use
from ckpttool.sources import BytesSource
from ckpttool.values import Opaque, StorageRef, TensorRef
from tests.commands.made import contents, folder, plain, tensor


def test_a_view_drags_its_storage_along():
    """Of a storage, the bytes outside the span of its tensors are unused; overlapping views count once."""
    big = tensor(100)
    a = tensor(10, storage=big.storage, storage_offset=5)
    b = tensor(10, storage=big.storage, storage_offset=10)
    use = storage_use(plain({"a": a, "b": b, "c": a}))
    assert (use.count, use.nbytes, use.unused_bytes) == (1, 400, 400 - 4 * 15)


def test_strides_and_parts_and_storages_are_uses():
    """A strided view uses up to its last element; parts, attributes and bare storages are uses as well."""
    held = tensor(6)
    strided = tensor(3, storage=held.storage, stride=(2,))
    inner, kept, bare = tensor(2), tensor(2), tensor(2)
    sparse = tensor(9, storage=None, kind="sparse_coo", parts=(("values", inner),), attributes={"k": kept})
    tree = [strided, sparse, Opaque(cls=None, args=(bare.storage,)), tensor(0)]
    storages = tuple(t.storage for t in (held, inner, kept, bare))
    checkpoint = plain(None)
    checkpoint.contents = {"": contents(tree, storages=storages)}
    assert storage_use(checkpoint).unused_bytes == 4  # the last float of `held`


def test_devices_are_summed():
    """Bytes by device tag, over all files; shards that an index merged are not counted twice."""
    use = storage_use(folder())
    assert use.devices == {"cuda:0": 80, "cpu": 4096 + 80 + 32}
    assert use.unused_bytes == 4096
    checkpoint = folder()
    a = tensor(1)
    checkpoint.contents = {"i": contents({"a": a}, "i", files={"a": "s"}), "s": contents({"a": a}, "s")}
    assert storage_use(checkpoint).count == 1


def test_a_tensor_without_a_storage_uses_none():
    """A tensor on the meta device stores nothing."""
    meta = TensorRef(dtype=tensor(1).dtype, shape=(4,), stride=(1,), kind="meta")
    assert storage_use(plain({"m": meta})).nbytes == 0


def test_narrow_types_are_measured_in_bits():
    """Four bits are half a byte."""
    packed = tensor(3, dtype="quint4x2", kind="quantized")
    assert storage_use(plain({"q": packed})).unused_bytes == 0


def test_only_what_is_there_is_stored():
    """A damaged file announces a storage of 400 bytes and holds 16: 16 are stored, and none is unused."""
    short = StorageRef(BytesSource(bytes(16)), 0, 400)
    use = storage_use(plain({"w": tensor(100, storage=short)}))
    assert (use.nbytes, use.unused_bytes) == (16, 0)
