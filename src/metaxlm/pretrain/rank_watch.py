"""A thread in each process of a run that notices when another one is gone, and then ends its own.

Comes in: a key-value store that all processes reach. Every process leaves a growing number there; a
number that stands still for the timeout, a process of this machine that does not exist any more, or
a failure that a process reported, ends all others with one line that names the culprit. The process
ends from this thread because its main one may wait in a collective that nobody will complete.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from torch.distributed import Store  # type: ignore[attr-defined]

from metaxlm.stopping import CONTINUES, EXIT_INTERRUPTED

BEAT, FAILED, LEFT = "beat", "failed", "left"
"""Keys of the store that carry a rank: a growing number, why it failed, that it needs no more."""
VERDICT, END = "verdict", "end"
"""Keys that all share: why the run ends, and the main process's exit code."""
_SHORTEST_S, _LONGEST_S = 0.1, 2.0
_SUSPICION_S = 3.0


@dataclass(frozen=True)
class Identity:
    """Which process has a rank."""

    rank: int
    host: str
    pid: int
    namespace: str
    """Tells whether process ids mean the same here and there (containers)."""

    @classmethod
    def own(cls, rank: int) -> Identity:
        """Return this process's identity."""
        try:
            namespace = str(Path("/proc/self/ns/pid").readlink())
        except OSError:
            namespace = ""
        return cls(rank, socket.gethostname(), os.getpid(), namespace)

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, pid {self.pid})"

    def is_near(self, other: Identity) -> bool:
        """Say whether both run on one machine and can see each other."""
        return (self.host, self.namespace) == (other.host, other.namespace)

    def is_alive(self) -> bool:
        """Say whether the process exists; only meaningful near it."""
        try:
            os.kill(self.pid, 0)
            state = Path(f"/proc/{self.pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        except ProcessLookupError:
            return False
        except OSError:  # somebody else's process, or a system without /proc
            return True
        return state not in "ZX"


@dataclass(frozen=True)
class Verdict:
    """Why the run ends."""

    line: str
    """For the user; empty when somebody else tells."""
    code: int
    culprits: tuple[int, ...] = ()


class RankWatch:
    """Watches all other processes until it is stopped."""

    def __init__(
        self, store: Store, who: Sequence[Identity], rank: int, timeout_s: float, host: str | None
    ) -> None:
        """`host` names what keeps the store; None says that the main process does."""
        self.interval_s = min(max(timeout_s / 20, _SHORTEST_S), _LONGEST_S)
        self.grace_s = min(10.0, timeout_s / 2)
        """How long a process has to end by itself after another has failed."""
        self._store, self._who, self._rank, self._host = store, who, rank, host
        self._others = [identity for identity in who if identity.rank != rank]
        self._timeout_s = timeout_s
        self._beats = 0
        self._latest: dict[int, bytes] = {}
        self._silent_s = dict.fromkeys(range(len(who)), 0.0)
        self._since: dict[str, float] = {}
        self._looked = time.monotonic()
        self._suspicious, self._has_store = False, True
        self._ended: int | None = None
        self._stopped, self._awake = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target, name in ((self._run, "rank watch"), (self._guard, "store watch"))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()
        self._awake.set()
        for thread in self._threads:
            thread.join(2 * self.interval_s)

    def suspect(self) -> None:
        """Give the watch time to find who made a collective fail; returns if it was nobody."""
        self._suspicious = True
        self._awake.set()
        time.sleep(_SUSPICION_S + 2 * self.interval_s)

    def _run(self) -> None:
        while not self._stopped.is_set():
            verdict = self._look()
            if verdict is not None and not self._stopped.is_set():
                self._end(verdict, tell=self._has_store)
            self._awake.wait(self.interval_s)
            self._awake.clear()

    def _guard(self) -> None:
        """Notice when the store itself does not answer: then the watch waits for it forever."""
        latest, silent_s = 0, 0.0
        while not self._stopped.wait(self.interval_s):
            silent_s = silent_s + self.interval_s if self._beats == latest else 0.0
            latest = self._beats
            if silent_s > self._timeout_s:
                what = f"has not answered for {self._timeout_s:.0f} s"
                self._end(self._blame_store(what), tell=False)

    def _look(self) -> Verdict | None:
        near = self._who[self._rank].is_near
        dead = {other.rank for other in self._others if near(other) and not other.is_alive()}
        if 0 in dead and self._host is None:
            self._has_store = False
        values = self._exchange() if self._has_store else None
        if self._ended is not None:
            # All are leaving; this process has a little time to do it by itself.
            return Verdict("", self._ended) if self._is_overdue(END) else None
        if values is None:
            return self._blame_store("died")
        if values[VERDICT]:
            found = json.loads(values[VERDICT])
            return Verdict(found["line"], found["code"], tuple(found["culprits"]))
        now = time.monotonic()
        # When this process itself was stopped for a while, it has not listened for that long.
        passed_s = min(now - self._looked, 2 * self.interval_s)
        self._looked = now
        return self._judge(dead, values, passed_s)

    def _exchange(self) -> dict[str, bytes] | None:
        """Show that this process lives, and read what the others say; None without a store."""
        keys = [f"{key}/{other.rank}" for other in self._others for key in (BEAT, FAILED)]
        keys += [VERDICT, END]
        self._beats += 1
        try:
            self._store.set(f"{BEAT}/{self._rank}", str(self._beats))
            values = dict(zip(keys, self._store.multi_get(keys), strict=True))
        except RuntimeError:
            self._has_store = False
            return None
        if values[END]:
            self._ended = int(values[END])
        return values

    def _judge(
        self, dead: set[int], values: Mapping[str, bytes], passed_s: float
    ) -> Verdict | None:
        """Find out who is gone from what all processes left in the store."""
        lost = {}
        patience_s = _SUSPICION_S if self._suspicious else self._timeout_s
        for other in self._others:
            rank, beat = other.rank, values[f"{BEAT}/{other.rank}"]
            is_silent = self._latest.get(rank) == beat
            self._latest[rank] = beat
            self._silent_s[rank] = self._silent_s[rank] + passed_s if is_silent else 0.0
            if failure := values[f"{FAILED}/{rank}"]:
                if self._is_overdue(f"{FAILED}/{rank}"):
                    found = json.loads(failure)
                    return Verdict(f"{other}: {found['reason']}", found["code"], (rank,))
            elif rank in dead:
                lost[rank] = f"{other} died"
            elif self._silent_s[rank] > patience_s:
                lost[rank] = f"{other} has not answered for {patience_s:.0f} s"
        if not lost:
            return None
        return Verdict(", ".join(lost.values()) + CONTINUES, EXIT_INTERRUPTED, tuple(lost))

    def _blame_store(self, what: str) -> Verdict:
        """Without its store nobody can go on."""
        if self._host is not None:
            return Verdict(f"{self._host} {what}{CONTINUES}", EXIT_INTERRUPTED)
        return Verdict(f"{self._who[0]} {what}{CONTINUES}", EXIT_INTERRUPTED, (0,))

    def _is_overdue(self, what: str) -> bool:
        """Say whether something was first seen so long ago that its grace is over."""
        first = self._since.setdefault(what, time.monotonic())
        return time.monotonic() - first >= self.grace_s

    def _end(self, verdict: Verdict, *, tell: bool) -> None:
        """End this process, and the others through the store."""
        if tell:
            with suppress(RuntimeError):
                self._store.set(VERDICT, json.dumps(asdict(verdict)))
                self._store.set(f"{LEFT}/{self._rank}", "left")
        speaker = min(i.rank for i in self._who if i.rank not in verdict.culprits)
        if verdict.line and self._rank == speaker:
            sys.stderr.write(f"metaxlm: {verdict.line}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        if tell and self._rank == 0 and self._host is None:
            time.sleep(3 * self.interval_s)  # the others read the verdict here
        os._exit(verdict.code)
