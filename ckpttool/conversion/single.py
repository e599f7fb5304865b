"""One file converted, or the weights of a folder taken out of it as one tree."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ckpttool.conversion import folders, surgery
from ckpttool.conversion import parts as taking
from ckpttool.conversion.options import Options
from ckpttool.conversion.originals import Job, original_of, require_no_program
from ckpttool.conversion.products import Original, Product, safetensors_file, structured, torch_file, torch_shards
from ckpttool.conversion.tally import Tally
from ckpttool.conversion.targets import target_of
from ckpttool.errors import UnsupportedFormat, UsageError
from ckpttool.model import Checkpoint, Contents, Role
from ckpttool.structures import FOLDER, MAIN, WHOLE, Part
from ckpttool.values import KeyPath

_STATES = frozenset({Role.OPTIMIZER, Role.SCHEDULER, Role.SCALER, Role.RNG, Role.DATA})
_BESIDE_WEIGHTS = frozenset({Role.MODEL, Role.CONFIG, Role.OTHER})  # in a folder that is nothing but a model
_NAMED = 4  # files or parts in a sentence


def single_job(checkpoint: Checkpoint, target: str, options: Options, tally: Tally) -> Job:
    """Plan the conversion of a file, or of a folder's weights into a file.

    Raises:
        UsageError: the target cannot take what the source holds.
        UnsupportedFormat: the source holds what cannot be carried.
    """
    contents = _main(checkpoint)
    goal = target_of(target, options, from_folder=bool(options.max_shard_bytes), already=folders.format_of(contents))
    alone = options.parts == (Role.MODEL,) or _is_folder(checkpoint)
    if _is_folder(checkpoint):
        _require_model_folder(checkpoint, target, options, tally)
    if options.ema:
        taking.take_average(checkpoint, tally)
        contents = _main(checkpoint)
    elif alone and options.parts:
        taking.tell_rest(checkpoint, "--part", tally)
    if options.edits_weights:
        surgery.edit_weights(checkpoint, options, tally)
    if alone:
        root = contents.root if _is_whole(checkpoint, options) else taking.state_dict_of(checkpoint, options, tally)
        roles = frozenset({Role.MODEL})
    else:
        require_no_program([contents])
        if options.parts:
            taking.keep_parts(checkpoint, "", options.parts, tally)
        roles = frozenset(r for _, r in checkpoint.roles() if not options.parts or r in options.parts)
        root = contents.root
    original = original_of(Path(checkpoint.path).name, contents, root, options, tally)
    original = replace(original, labels=_labels(checkpoint))
    parts = () if alone else tuple(_parts(checkpoint, roles))
    job = Job(target=goal, kind=goal.format, tally=tally)
    job.storages = [s for c in checkpoint.contents.values() for s in c.storages]
    job.products.append(_product(original, job, roles, parts, options))
    return job


def _labels(checkpoint: Checkpoint) -> dict[int, str]:
    """The names of a pickled module's tensors, which are not the keys of one dict."""
    return {id(t): name for w in checkpoint.weights if w.paths for name, t in w.tensors.items()}


def _is_folder(checkpoint: Checkpoint) -> bool:
    return checkpoint.contents.keys() != {""}


def _is_whole(checkpoint: Checkpoint, options: Options) -> bool:
    """Whether the folder is one state_dict, so that entries of it that are no tensors go along."""
    places = [w.at.path for w in checkpoint.weights if w.role is Role.MODEL]
    return not options.parts and places == [()]


def _main(checkpoint: Checkpoint) -> Contents:
    """The file that is converted: the only one, or that of the first model."""
    weights = next((w for w in checkpoint.weights if w.role is Role.MODEL), None)
    for name in ("", weights.at.file if weights else "", *checkpoint.contents):
        if name in checkpoint.contents:
            return checkpoint.contents[name]
    raise UnsupportedFormat(
        "it holds no file that can be converted", where=checkpoint.path, hint="`ckpt inspect` says what it holds"
    )


