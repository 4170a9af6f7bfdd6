"""Train on one device, or in several processes started by torchrun.

With one process, all of `DistributedContext` is a no-op. Gradients are averaged by DDP or sharded
by FSDP2. Checkpoints hold whole tensors under the same names in all cases, so a run can resume with
another number of processes or another sharding.

Rank 0 decides what to do next, and the other processes wait for its orders without a time limit
(preparing text can take hours). Orders and stop requests go through torch's key-value store.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from functools import partial
from typing import Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from metaxlm.errors import Interrupted, MetaXLMError, UnmetError
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.optimizer import MOMENTS
from metaxlm.recipe import ExecutionRecipe

_POLL_S = 0.1
_GRACE_S = 10.0  # for the other processes to read the end of the run
# Keys of the store: a rank to stop, rank 0's exit code, processes that left, an error.
_STOP, _END, _LEFT, _FAILURE = "stop", "end", "left", "failure"

Value = TypeVar("Value")


class DistributedContext:
    """The processes that train together, as seen by one of them."""

    def __init__(
        self,
        rank: int,
        size: int,
        device: torch.device,
        store: Store | None = None,
        hosts: dist.ProcessGroup | None = None,
    ) -> None:
        self.rank, self.size, self.device = rank, size, device
        self._store, self._hosts = store, hosts
        self._num_orders = 0

    @classmethod
    def alone(cls, device: torch.device) -> Self:
        """Return the context of a single process."""
        return cls(0, 1, device)

    @classmethod
    def join(cls, device_name: str, execution: ExecutionRecipe) -> Self:
        """Connect to the processes that were started together, if there are several."""
        (rank, size), (local_rank, local_size) = _read_environment(), local_place()
        try:
            device = choose_device(device_name, local_rank, local_size)
        except MetaXLMError as error:
            if local_rank == 0 < rank:  # rank 0 may have found its device on another machine
                raise UnmetError(f"rank {rank}: {error}") from error
            raise
        if size == 1:
            return cls.alone(device)
        if device.type == "mps":  # processes cannot exchange its tensors
            if device_name != "auto":
                raise MetaXLMError(f"--device {device_name}: takes one process; use cpu")
            device = torch.device("cpu")
        limit = timedelta(seconds=execution.timeout_s)
        try:
            store, _, _ = next(rendezvous("env://", timeout=limit))
            backend = "nccl" if device.type == "cuda" else "gloo"
            group = PrefixStore("group", store)
            dist.init_process_group(backend, store=group, rank=rank, world_size=size, timeout=limit)
            hosts = None
            if device.type == "cuda":
                torch.cuda.set_device(device)
                # Agreement uses the hosts, so that no step waits for a GPU.
                hosts = dist.new_group(backend="gloo", timeout=limit)
        except RuntimeError as error:
            raise UnmetError(
                f"rank {rank}: the {size} processes did not connect at "
                f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} within "
                f"{execution.timeout_s} s; check that all run, and MASTER_ADDR and MASTER_PORT"
            ) from error
        return cls(rank, size, device, PrefixStore("orders", store), hosts)

    @property
    def is_main(self) -> bool:
        """Whether this process has rank 0, which writes files and messages."""
        return self.rank == 0

    def send_order(self, order: str) -> None:
        """Send the next task to all other processes (rank 0 only)."""
        if self._store is not None:
            self._store.set(f"order/{self._num_orders}", order)
            self._num_orders += 1

    def next_order(self, stop_requested: Callable[[], bool]) -> str | None:
        """Wait for rank 0's next order; None means that the run has ended."""
        assert self._store is not None
        key, passed_on = f"order/{self._num_orders}", False
        while not self._store.check([key]):
            if self._store.check([_END]):
                return None
            if stop_requested() and not passed_on:
                self._store.set(_STOP, str(self.rank))
                passed_on = True
            time.sleep(_POLL_S)
        self._num_orders += 1
        return str(self._store.get(key).decode())

    def check_stop(self) -> None:
        """Raise `Interrupted` if a waiting process received a stop request."""
        if self._store is not None and self._store.check([_STOP]):
            raise Interrupted(f"rank {self._store.get(_STOP).decode()} received a stop request")

    def find_failure(self) -> str | None:
        """Return the error that another process reported, if any."""
        with suppress(RuntimeError):  # the store may be gone
            if self._store is not None and self._store.check([_FAILURE]):
                return str(self._store.get(_FAILURE).decode())
        return None

    def leave(self, code: int, failure: str = "") -> int | None:
        """Leave the other processes; return rank 0's exit code, or None if it does not answer."""
        store = self._store
        if store is None:
            return code
        others = self.size - 1
        try:
            if self.is_main:
                store.set(_END, str(code))
                _poll(lambda: int(store.add(_LEFT, 0)) == others)
            elif failure:
                store.set(_FAILURE, f"rank {self.rank}: {failure}")
                return code  # rank 0 reports the failure when this process ends
            else:
                if not _poll(lambda: bool(store.check([_END]))):
                    return None
                code = int(store.get(_END))
                store.add(_LEFT, 1)
        except RuntimeError:  # the store is gone
            return code if self.is_main else None
        if code == 0:
            dist.destroy_process_group()
        return code

    def share(self, micro_batches: int, batch_size: int) -> tuple[range, int]:
        """Return the micro-batches of a step for this process, and their total number."""
        count = max(micro_batches, self.size)
        if count % self.size:
            raise MetaXLMError(
                f"micro_batches is {micro_batches}, which {self.size} processes cannot share "
                f"evenly; use a multiple of {self.size}, or another number of processes"
            )
        if batch_size % count:
            raise MetaXLMError(
                f"batch_size {batch_size} does not split into {count} equal micro-batches "
                f"(micro_batches {micro_batches}, processes {self.size}); use a multiple of {count}"
            )
        mine = count // self.size
        return range(self.rank * mine, (self.rank + 1) * mine), count

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def agree(self, flag: bool) -> bool:
        """Return whether the flag is set in any process (collective)."""
        if self.size == 1:
            return flag
        votes = torch.tensor(int(flag))
        dist.all_reduce(votes, dist.ReduceOp.MAX, group=self._hosts)
        return bool(votes)

    def join_rows(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes in order; only own rows have a gradient (collective)."""
        if self.size == 1:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.size)]
        dist.all_gather(parts, rows.detach().contiguous())
        parts[self.rank] = rows
        return torch.cat(parts)

    def broadcast(self, value: Value) -> Value:
        """Return rank 0's value in every process (collective)."""
        if self.size == 1:
            return value
        dist.broadcast_object_list(values := [value], src=0, group=self._hosts)
        return values[0]

    def wrap(self, objective: nn.Module, sharding: str) -> nn.Module:
        """Wrap a module in DDP or FSDP; create the optimizer after this."""
        objective.to(self.device)
        if self.size == 1:
            return objective
        if sharding == "fsdp":
            _shard(objective)
            return objective
        devices = [self.device] if self.device.type == "cuda" else None
        parallel = DistributedDataParallel(objective, devices, gradient_as_bucket_view=True)
        _settle_buckets(parallel)
        return parallel

    def no_sync(self, objective: nn.Module, skip: bool) -> AbstractContextManager[object]:
        """Do not synchronize gradients while `skip`: another micro-batch of the step follows."""
        if isinstance(objective, DistributedDataParallel):
            return objective.no_sync() if skip else nullcontext()
        if self.size > 1:
            from torch.distributed.fsdp import FSDPModule

            assert isinstance(objective, FSDPModule)
            objective.set_requires_gradient_sync(not skip)
        return nullcontext()

    def total_norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the norm of all gradients, a scalar on the device."""
        if self.size == 1 or not any(map(_is_sharded, gradients)):
            return torch.nn.utils.get_total_norm(gradients)
        local = [gradient.to_local() for gradient in gradients]  # type: ignore[attr-defined]
        return self.sum(torch.nn.utils.get_total_norm(local).double().square()).sqrt().float()

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return whole tensors in rank 0, not copied unless they are sharded (collective)."""
        if self.size == 1:
            return dict(tensors)
        whole = {}
        for name, tensor in tensors.items():
            if _is_sharded(tensor):
                # One at a time: a sharded model may not fit on a single device.
                tensor = tensor.full_tensor()  # type: ignore[attr-defined]
                tensor = tensor.cpu() if self.is_main else tensor
            if self.is_main:
                whole[name] = tensor
        return whole

    def load_state(
        self,
        model: nn.Module,
        optimizer: torch.optim.AdamW,
        model_tensors: Mapping[str, Tensor],
        moments: Mapping[str, Tensor],
        step: int,
    ) -> None:
        """Load whole tensors of rank 0; the other processes pass empty mappings (collective)."""
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                tensor.copy_(self._scatter(model_tensors, name, tensor))
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                found = {key: self._scatter(moments, f"{key}.{name}", parameter) for key in MOMENTS}
                state = {key: moment.to(parameter.device) for key, moment in found.items()}
                state["step"] = torch.tensor(float(step), device=parameter.device)
                optimizer.state[parameter] = state

    def _scatter(self, tensors: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
        if self.size == 1:
            return tensors[name]
        empty = partial(torch.empty, like.shape, dtype=like.dtype, device=self.device)
        whole = tensors[name].to(self.device) if self.is_main else empty()
        if _is_sharded(like):
            from torch.distributed.tensor import DTensor, distribute_tensor

            assert isinstance(like, DTensor)
            return distribute_tensor(whole, like.device_mesh, like.placements)
        dist.broadcast(whole, src=0)
        return whole

    def whole(self, model: MaskedLM) -> MaskedLM:
        """Return a model that can be saved: in rank 0, a copy that joins shards (collective)."""
        if self.size == 1 or not any(map(_is_sharded, model.parameters())):
            return model
        tensors = self.gather(model.state_dict())
        return MaskedLM.from_state(model.config, tensors) if self.is_main else model


def local_place() -> tuple[int, int]:
    """Return this process's number on its machine, and the number of processes there."""
    rank, size = _read_environment()
    return int(os.environ.get("LOCAL_RANK", rank)), int(os.environ.get("LOCAL_WORLD_SIZE", size))


def _read_environment() -> tuple[int, int]:
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return 0, 1
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise MetaXLMError(
            f"WORLD_SIZE is {size}, but {', '.join(missing)} is not set; start with torchrun, or "
            "unset WORLD_SIZE"
        )
    return int(os.environ["RANK"]), size


def is_collective_error(error: BaseException | None) -> bool:
    """Return whether an error comes from a collective operation that another process broke."""
    while error is not None:
        is_gloo = isinstance(error, RuntimeError) and "gloo" in str(error)
        if is_gloo or isinstance(error, dist.DistError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _poll(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _GRACE_S
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return holds


def _settle_buckets(parallel: DistributedDataParallel) -> None:
    """Make DDP assign its gradient buckets before the first step.

    DDP rebuilds its buckets after the first backward pass, and they decide the order in which three
    or more processes sum gradients: without this, a resumed run would round differently.
    """
    objective = parallel.module
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    start = torch.zeros((), device=trained[0].device)
    vars(objective)["forward"] = lambda: sum((p.sum() for p in trained), start)
    torch.autograd.backward(parallel())
    del vars(objective)["forward"]
    parallel.zero_grad(set_to_none=True)


# FSDP is imported only where it is used: the import takes half a second.
def _shard(objective: nn.Module) -> None:
    """Shard a model over all processes, layer by layer; this replaces its parameters."""
    from torch.distributed.fsdp import FSDPModule, fully_shard

    for module in list(objective.modules()):
        if isinstance(module, MaskedLM):
            for layer in module.encoder.layers:
                fully_shard(layer)
    fully_shard(objective)

    def reshard(module: nn.Module, *_: object) -> None:  # without a backward pass
        if isinstance(module, FSDPModule) and not torch.is_grad_enabled():
            module.reshard()

    objective.register_forward_hook(reshard)


def _is_sharded(tensor: Tensor) -> bool:
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)


def choose_device(name: str, local_rank: int = 0, local_size: int = 1) -> torch.device:
    """Return the device for `auto`, `cpu`, `mps`, `cuda` or `cuda:N`; local processes share none.

    `auto` takes a CUDA device, else Apple's GPU for a single process, else the CPU.
    """
    if name == "auto":
        has_mps = local_size == 1 and torch.backends.mps.is_available()
        name = "cuda" if torch.cuda.is_available() else "mps" if has_mps else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        what = f"--device {name}: not a device; use auto, cpu, mps, cuda or cuda:N"
        raise MetaXLMError(what) from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise MetaXLMError(f"--device {name}: only cpu, mps and cuda are supported")
    if device.type == "cpu":
        return device
    if device.type == "mps":
        if not torch.backends.mps.is_available():
            raise MetaXLMError(f"--device {name}: found no GPU of Apple; use cpu or auto")
        if local_size > 1:
            raise MetaXLMError(f"--device {name}: takes one process, not {local_size}; use cpu")
        return torch.device("mps")
    found = torch.cuda.device_count()
    if local_size == 1:
        if (device.index or 0) >= found:
            raise MetaXLMError(f"--device {name}: found {found} CUDA devices; use cpu or auto")
        return device
    if device.index is not None:
        raise MetaXLMError(
            f"--device {name}: one GPU for {local_size} processes; use cuda, and each takes its own"
        )
    if local_size > found:
        raise MetaXLMError(
            f"--device {name}: {local_size} processes on this machine, but {found} CUDA devices; "
            f"start {found or 'none'} of them here, or use --device cpu"
        )
    return torch.device("cuda", local_rank)


def describe_device(device: torch.device) -> str:
    """Return the name of a device for messages and records."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return "mps, Apple's GPU"
    threads = torch.get_num_threads()
    return f"cpu, {threads} thread{'s' if threads > 1 else ''}"


def exact_device(device: torch.device) -> torch.device:
    """Return where to compute in float64 and sort int64: the CPU in place of Apple's GPU."""
    return torch.device("cpu") if device.type == "mps" else device


def widest_float(device: torch.device) -> torch.dtype:
    """Return the type of sums on a device: float64, or float32 on Apple's GPU, which lacks it."""
    return torch.float32 if device.type == "mps" else torch.float64


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Return the type of matrix products in training for `precision` of a recipe.

    `auto` is bfloat16 from compute capability 8.0 on, float16 on older GPUs, else float32.
    """
    if precision == "auto":
        if device.type != "cuda":
            return torch.float32
        is_new = torch.cuda.get_device_capability(device) >= (8, 0)
        return torch.bfloat16 if is_new else torch.float16
    if precision != "float32" and device.type == "mps":
        raise MetaXLMError(f"precision: {precision} is not supported on mps; use float32 or auto")
    dtype: torch.dtype = getattr(torch, precision)
    return dtype


@contextmanager
def own_products(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Use torch's own products in bfloat16 or float16 on a CPU that has no instructions for them.

    oneDNN fails there, and is then disabled for the process, which changes later results.
    """
    is_supported = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    if device.type != "cpu" or dtype not in is_supported or is_supported[dtype]():
        yield
        return
    # Not flags(): it also sets options of Intel GPUs, and warns about them.
    switch = partial(torch.backends.mkldnn.set_flags, _fp32_precision=None)
    before, *_ = switch(False)
    try:
        yield
    finally:
        switch(before)
