"""Whatever a file holds, recognising its parts ends in a checkpoint."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpttool.dtypes import DType
from ckpttool.layouts import LAYOUTS
from ckpttool.limits import DEFAULT_LIMITS
from ckpttool.model import Contents
from ckpttool.protocols import Found
from ckpttool.sources import BytesSource
from ckpttool.values import ORDERED_DICT, GlobalRef, NumpyScalar, Opaque, Record
from tests.layouts.trees import scalar, tensor

# Every key that a recogniser looks at.
_KEYS = """
state param_groups params param_names lr step exp_avg exp_avg_sq decoupled_weight_decay row_var col_var exp_avg_sq_row
exp_avg_sq_col scale growth_factor backoff_factor growth_interval _growth_tracker growth_tracker hysteresis_tracker
cur_scale scale_factor scale_window loss_scaler0 loss_scale unskipped last_epoch base_lrs _schedulers _milestones
_last_lr lr_lambdas patience num_bad_epochs max_lr lr_decay_style num_steps base_values param_group_field rng
random_state python numpy torch cuda bit_generator pos _num_yielded _iterator_finished sampler args config
hyper_parameters _content _val epoch global_step best_metric model ema state_dict module.a.weight a.weight a.bias weight
n_averaged shadow_params _extra_state _modules _parameters _buffers _non_persistent_buffers_set _enabled _growth_factor
_growth_interval _init_scale pytorch-lightning_version loops fit_loop epoch_progress total completed callbacks
best_model_score current_model_state optimizer_states lr_schedulers timestamp Timestamp batch metadata
composer_env_info composer_version last_optimizer_state optimizer_history extra_state train_iterator num_updates arch
version model_args iter_num optimizer scaler MixedPrecision scheduler state.a.b.exp_avg param_groups.a.b.lr 0 1
"""
KEYS = _KEYS.split()
CLASSES = [
    "GradScaler",
    "DynamicLossScaler",
    "Namespace",
    "DictConfig",
    "Linear",
    "AdamW",
    "StepLR",
    "__randomstate_ctor",
]
FILES = ["x.pt", "scaler.pt", "rng_state.pth", "scheduler.pt", "model_ema.pt", "optimizer.pt"]

tensors = st.builds(
    lambda shape, dtype: tensor(*shape, dtype=dtype),
    st.lists(st.integers(0, 3), max_size=2),
    st.sampled_from(["float32", "uint8", "int64", "bool", "bfloat16"]),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.binary(max_size=3),
    st.just("MT19937"),
    st.just(tuple(range(625))),
    st.just(tensor(5056, dtype="uint8")),
    st.just(GlobalRef("a", "b")),
    st.just(NumpyScalar(DType("float64", 64, "float", struct="<d"), b"\0" * 8)),
    st.builds(scalar, st.floats(width=32)),
    tensors,
)
keys = st.one_of(
    st.sampled_from(KEYS), st.sampled_from(KEYS), st.integers(0, 3), st.none(), st.tuples(st.integers()), tensors
)


def record(entries):
    made = Record(ORDERED_DICT)
    made.update(entries)
    return made


def containers_of(inner):
    entries = st.dictionaries(keys, inner, max_size=8)
    objects = st.builds(
        lambda name, state, args, items, held: Opaque(
            cls=GlobalRef("m", name), args=args, state=state, items=items, entries=held
        ),
        st.sampled_from(CLASSES),
        st.one_of(inner, entries, entries),
        st.one_of(st.lists(inner, max_size=2).map(tuple), inner),
        st.one_of(st.none(), st.lists(inner, max_size=3)),
        st.one_of(st.none(), entries),
    )
    called = st.builds(lambda cls: Opaque(cls=cls), inner)
    return st.one_of(entries, entries, entries.map(record), st.lists(inner, max_size=5), objects, called)


trees = st.one_of(st.dictionaries(keys, st.recursive(leaves, containers_of, max_leaves=30), max_size=10), leaves)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(root=trees, name=st.sampled_from(FILES))
def test_every_tree_becomes_a_checkpoint(root, name):
    """Known keys with values of every kind, in every place: each layout says yes or no, and the last one yes."""
    contents = Contents(name=name, container="torch-zip", source=BytesSource(b"", name), root=root)
    found = Found(path=name, contents=contents, open=lambda _: contents, limits=DEFAULT_LIMITS)
    said = [layout.recognise(found) for layout in LAYOUTS]
    assert said[-1] is not None
    for checkpoint in said:
        if checkpoint is not None:
            assert all(at.file == "" for at, _ in checkpoint.roles())