def _require_model_folder(checkpoint: Checkpoint, target: str, options: Options, tally: Tally) -> None:
    """Only a folder that is nothing but a model becomes one file without more words.

    Raises:
        UsageError: it holds more.
    """
    held = {role for _, role in checkpoint.roles()} | {f.role for f in checkpoint.files}
    more = sorted(held - _BESIDE_WEIGHTS)
    if more and options.parts != (Role.MODEL,):
        raise UsageError(
            f"the folder holds {', '.join(more[:_NAMED])} beside the weights, and {target!r} is one file",
            where=checkpoint.path,
            hint="take the weights alone with --part model, or name a folder",
        )
    beside = [f.name for f in checkpoint.files if f.role is not Role.MODEL]
    if beside:
        tally.notes.append(f"the other files stay where they are: {', '.join(beside[:_NAMED])}")


def _product(original: Original, job: Job, roles: frozenset[Role], parts: Sequence[Part], options: Options) -> Product:
    goal = job.target
    name = goal.path.name
    if options.max_shard_bytes:
        _require_weights(original, roles, "shards")
        if goal.format == "torch":
            return torch_shards("pytorch_model.bin", original, options, job.tally)
        return safetensors_file("model.safetensors", original, WHOLE, options, job.tally)
    if goal.format == "torch":
        return torch_file(name, original, options, job.tally)
    if not goal.folder:
        _require_weights(original, roles, "a .safetensors file")
        named = tuple(Part(path=p.path) for p in parts if p.tensors == "model.safetensors")
        return safetensors_file(name, original, named or WHOLE, options, job.tally)
    job.kind = "safetensors and JSON"
    whole = () if any(not p.path for p in parts) else FOLDER
    return structured(original, (*whole, *parts), options, job.tally, document=MAIN)


def _require_weights(original: Original, roles: frozenset[Role], what: str) -> None:
    """Refuse to put training states where readers look for weights alone.

    Raises:
        UsageError: the source holds some.
    """
    more = sorted(roles & (_STATES | {Role.EMA}))
    if more:
        raise UsageError(
            f"it holds {', '.join(more)} beside the weights, and weights alone go into {what}",
            where=original.contents.name,
            hint="name a folder to keep all of it, or take the weights with --part model",
        )


def _parts(checkpoint: Checkpoint, roles: frozenset[Role]) -> Iterator[Part]:
    """Which subtree of the file has files of its own in the result's folder."""
    taken: dict[KeyPath, str] = {}
    stems: dict[str, int] = {}

    def part(path: KeyPath, stem: str, *, document: bool) -> Iterator[Part]:
        if path in taken:
            return
        stems[stem] = stems.get(stem, -1) + 1
        name = f"{stem}_{stems[stem]}" if stems[stem] else stem
        taken[path] = name
        own = f"{name}.json" if document and path else MAIN if not path else ""
        yield Part(path=path, document=own, tensors=f"{name}.safetensors")

    for weights in checkpoint.weights:
        if weights.role in roles:
            yield from part(weights.at.path, "ema" if weights.role is Role.EMA else "model", document=False)
    for role, found in (
        (Role.OPTIMIZER, checkpoint.optimizers),
        (Role.SCHEDULER, checkpoint.schedulers),
        (Role.SCALER, checkpoint.scalers),
    ):
        for one in found if role in roles else ():
            yield from part(one.at.path, role.value, document=True)
    if Role.RNG in roles:
        for path in _generators(checkpoint):
            yield from part(path, "rng", document=True)


def _generators(checkpoint: Checkpoint) -> list[KeyPath]:
    """Where the random states are: the dict that holds them all and nothing else, or each by itself."""
    paths = list(dict.fromkeys(r.at.path for r in checkpoint.rng))
    parents = {path[:-1] for path in paths}
    others = [at.path for at, role in checkpoint.roles() if role is not Role.RNG]
    if len(parents) == 1:
        (parent,) = parents
        if parent and not any(path[: len(parent)] == parent for path in others):
            return [parent]
    return paths
