"""Small faults: each kind is PTX, a seed draws the same ones, and a bound moves where a thread is at it."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine.foreign import make_launch
from lapidist.machine.ptx.parse import parse_kernel
from lapidist_lab.machine_studies.micro_faults import FAULTS, drawn_faults, faults_of
from lapidist_lab.machine_studies.mutants import Case, Variant
from lapidist_lab.machine_studies.specimens import Specimen, case_of, mutants_for
from snippets import kernel

KERNELS = (("shared_tile", "float32"), ("mma", "float16"), ("sgemm", "float32"), ("wgmma_streamk", "float16"))
GUARDED = """
    setp.gt.u32 %p1, %t, {last};
    @%p1 bra E;
    st.global.u32 [%out], %t;
    E:"""


def test_every_kind_has_a_place_and_stays_ptx() -> None:
    kinds = set()
    for name, math in KERNELS:
        binary = case_of(Specimen(name, math, shared=name == "wgmma_streamk")).launch.binary
        lines, sites = binary.ptx.splitlines(), {}
        for kind, faults in faults_of(binary.ptx, binary.entry).items():
            fault = next((fault for fault in faults if fault.line not in sites), None)
            if fault is not None and kind not in kinds:
                sites[fault.line], lines[fault.line - 1] = kind, fault.changed
                assert fault.changed != fault.original.splitlines()[fault.line - 1]
        kinds |= set(sites.values())
        parse_kernel("\n".join(lines), binary.entry)
    lacking = {kind for kind, _, _ in FAULTS} - kinds
    assert lacking <= {"a fence of the other memory", "a copy to the wrong block"}, lacking
    assert "a wait asked once" in kinds


def small_case(last: int) -> Case:
    out = np.zeros(32, "u4")
    launch = make_launch(
        kernel(GUARDED.format(last=last)), "k", (1, 1, 1), (32, 1, 1), {"in": out, "out": out}
    )
    return Case("k", "float32", (Variant(launch, lambda: out.fill(0), lambda: bool((out <= last).all())),))


@pytest.mark.parametrize(("last", "kinds"), [(20, ["a bound off by one"]), (40, [])])
def test_a_bound_moves_only_where_a_thread_is_at_it(last: int, kinds: list[str]) -> None:
    drawn = drawn_faults(small_case(last), 20, 0)
    assert [fault.kind for fault in drawn if fault.kind == "a bound off by one"] == kinds


def test_a_seed_draws_the_same_faults() -> None:
    first, again, other = (
        mutants_for(Specimen("vector_loads", "float32", drawn=(6, seed))) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len(first) == len({(fault.kind, fault.line) for fault in first}) == 6
