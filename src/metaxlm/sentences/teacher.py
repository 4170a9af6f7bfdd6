"""The teacher of a sentence encoder: a frozen sentence-transformers folder, and its vectors.

The vectors of all anchors are computed once before training, in shards that are stored in the work
folder: a resumed run reads them. Only directions matter to the loss, so vectors have length 1 and
are stored in float16. Shapes: A anchors, B texts of a batch, D hidden.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.files import atomic_file, digest_value, read_json
from metaxlm.finetune.batches import collate_inputs, evaluating
from metaxlm.finetune.encoding import Ids, check_tokenizer
from metaxlm.hub import CONFIG, MODULES, TOKENIZER_CONFIG
from metaxlm.model.any_encoder import AnyEncoder, load_encoder
from metaxlm.model.huggingface import read_encoder_config
from metaxlm.model.model_folder import SENTENCE_SETTINGS, find_folder, is_transformer
from metaxlm.pretrain.distributed import DistributedContext, own_bfloat16
from metaxlm.probe.embedding import plan_work
from metaxlm.probe.pool import find_frame, pool_mean, run_ahead, tokenize_texts
from metaxlm.progress import track
from metaxlm.stopping import check_stop

Pooling = Literal["mean", "cls"]

SHARD_ANCHORS = 32_768
_BATCH_TOKENS = 65_536
VECTORS = "teacher"  # folder of the stored vectors in the work folder
_USE = "use a folder such as all-MiniLM-L6-v2, or write one with `metaxlm export`"
_POOLING_MODES: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
}


@dataclass(frozen=True)
class SentenceModules:
    """How a sentence-transformers folder turns hidden states into a vector."""

    pooling: Pooling
    normalizes: bool  # whether vectors have length 1
    max_length: int  # tokens of a text; longer ones are cut
    lower_case: bool  # whether texts are lowercased before they are tokenized


def read_modules(source: str | Path) -> SentenceModules:
    """Read the settings of a sentence-transformers folder; reject other folders."""
    folder = find_folder(source)
    root = folder if (folder / MODULES).is_file() else folder.parent
    if not (root / MODULES).is_file():
        raise MetaXLMError(f"{source}: not a sentence encoder, it has no {MODULES}; {_USE}")
    listed = read_json(root / MODULES)
    modules = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    kinds = [str(module.get("type")).rpartition(".")[2] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise MetaXLMError(
            f"{root / MODULES}: has the modules {', '.join(kinds) or 'none'}; a teacher has "
            f"Transformer, Pooling and perhaps Normalize: {_USE}"
        )
    if not is_transformer(modules[0]) or root / str(modules[0].get("path", "")) != folder:
        raise MetaXLMError(f"{root / MODULES}: its encoder is not in {folder}; {_USE}")
    settings = _read_settings(folder / SENTENCE_SETTINGS)
    positions = read_encoder_config(folder).max_positions
    # Newer folders have the limit among the settings of the tokenizer.
    limit = settings.get("max_seq_length")
    limit = limit or _read_settings(folder / TOKENIZER_CONFIG).get("model_max_length")
    return SentenceModules(
        _read_pooling(root / Path(str(modules[1].get("path"))).name / CONFIG),
        "Normalize" in kinds,
        min(limit, positions) if isinstance(limit, int) and limit > 2 else positions,
        bool(settings.get("do_lower_case")),
    )


def _read_pooling(path: Path) -> Pooling:
    values = read_json(path)
    found = values.get("pooling_mode") if isinstance(values, dict) else None
    modes = [found] if isinstance(found, str) else list(found or ())
    if not modes and isinstance(values, dict):
        old = (name for name, value in values.items() if name.startswith("pooling_mode_") and value)
        modes = [_POOLING_MODES.get(name, name) for name in old] or ["mean"]
    for mode in _POOLING_MODES.values():
        if modes == [mode]:
            return mode
    shown = " and ".join(map(str, modes)).replace("pooling_mode_", "") or "nothing"
    raise MetaXLMError(f"{path}: pools by {shown}; a teacher pools by mean or cls")


def _read_settings(path: Path) -> dict[str, Any]:
    values = read_json(path) if path.is_file() else {}
    return values if isinstance(values, dict) else {}


def check_widths(teacher: str | Path, student: str | Path) -> None:
    """Raise an error if the vectors of teacher and student have different lengths."""
    widths = [read_encoder_config(find_folder(one)).hidden_size for one in (teacher, student)]
    if widths[0] != widths[1]:
        raise MetaXLMError(
            f"the teacher {teacher} has vectors of {widths[0]} numbers, the student {student} of "
            f"{widths[1]}; choose a teacher of the student's width"
        )


@dataclass(frozen=True)
class SentenceTeacher:
    """A frozen sentence encoder."""

    model: AnyEncoder
    modules: SentenceModules

    def digest(self) -> str:
        """Return a digest of all that decides the vectors."""
        content = hashlib.sha256()
        for name, tensor in sorted(self.model.encoder.state_dict().items()):
            content.update(name.encode())
            content.update(tensor.detach().cpu().float().contiguous().numpy().data)
        tokenizer = json.loads(self.model.tokenizer.backend_tokenizer.to_str())
        # Calls of the tokenizer change these two, and they do not decide the ids.
        tokenizer |= {"truncation": None, "padding": None}
        return digest_value([content.hexdigest(), tokenizer, str(self.modules)])

    def tokenize(self, texts: Sequence[str]) -> list[Ids]:
        """Return the token ids of texts, cut to the folder's longest length."""
        if self.modules.lower_case:
            texts = [text.lower() for text in texts]
        tokenizer = self.model.tokenizer
        return tokenize_texts(tokenizer, texts, find_frame(tokenizer), self.modules.max_length)[0]

    def embed_ids(self, ids: Sequence[Ids], device: torch.device) -> NDArray[np.float16]:
        """Return the vectors of tokenized texts, scaled to length 1, [A, D]."""
        encoder = self.model.encoder.to(device)
        shape = (len(ids), encoder.config.hidden_size)
        vectors_AD = torch.empty(shape, dtype=torch.float16, device=device)
        with evaluating(encoder):
            for batch in plan_work([len(row) for row in ids], device, _BATCH_TOKENS):
                inputs = collate_inputs([ids[k] for k in batch], encoder.config.pad_id, device)
                with ExitStack() as stack:
                    if device.type == "cuda":
                        stack.enter_context(own_bfloat16(device))
                        stack.enter_context(torch.autocast(device.type, dtype=torch.bfloat16))
                    hidden_BLD = encoder(*inputs)
                is_mean = self.modules.pooling == "mean"
                mask_BL = inputs.mask_BL
                pooled_BD = pool_mean(hidden_BLD, mask_BL) if is_mean else hidden_BLD[:, 0].float()
                rows_B = torch.tensor(batch, device=device)
                vectors_AD[rows_B] = F.normalize(pooled_BD).half()
        vectors: NDArray[np.float16] = vectors_AD.cpu().numpy()
        return vectors


