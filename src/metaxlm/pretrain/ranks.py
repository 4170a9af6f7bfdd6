"""The processes of a run outside of their collectives: who they are, and what they do next.

Comes in: the environment that torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR ...), and a timeout.
Goes out: orders of the main process, for which the others wait as long as it takes, and an end that
all share. Everything travels through torch's key-value store, because a collective has a timeout,
and one that a process never joins tells nobody why.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta

from torch.distributed import (  # type: ignore[attr-defined]
    PrefixStore,
    Store,
    TCPStore,
)

from metaxlm.errors import Interrupted, MetaXLMError, UnmetError
from metaxlm.pretrain.rank_watch import BEAT, END, FAILED, LEFT, VERDICT, Identity, RankWatch

_WHO, _ORDER, _STOP = "who", "order", "stop"
_POLL_S = 0.1
# The watch notices first when the store does not answer, and names who keeps it.
_GRACE_S = 60


@dataclass(frozen=True)
class Place:
    """Where this process stands among those that were started together."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    port: int
    attempt: int
    """How often torchrun has started all of them again."""
    launcher_keeps_store: bool


def find_place() -> Place | None:
    """Read the environment of torchrun; None means that this process is alone."""
    values = os.environ
    if int(values.get("WORLD_SIZE", "1")) == 1:
        return None
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in values]
    if missing:
        raise MetaXLMError(
            f"WORLD_SIZE is {values['WORLD_SIZE']}, but {', '.join(missing)} is not set; start "
            "with torchrun, or unset WORLD_SIZE"
        )
    return Place(
        rank=int(values["RANK"]),
        size=int(values["WORLD_SIZE"]),
        local_rank=int(values.get("LOCAL_RANK", values["RANK"])),
        local_size=int(values.get("LOCAL_WORLD_SIZE", values["WORLD_SIZE"])),
        host=values["MASTER_ADDR"],
        port=int(values["MASTER_PORT"]),
        attempt=int(values.get("TORCHELASTIC_RESTART_COUNT", "0")),
        launcher_keeps_store=values.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


class Ranks:
    """The other processes; the one with rank 0 leads."""

    def __init__(self, place: Place, timeout_s: float) -> None:
        """Wait until all processes are there."""
        self._place, self._timeout_s = place, timeout_s
        self._orders = 0
        self.stop_requested: Callable[[], bool] = lambda: False
        """Whether this process was asked to stop while it waited for orders."""
        keeps = place.rank == 0 and not place.launcher_keeps_store
        self._store = self._connect("run", keeps)
        who = self._meet()
        launcher = f"torchrun ({place.host}:{place.port})" if place.launcher_keeps_store else None
        self._watch = RankWatch(self._connect("run"), who, place.rank, timeout_s, launcher)

    def group_store(self) -> Store:
        """Return a store for torch's process group."""
        return self._connect("group")

    def _connect(self, purpose: str, keeps: bool = False) -> Store:
        """Open a connection of its own: one that waits must not hold up the others."""
        place, limit = self._place, timedelta(seconds=self._timeout_s + _GRACE_S)
        try:
            store = TCPStore(
                place.host,
                place.port,
                is_master=keeps,
                timeout=limit,
                wait_for_workers=False,
                multi_tenant=True,
            )
        except RuntimeError as error:
            raise UnmetError(
                f"rank {place.rank}: cannot meet rank 0 at {place.host}:{place.port} within "
                f"{self._timeout_s:.0f} s; check that it runs, and MASTER_ADDR and MASTER_PORT"
            ) from error
        return PrefixStore(f"metaxlm/{place.attempt}/{purpose}", store)

    def _meet(self) -> list[Identity]:
        rank, size = self._place.rank, self._place.size
        if rank == 0:
            for key in (VERDICT, END, _STOP):
                self._store.set(key, "")
        self._store.set(f"{FAILED}/{rank}", "")
        self._store.set(f"{LEFT}/{rank}", "")
        self._store.set(f"{BEAT}/{rank}", "0")
        self._store.set(f"{_WHO}/{rank}", json.dumps(asdict(Identity.own(rank))))
        who = []
        deadline = time.monotonic() + self._timeout_s
        for other in range(size):
            left = max(0.1, deadline - time.monotonic())
            try:
                self._store.wait([f"{_WHO}/{other}"], timedelta(seconds=left))
            except RuntimeError as error:
                raise UnmetError(
                    f"rank {rank}: rank {other} of {size} did not start within "
                    f"{self._timeout_s:.0f} s"
                ) from error
            who.append(Identity(**json.loads(self._store.get(f"{_WHO}/{other}"))))
        return who

    def order(self, what: str) -> None:
        """Tell all other processes what to do next."""
        self._store.set(f"{_ORDER}/{self._orders}", what)
        self._orders += 1

    def next_order(self) -> str | None:
        """Wait for the main process's next order; None means that the run is over."""
        key, told = f"{_ORDER}/{self._orders}", False
        while not self._store.check([key]):
            if self._store.get(END):
                return None
            if self.stop_requested() and not told:
                self._store.set(_STOP, str(self._place.rank))
                told = True
            time.sleep(_POLL_S)
        self._orders += 1
        return self._store.get(key).decode()

    def check_stop(self) -> None:
        """Stop where a stop was asked of a process that only waits."""
        if rank := self._store.get(_STOP).decode():
            raise Interrupted(f"rank {rank} was asked to stop")

    def suspect(self) -> None:
        """After a failed collective: end here if another process is gone, else return."""
        self._watch.suspect()

    def leave(self, code: int, reason: str = "") -> int:
        """Take part no longer; return the exit code of the run.

        The main process's code is everybody's. A reason says that this process has failed.
        """
        limit_s = self._watch.grace_s + 4 * self._watch.interval_s
        if self._place.rank == 0:
            self._watch.stop()
            self._store.set(END, str(code))
            others = [f"{LEFT}/{rank}" for rank in range(1, self._place.size)]
            # The store ends with this process, so that it is the last to go.
            self._poll(lambda: all(self._store.multi_get(others)), limit_s)
            return code
        if reason:
            word = json.dumps({"code": code, "reason": reason})
            self._store.set(f"{FAILED}/{self._place.rank}", word)
        self._poll(lambda: bool(self._store.get(END)), 2 * limit_s)
        code = int(self._store.get(END) or code)
        self._watch.stop()
        self._store.set(f"{LEFT}/{self._place.rank}", "left")
        return code

    def _poll(self, condition: Callable[[], bool], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not condition() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
