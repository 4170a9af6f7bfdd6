"""Find the models that a path or hub id names, and open them.

A run names all its finished variants, `variants/V` one of them, `meta` the encoder of phase (a),
`.../checkpoints` all checkpoints in it, and `.../checkpoints/step-N` one. Any other folder or hub
id names the encoder in it. Models that cannot be evaluated are rejected before anything is trained.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerBase

from metaxlm.digests import CARD, require_whole
from metaxlm.errors import MetaXLMError
from metaxlm.files import LONGEST_NAME, digest_value
from metaxlm.hub import CONFIG, HUB, TOKENIZER_CONFIG, find_local
from metaxlm.manifest import MARKER, find_damage, read_manifest, read_sealed
from metaxlm.model.any_encoder import AnyEncoder, check_encoder, load_encoder
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.foreign import ForeignEncoder
from metaxlm.model.foreign_folder import export_tensors
from metaxlm.model.huggingface import load_tokenizer, read_encoder_config
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.model.model_folder import TOKENIZER_FILES, find_folder
from metaxlm.model.sentence_modules import SentenceModules, read_sentence_modules
from metaxlm.pretrain.checkpoint import list_checkpoints
from metaxlm.pretrain.loop import STEPS
from metaxlm.progress import say
from metaxlm.recipe.recipe_file import load_recipe
from metaxlm.run.layout import RunLayout
from metaxlm.run.prepare import MONOLINGUAL, load_vocabulary
from metaxlm.run.training import encoder_config

# Folder names that do not describe a model.
_GENERIC_NAMES = {"model", "models", "checkpoint", "final", "best", "output", "0_Transformer"}


@dataclass(frozen=True)
class NamedModel:
    """A model that can be opened."""

    name: str  # name in tables and folders; safe as a file name
    source: Path | str  # a model folder, a checkpoint, or a hub id
    step: int | None = None  # step of a checkpoint or of a run's model
    variant: str | None = None  # variant of a run
    fingerprint: str = ""  # changes when the model's files do


def find_all_models(paths: Sequence[str]) -> list[NamedModel]:
    """Return the models of several paths in order, each once, with unique names.

    The first model keeps a name that several would have, so that adding a model to the command
    line does not rename the folders of others.
    """
    found: dict[str, NamedModel] = {}
    taken: set[str] = set()
    for model in (model for path in paths for model in find_models(path)):
        if str(model.source) not in found:
            path = Path(model.source)
            longer = _make_safe(f"{(_find_run(path) or path).parent.name}-{model.name}")
            names = (model.name, longer, f"{model.name}-{digest_value(str(path))[:8]}")
            name = next(name for name in names if name not in taken)
            taken.add(name)
            found[str(model.source)] = replace(model, name=name)
    return list(found.values())


def find_models(path: str) -> list[NamedModel]:
    """Return the models that a path or hub id names; see the module's docstring."""
    local = find_local(path)
    if local is None:
        return [_describe_folder(path)]
    folder = local.absolute()
    run = _find_run(folder)
    if run is None:
        if folder.name.startswith("step-") and (folder / "optimizer.safetensors").exists():
            raise MetaXLMError(f"{path}: a checkpoint outside its run; name the one inside the run")
        return [_describe_folder(path)]
    parts = folder.relative_to(run).parts
    if parts in ((), ("variants",)):
        return _list_variants(run)
    place = run / "meta" if parts[0] == "meta" else run.joinpath(*parts[:2])
    inner = folder.relative_to(place).parts
    if parts[0] in ("meta", "variants") and inner[:1] == ("checkpoints",):
        checkpoints = [folder] if inner[1:] else list_checkpoints(folder)
        if not checkpoints:
            raise MetaXLMError(f"{folder}: has no checkpoint; run the recipe first")
        return [_describe_checkpoint(run, place, checkpoint) for checkpoint in checkpoints]
    if parts[0] in ("meta", "variants") and inner in ((), ("model",)):
        return [_describe_result(run, place)]
    return [_describe_folder(path, _name_inside(run, folder))]


def open_one_model(path: str) -> AnyEncoder:
    """Load the encoder that a path or hub id names; reject a path with several models."""
    return open_model(find_one_model(path))


def find_one_model(path: str) -> NamedModel:
    """Return the model that a path or hub id names; reject a path with several models."""
    found = find_models(path)
    if len(found) > 1:
        sources = ", ".join(str(model.source).removesuffix("/model") for model in found[:3])
        more = ", ..." if len(found) > 3 else ""
        raise MetaXLMError(f"{path}: has {len(found)} models; name one: {sources}{more}")
    return found[0]


