"""The teacher of a sentence encoder: a frozen sentence-transformers folder, and its vectors.

The vectors of all anchors are computed once before training, in shards that are stored in the work
folder: a resumed run reads them. Only directions matter to the loss, so vectors have length 1 and
are stored in float16. Shapes: A anchors, B texts of a batch, D hidden.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.files import atomic_file, digest_value
from metaxlm.finetune.encoding import check_tokenizer
from metaxlm.hub import MODULES
from metaxlm.model.any_encoder import AnyEncoder, load_encoder
from metaxlm.model.huggingface import read_encoder_config
from metaxlm.model.model_folder import find_folder
from metaxlm.model.sentence_modules import SentenceModules, read_sentence_modules
from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.probe.embedding import embed_stream
from metaxlm.probe.pool import LayerChoice
from metaxlm.progress import track
from metaxlm.stopping import check_stop

SHARD_ANCHORS = 32_768
_BATCH_TOKENS = 65_536
VECTORS = "teacher"  # folder of the stored vectors in the work folder
_USE = "use a folder such as all-MiniLM-L6-v2, or write one with `metaxlm export`"
TITLE = "teacher's vectors"


def read_teacher(source: str | Path) -> SentenceModules:
    """Read how a sentence-transformers folder pools; reject other folders."""
    modules = read_sentence_modules(find_folder(source))
    if modules is None:
        raise MetaXLMError(f"{source}: not a sentence encoder, it has no {MODULES}; {_USE}")
    if modules.layers:
        raise MetaXLMError(f"{source}: has a Dense module, which a student has not; {_USE}")
    return modules


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

    @property
    def max_length(self) -> int:
        """The largest number of tokens of a text; longer ones are cut."""
        positions = self.model.encoder.config.max_positions
        return min(self.modules.max_length or positions, positions)

    def embed(
        self, texts: Sequence[str], device: torch.device, advance: Callable[[int], None]
    ) -> NDArray[np.float16]:
        """Return the vectors of texts, scaled to length 1, [A, D]."""
        chunks = embed_stream(
            self.model, texts, device, advance=advance, title=TITLE,
            layers=[LayerChoice((self.model.encoder.config.num_layers,))],
            modules=replace(self.modules, normalize=False), batch_tokens=_BATCH_TOKENS,
            precision="auto",
        )  # fmt: skip
        vectors_AD = torch.cat([F.normalize(part.vectors_YCD[0]).half() for part in chunks])
        found: NDArray[np.float16] = vectors_AD.numpy()
        return found


def load_teacher(source: str | Path) -> SentenceTeacher:
    """Load a sentence-transformers folder or hub name; reject what is not a sentence encoder."""
    modules = read_teacher(source)
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
        with track(TITLE, total, "sentences") as advance:
            for first, part in parts.items():
                check_stop()
                vectors = teacher.embed(part, world.device, advance)
                with atomic_file(paths[first]) as temporary, temporary.open("wb") as file:
                    np.save(file, vectors)
    teacher.model.encoder.to("cpu")
    world.broadcast(None)  # wait for the other processes
    return torch.from_numpy(np.concatenate(list(_read_shards(paths.values()))))


def _read_shards(paths: Iterable[Path]) -> Iterator[NDArray[np.float16]]:
    for path in paths:
        try:
            yield np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise MetaXLMError(f"{path}: damaged ({error}); remove it and run again") from error
