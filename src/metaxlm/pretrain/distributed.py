"""One process, or many that train one model: what a process must know of the others.

Comes in: the environment that torchrun (or Slurm, or mpirun) sets. Goes out: a `World`, which the
training step and loop ask for sums, agreement and their pieces of a step; with one process all of
it does nothing. Gradients are averaged by torch's DDP, or sharded by its FSDP2. A checkpoint has
whole tensors under the same names for all of them, so that a run may continue with another number
of processes or another sharding.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from metaxlm.config import ExecutionRecipe
from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import MaskedLM
from metaxlm.pretrain.device import choose_device
from metaxlm.pretrain.optimizer import export_moments, import_moments
from metaxlm.pretrain.ranks import Ranks, find_place

# A process that hangs is found by `Ranks`; torch's own timeout only has to come after that.
_GRACE_S = 60

Value = TypeVar("Value")


class World:
    """The processes that train together, seen by one of them."""

    def __init__(
        self,
        rank: int,
        size: int,
        device: torch.device,
        ranks: Ranks | None = None,
        hosts: dist.ProcessGroup | None = None,
    ) -> None:
        self.rank = rank
        self.size = size
        self.device = device
        self.ranks = ranks
        """The other processes outside of training; None with one process."""
        self._hosts = hosts

    @classmethod
    def alone(cls, device: torch.device) -> World:
        """Return the world of a single process."""
        return cls(0, 1, device)

    @classmethod
    def join(cls, device_name: str, execution: ExecutionRecipe) -> World:
        """Meet the processes that were started together, if there are several."""
        place = find_place()
        if place is None:
            return cls.alone(choose_device(device_name))
        ranks = Ranks(place, execution.timeout_s)
        try:
            device = choose_device(device_name, place.local_rank, place.local_size)
            limit = timedelta(seconds=execution.timeout_s + _GRACE_S)
            hosts = None
            dist.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                store=ranks.group_store(),
                rank=place.rank,
                world_size=place.size,
                timeout=limit,
            )
            if device.type == "cuda":
                torch.cuda.set_device(device)
                # Agreement travels between hosts, so that no step waits for a GPU.
                hosts = dist.new_group(backend="gloo", timeout=limit)
            return cls(place.rank, place.size, device, ranks, hosts)
        except MetaXLMError as error:
            ranks.leave(2, str(error))
            raise

    def leave(self, code: int, reason: str = "") -> int:
        """Part from the others; return the exit code of the run (see `Ranks.leave`)."""
        if self.ranks is None:
            return code
        ended = self.ranks.leave(code, reason)
        if not reason:
            dist.destroy_process_group()
        return ended

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and speaks to the user."""
        return self.rank == 0

    def share(self, micro_batches: int, batch_size: int) -> tuple[range, int]:
        """Return the pieces of a step that this process computes, and how many there are in all."""
        count = max(micro_batches, self.size)
        if count % self.size:
            raise MetaXLMError(
                f"micro_batches is {micro_batches}, which {self.size} processes cannot share "
                f"evenly; use a multiple of {self.size}, or another number of processes"
            )
        if batch_size % count:
            raise MetaXLMError(
                f"batch_size {batch_size} does not split into {count} equal pieces "
                f"(micro_batches {micro_batches}, processes {self.size}); use a multiple of {count}"
            )
        mine = count // self.size
        return range(self.rank * mine, (self.rank + 1) * mine), count

    def sum(self, tensor: Tensor) -> Tensor:
        """Add a tensor over all processes, in place; with one process it is left alone."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def agree(self, flag: bool) -> bool:
        """Say whether any process says so; all must ask together."""
        if self.ranks is None:
            return flag
        votes = torch.tensor(int(flag or self.ranks.stop_requested()))
        dist.all_reduce(votes, dist.ReduceOp.MAX, group=self._hosts)
        return bool(votes)

    def broadcast(self, value: Value) -> Value:
        """Return the main process's value; all must ask together."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self._hosts)
        return values[0]

    def barrier(self) -> None:
        """Wait until all processes are here."""
        self.broadcast(None)

    def wrap(self, objective: nn.Module, sharding: str) -> nn.Module:
        """Return the objective as processes train it together; make the optimizer after this."""
        objective.to(self.device)
        if self.size == 1:
            return objective
        if sharding == "fsdp":
            from metaxlm.pretrain.sharding import shard

            shard(objective)
            return objective
        devices = [self.device] if self.device.type == "cuda" else None
        parallel = DistributedDataParallel(objective, devices, gradient_as_bucket_view=True)
        _settle_buckets(parallel)
        return parallel

    def no_sync(self, objective: nn.Module, skip: bool) -> AbstractContextManager[object]:
        """Keep gradients to this process while `skip`: another piece of the step follows."""
        if isinstance(objective, DistributedDataParallel):
            return objective.no_sync() if skip else nullcontext()
        if self.size > 1:
            from metaxlm.pretrain.sharding import add_gradients

            add_gradients(objective, now=not skip)
        return nullcontext()

    def total_norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the norm of all gradients together, a scalar on the device."""
        if self.size == 1:
            return torch.nn.utils.get_total_norm(gradients)
        from metaxlm.pretrain.sharding import is_sharded, take_part

        norm = torch.nn.utils.get_total_norm([take_part(gradient) for gradient in gradients])
        if not any(map(is_sharded, gradients)):
            return norm
        return self.sum(norm.double().square()).sqrt().float()

    def full_state(
        self, model: nn.Module, optimizer: torch.optim.AdamW | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the model's and the optimizer's whole tensors by name; all must ask together.

        Only the main process gets them. Tensors that are not sharded are the live ones, not copies.
        """
        moments = {} if optimizer is None else export_moments(optimizer, model)
        tensors = model.state_dict()
        return self._gather(tensors), self._gather(moments)

    def _gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if self.size == 1:
            return dict(tensors)
        from metaxlm.pretrain.sharding import gather, is_sharded

        whole = {}
        for name, tensor in tensors.items():
            # One at a time: a model that is sharded may not fit a single device.
            value = gather(tensor)
            if self.is_main:
                whole[name] = value.cpu() if is_sharded(tensor) else value
        return whole

    def load_state(
        self,
        model: nn.Module,
        optimizer: torch.optim.AdamW,
        model_tensors: Mapping[str, Tensor],
        moments: Mapping[str, Tensor],
        step: int,
    ) -> None:
        """Put whole tensors back; the main process has them, the others give empty mappings."""
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                tensor.copy_(self._spread(model_tensors, name, tensor))
        names = {
            f"{moment}.{name}": parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
            for moment in ("exp_avg", "exp_avg_sq")
        }
        spread = {name: self._spread(moments, name, like) for name, like in names.items()}
        import_moments(optimizer, model, spread, step)

    def _spread(self, tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
        """Return the main process's tensor everywhere, or this process's shard of it."""
        if self.size == 1:
            return tensors[name]
        from metaxlm.pretrain.sharding import is_sharded, scatter

        if self.is_main:
            whole = tensors[name].to(self.device)
        else:
            whole = torch.empty(like.shape, dtype=like.dtype, device=self.device)
        if is_sharded(like):
            return scatter(whole, like)
        dist.broadcast(whole, src=0)
        return whole

    def whole(self, model: MaskedLM) -> MaskedLM:
        """Return a model that can be saved: the given one, or a copy that joins its shards.

        All must ask together; only the main process gets a copy.
        """
        if self.size == 1:
            return model
        from metaxlm.pretrain.sharding import is_sharded

        if not any(map(is_sharded, model.parameters())):
            return model
        tensors, _ = self.full_state(model)
        if not self.is_main:
            return model
        with torch.device("meta"):
            copy = MaskedLM(model.config)
        copy.load_state_dict(tensors, assign=True)
        return copy


def _settle_buckets(parallel: DistributedDataParallel) -> None:
    """Let DDP lay out its buckets for good, before the first step.

    It does so after its first backward, and the layout decides in which order three or more
    processes add their gradients: without this a continued run would round differently from an
    undisturbed one. The rehearsal's gradients come last layer first, as in training.
    """
    objective = parallel.module

    def rehearse() -> Tensor:
        total = torch.zeros((), device=next(objective.parameters()).device)
        for parameter in objective.parameters():
            if parameter.requires_grad:
                total = total + parameter.sum()
        return total

    vars(objective)["forward"] = rehearse
    torch.autograd.backward(parallel())
    del vars(objective)["forward"]
    parallel.zero_grad(set_to_none=True)