def load_teacher(source: str | Path) -> SentenceTeacher:
    """Load a sentence-transformers folder or hub name; reject what is not a sentence encoder."""
    modules = read_modules(source)
    model = load_encoder(source)
    check_tokenizer(model.tokenizer, model.encoder.config)
    return SentenceTeacher(model, modules)


def compute_vectors(
    teacher: SentenceTeacher, texts: Sequence[str], work_dir: Path, world: DistributedContext
) -> Tensor:
    """Return the vectors of texts, [A, D], float16; read stored shards, store others (collective).

    Each process computes some of the shards.
    """
    digest = hashlib.sha256(teacher.digest().encode())
    for text in texts:
        digest.update(f"{len(text)}:{text}".encode("utf-8", "surrogatepass"))
    folder = work_dir / VECTORS
    starts = range(0, len(texts), SHARD_ANCHORS)
    name = digest.hexdigest()[:16]
    paths = {first: folder / f"{name}-{first:09d}.npy" for first in starts}
    missing = [first for first in starts if not paths[first].is_file()]
    parts = {k: texts[k : k + SHARD_ANCHORS] for k in missing[world.rank :: world.size]}
    if parts:
        total = sum(map(len, parts.values()))
        with track("teacher's vectors", total, "sentences") as advance:
            for first, vectors in _embed_parts(teacher, parts, world.device):
                with atomic_file(paths[first]) as temporary, temporary.open("wb") as file:
                    np.save(file, vectors)
                advance(len(vectors))
    teacher.model.encoder.to("cpu")
    world.broadcast(None)  # wait for the other processes
    return torch.from_numpy(np.concatenate(list(_read_shards(paths.values()))))


def _embed_parts(
    teacher: SentenceTeacher, parts: Mapping[int, Sequence[str]], device: torch.device
) -> Iterator[tuple[int, NDArray[np.float16]]]:
    # A thread tokenizes the next part while this one is computed.
    with ThreadPoolExecutor(1) as pool:
        begun = ((first, pool.submit(teacher.tokenize, part)) for first, part in parts.items())
        for first, ids in run_ahead(begun):
            check_stop()
            yield first, teacher.embed_ids(ids.result(), device)


def _read_shards(paths: Iterable[Path]) -> Iterator[NDArray[np.float16]]:
    for path in paths:
        try:
            yield np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise MetaXLMError(f"{path}: damaged ({error}); remove it and run again") from error