def open_model(model: NamedModel) -> AnyEncoder:
    """Load a model; a checkpoint is loaded with the sizes and the tokenizer of its run."""
    folder = Path(model.source)
    if folder.parent.name == STEPS:
        finished = folder.parent.parent / "model"
        again = f"delete {folder} and {finished} and run again: checkpoints have both"
        require_whole(folder, again)
    if model.step is None or (folder / CONFIG).is_file():
        return load_encoder(model.source)
    if damage := find_damage(folder):
        raise MetaXLMError(f"{damage[0]}; choose another checkpoint of this run")
    config, tokenizer = _describe_training(folder.parent.parent)
    try:
        # Leave out the optimizer's moments, which are twice as large.
        masked = MaskedLM.from_state(config, load_file(folder / "model.safetensors"))
    except (SafetensorError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        what = f"does not fit the sizes of its run ({reason}); was the run started again?"
        raise MetaXLMError(f"{folder}: {what}") from error
    if isinstance(masked.encoder, ForeignEncoder):
        masked.encoder.tensors = export_tensors(masked)
    return AnyEncoder(str(folder), tokenizer, masked.encoder, masked.head)


def read_modules(model: NamedModel) -> SentenceModules | None:
    """Read the steps after the encoder; None if the model is not of sentence-transformers."""
    is_folder = model.step is None or (Path(model.source) / CONFIG).is_file()
    return read_sentence_modules(find_folder(model.source)) if is_folder else None


def _name_inside(run: Path, folder: Path) -> str:
    """Name a folder inside a run by its path: `demo-xlm-initialization`."""
    parts = [part for part in folder.relative_to(run).parts if part not in ("variants", "model")]
    return _make_safe("-".join([run.name, *parts]))


def _find_run(folder: Path) -> Path | None:
    for parent in (folder, *folder.parents):
        has_parts = any((parent / name).is_dir() for name in ("variants", "meta", "vocabulary"))
        # A project may have a recipe above folders of models that belong to no run.
        if (parent / "recipe.yaml").is_file() and (has_parts or parent == folder):
            return parent
    return None


def _list_variants(run: Path) -> list[NamedModel]:
    """Return the finished variants of a run in the recipe's order; log the others."""
    present = {path.name for path in (run / "variants").glob("*") if path.is_dir()}
    require_whole(run / "recipe.yaml")
    listed = list(load_recipe(run / "recipe.yaml").variants)
    variants = [*listed, *sorted(present - set(listed))]
    finished = [name for name in variants if _read_files(run / "variants" / name / "model")]
    missing = ", ".join(name for name in variants if name not in finished)
    if not finished:
        fix = "finish the run, or name variants/V/checkpoints/step-N"
        raise MetaXLMError(f"{run}: none of its variants is pretrained yet ({missing}); {fix}")
    if missing:
        say(f"{run}: skipping variants that are not pretrained yet: {missing}")
    return [_describe_result(run, run / "variants" / name) for name in finished]


def _describe_result(run: Path, place: Path) -> NamedModel:
    folder = place / "model"
    files = _read_files(folder)
    if not files:
        checkpoints = [path.name for path in list_checkpoints(place / "checkpoints")]
        hint = f", or name checkpoints/{checkpoints[-1]}" if checkpoints else ""
        raise MetaXLMError(f"{folder}: not finished; run the recipe to the end{hint}")
    variant = None if place.name == "meta" else place.name
    return NamedModel(_name_inside(run, place), folder, None, variant, digest_value(files))


def _read_files(folder: Path) -> dict[str, object]:
    """Return sizes and digests of a finished stage's files; empty if any is missing."""
    try:
        files: dict[str, dict[str, int]] = read_sealed(folder / MARKER).get("files", {})
    except MetaXLMError:
        return {}
    whole = all(
        (folder / name).is_file() and (folder / name).stat().st_size == facts["bytes"]
        for name, facts in files.items()
    )
    return {name: facts for name, facts in files.items() if name != CARD} if whole else {}


def _describe_checkpoint(run: Path, place: Path, path: Path) -> NamedModel:
    try:
        manifest = read_manifest(path)
        step = int(manifest["step"])
    except (MetaXLMError, KeyError) as error:
        raise MetaXLMError(f"{path}: incomplete checkpoint ({error}); choose another") from error
    name = f"{_name_inside(run, place)}-step-{step}"
    variant = None if place.name == "meta" else place.name
    return NamedModel(name, path, step, variant, digest_value(manifest))


def _describe_folder(source: str, name: str | None = None) -> NamedModel:
    """Return the encoder of a folder or hub id; reject other models."""
    local = find_local(source)
    folder = find_folder(source)
    check_encoder(folder)
    names = (CONFIG, *TOKENIZER_FILES, TOKENIZER_CONFIG)
    files = {*folder.glob("*.safetensors"), *(folder / name for name in names)}
    found = [(path.name, path.stat()) for path in sorted(files) if path.is_file()]
    known = [(name, status.st_size, status.st_mtime_ns) for name, status in found]
    place = source if local is None else folder.absolute()
    if name is None:  # the last part that describes the model, such as the folder above `model`
        parts = Path(str(place).removeprefix(HUB)).parts
        named = [part for part in parts if part.strip("/") and part not in _GENERIC_NAMES]
        name = _make_safe(named[-1] if named else "model")
    return NamedModel(name, place, None, None, digest_value(known))


def _make_safe(name: str) -> str:
    safe = re.sub(r"[^\w.+-]+", "-", name).strip("-.") or "model"
    return safe.encode()[-LONGEST_NAME:].decode(errors="ignore").strip("-.")


def _describe_training(place: Path) -> tuple[EncoderConfig, PreTrainedTokenizerBase]:
    for folder in (place / "initialization" / "model", place / "model"):
        if (folder / CONFIG).is_file():
            require_whole(folder)
            config = read_encoder_config(folder)
            return config, load_tokenizer(folder, config.vocab_size, config.pad_id)
    if place.name != "meta":
        raise MetaXLMError(f"{place}: has no initialization/model with the sizes of the model")
    layout = RunLayout(place.parent)
    tokenizer = load_vocabulary(layout, MONOLINGUAL)
    require_whole(layout.recipe)
    return encoder_config(load_recipe(layout.recipe), len(tokenizer)), tokenizer
