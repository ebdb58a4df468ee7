"""A group of ranks: what it can do, whether its ranks call alike, and errors in words when they do not."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from lapidist.distributed.exchange_times import NETWORK, NVLINK, Reach
from lapidist.errors import ArgumentError, DeviceError, LapidistError, LaunchError, ShapeError

BOOT = Path("/proc/sys/kernel/random/boot_id")
CALL = "call"  # the name of what ranks say about a call
USUAL_LIMIT = timedelta(minutes=30)


class Members:
    """A group's size, this process's rank in it, and what its ranks agreed on. It does not hold the group."""

    def __init__(self, group: Any) -> None:
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.calls = 0
        self.descriptions: set[Any] = set()
        self.ways: dict[Any, Any] = {}  # of calls on which all agreed
        self.reach: Reach | None = None
        self.peer_memory: Any = None


_members: WeakKeyDictionary[Any, Members] = WeakKeyDictionary()


def group_of(group: Any) -> Any:
    """torch's process group: `group` itself, a mesh's, or for None that of all ranks."""
    if not dist.is_available() or not dist.is_initialized():
        raise DeviceError(
            "group: torch.distributed must have a process group; it has none. Call"
            " torch.distributed.init_process_group first"
        )
    if group is None:
        return dist.group.WORLD
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            raise ArgumentError(
                f'group: a mesh must have one dimension; got {group.ndim}. Pass mesh["model"], say'
            )
        return group.get_group()
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ArgumentError(
            f"group: must have this rank as a member; got a group without rank {dist.get_rank()}. Call on its"
            " members alone"
        )
    if not isinstance(group, dist.ProcessGroup):
        raise ArgumentError(
            f"group: must be a process group or a mesh of one dimension; got {type(group).__name__}. Leave it"
            " out for all ranks"
        )
    return group


def members_of(group: Any) -> Members:
    members = _members.get(group)
    if members is None:
        members = _members[group] = Members(group)
    return members


def place_of(group: Any) -> Any:
    """The device that a group's collectives take tensors of: of a group for both, the GPU."""
    on_cards = torch.cuda.is_available() and "nccl" in str(dist.get_backend_config(group))
    return torch.device("cuda", torch.cuda.current_device()) if on_cards else torch.device("cpu")


def limit_of(group: Any) -> timedelta:
    """How long the group's ranks wait for each other."""
    try:
        return group._get_backend(place_of(group)).options._timeout
    except (AttributeError, RuntimeError):  # backends of other vendors
        return USUAL_LIMIT


# ---- errors ----


@contextmanager
def waiting(group: Any, call: str) -> Iterator[None]:
    """Errors of collectives in words: which rank waited in which call, and for how long at most."""
    try:
        yield
    except LapidistError:
        raise
    except RuntimeError as error:
        members = members_of(group)
        raise LaunchError(
            f"{call}: rank {members.rank} of {members.ranks} got no answer within the group's time limit"
            f" ({limit_of(group)}): another rank died, is late, or called otherwise"
            f" ({str(error).splitlines()[0]}{calls_of_others(group)}). Destroy the group and start its ranks"
            " again"
        ) from error


def calls_of_others(group: Any) -> str:
    """What other ranks said about this call: where it was new to them, they wait for this one's answer."""
    members, store = members_of(group), group.get_group_store()
    texts = []
    try:
        for rank in range(members.ranks):
            key = key_of(members, CALL, rank)
            if rank != members.rank and store.check([key]):
                texts.append(f"; rank {rank} called {pickle.loads(store.get(key))}")
    except RuntimeError:  # the store was the dead rank's
        return ""
    return "".join(texts)


def key_of(members: Members, value: str, rank: int) -> str:
    return f"lapidist/{members.calls}/{value}/{rank}"


def values_of_ranks(group: Any, name: str, value: Any, call: str) -> list[Any]:
    """A value of each rank, by the group's store. Tensors do not travel there, so a rank whose shapes differ
    cannot meet another one's collective with it.
    """
    members, store, limit = members_of(group), group.get_group_store(), limit_of(group)
    store.set(key_of(members, name, members.rank), pickle.dumps(value))
    keys = [key_of(members, name, rank) for rank in range(members.ranks)]
    with waiting(group, call):
        store.wait(keys, limit)
        values = [pickle.loads(store.get(key)) for key in keys]
        forget(store, keys, f"{keys[0]}/read", members.ranks)
    return values


def forget(store: Any, keys: list[str], count: str, ranks: int) -> None:
    """The last rank that has read them deletes them: torchrun's store outlives a group, and the next one of
    these processes has the same name and counts calls from the start.
    """
    if store.add(count, 1) == ranks:
        for key in (*keys, count):
            store.delete_key(key)


def require_alike(group: Any, call: str, description: str) -> None:
    """Refuse, on every rank, a call whose shapes and types differ between ranks. A description that all ranks
    had once is not exchanged again.
    """
    members = members_of(group)
    members.calls += 1
    if members.ranks == 1 or (call, description) in members.descriptions:
        return
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise LaunchError(
            f"{call}: the first call of a shape agrees with other ranks, which a graph cannot capture; got"
            f" {description}. Call it once before"
        )
    descriptions = values_of_ranks(group, CALL, f"{call}: {description}", call)
    if len(set(descriptions)) > 1:
        listed = "; ".join(f"{text} on rank {rank}" for rank, text in enumerate(descriptions))
        raise ShapeError(
            f"{call}: shapes and types must be the same on all ranks; got {listed}. Pad or cast operands so"
            " that they are"
        )
    members.descriptions.add((call, description))


# ---- what a group can do ----


def reach_of(group: Any) -> Reach:
    """The facts that plans need, the same on all ranks; the first call exchanges them."""
    group = group_of(group)
    members = members_of(group)
    if members.reach is None:
        if place_of(group).type == "cpu" or members.ranks == 1:
            members.reach = Reach(members.ranks, None, NETWORK, "the ranks are processes on the host")
        else:
            members.reach = reach_of_cards(group, members)
    return members.reach


def reach_of_cards(group: Any, members: Members) -> Reach:
    from lapidist.backends.gpu.driver import query_device

    ordinal = torch.cuda.current_device()
    name = str(torch.cuda.get_device_properties(ordinal).uuid)
    ranks = values_of_ranks(group, "facts", (host_name(), name, query_device(ordinal)), "plan")
    refusals = values_of_ranks(
        group, "peers", no_peers(ordinal, [(host, card) for host, card, _ in ranks]), "plan"
    )
    reason = next((text for text in refusals if text), "")
    return Reach(members.ranks, ranks[0][2], NETWORK if reason else NVLINK, reason)


def host_name() -> str:
    """A name that no other host has, also not one that was started from the same image."""
    return BOOT.read_text().strip() if BOOT.exists() else socket.gethostname()


def no_peers(ordinal: int, cards: list[tuple[str, str]]) -> str:
    """Why this card cannot write to the memory of all others, of which hosts and names are passed; or ""."""
    if len({host for host, _ in cards}) > 1:
        return "the ranks run on several hosts"
    if len(set(cards)) < len(cards):
        return "several ranks share a GPU"
    count = torch.cuda.device_count()
    visible = {str(torch.cuda.get_device_properties(other).uuid): other for other in range(count)}
    for rank, (_, card) in enumerate(cards):
        other = visible.get(card)
        if other is None:
            return f"a process does not see rank {rank}'s GPU"
        if other != ordinal and not torch.cuda.can_device_access_peer(ordinal, other):
            return f"a GPU has no access to the memory of rank {rank}'s"
    return "" if find_spec("torch.distributed._symmetric_memory") else "this torch has no symmetric memory"
