"""The mutation suite: what it breaks, and what is found. The whole survey is `lapidist mutants`; here one
kernel of each kind.
"""

from __future__ import annotations

import json
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from lapidist.build.compiler import CUDA_SOURCES
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist_lab.bench.publish.machine_tables import mutants_block
from lapidist_lab.bench.studies import machine_runs
from lapidist_lab.machine_studies.equivalents import RULES, Rule, read_source, statement
from lapidist_lab.machine_studies.mutants import Cut, Survey, Unbroken, Verdict, merged, mutants, survey
from lapidist_lab.machine_studies.specimens import (
    CLUSTERS,
    MANY,
    Specimen,
    case_of,
    config_of,
    mutants_for,
    specimens,
)
from snippets import kernel

BODY = """
    .shared .align 8 .b64 m; mov.u32 %r1, m; setp.eq.u32 %p1, %t, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 32; fence.mbarrier_init.release.cluster; bar.sync 0;
    mbarrier.arrive.shared.b64 _, [%r1]; W: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0; @!%p2 bra W;
    setp.gt.u32 %p3, %t, 20; @%p3 bra E; st.global.u32 [%out], %t; E:"""


def test_every_safeguard_gives_one_mutant() -> None:
    text = kernel(BODY)
    found = list(mutants(text, "k"))
    assert [mutant.kind for mutant in found] == ["fence", "barrier", "arrival", "wait", "bounds"]
    for mutant in found:
        assert mutant.ptx.count("\n") == text.rstrip("\n").count("\n")
        assert mutant.ptx != text
    assert "setp.eq.u32 %p2, 0, 0;" in found[3].ptx
    assert "mbarrier.arrive" in found[1].ptx  # other statements of the line stay


def test_shares_and_misses_are_reported() -> None:
    verdicts = [
        Verdict("k", "float32", "barrier", 5, "bar.sync 0;", "Race", 0),
        Verdict("k", "float32", "barrier", 9, "bar.sync 0;", None, None),
        Verdict("k", "float32", "barrier", 12, "bar.sync 0;", None, None, "nobody reads on"),
    ]
    result = merged(
        [Survey(verdicts, [Unbroken("k", "float32", 0, (), 2)]), Survey([], [Unbroken("k", "float32", 4)])]
    )
    assert result.share("barrier") == (1, 1, 3)
    assert (result.clean_runs, result.unreached, result.false_alarms) == (4, 2, [])
    assert "| barrier | 1 of 2 | 1 | 50% |" in str(result)
    assert "not found: k in float32, line 9" in str(result)
    assert "line 12" not in str(result)
    assert Survey.of_json(json.loads(json.dumps(result.as_json()))) == result


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.why[:40])
def test_a_rule_speaks_of_a_line_that_is_there(rule: Rule) -> None:
    lines = read_source(rule.source)
    assert any(rule.line in statement(lines, index) for index in range(len(lines)))
    assert any(rule.within in path.read_text() for path in CUDA_SOURCES.rglob("*.cu*"))


@pytest.mark.survey
@pytest.mark.parametrize("name", ["thread_tile", "async_pipeline"])
def test_broken_kernels_are_found_and_sound_ones_are_not(name: str) -> None:
    """Barriers, waits, arrivals and fences only: the bounds checks of an unrolled epilogue are many and
    alike.
    """
    result = survey(
        [case_of(Specimen(name, "float32"))], seeds=2, kinds=("barrier", "wait", "arrival", "fence")
    )
    assert result.false_alarms == []
    assert result.verdicts
    assert [verdict for verdict in result.verdicts if verdict.missed] == []


def test_every_registered_kernel_is_a_specimen() -> None:
    chosen = list(specimens(None, ("float32", "float16", "int8")))
    assert {specimen.kernel for specimen in chosen} == {kernel.name for kernel in KERNELS}
    wgmma = [specimen for specimen in chosen if specimen.kernel == "wgmma"]
    assert {specimen.math for specimen in wgmma} == {"float16", "int8"}
    assert {specimen.layouts for specimen in wgmma} == {"rr", "rc", "cr"}
    assert any(specimen.ragged for specimen in wgmma)


@pytest.mark.often(2)
@pytest.mark.parametrize("specimen", list(specimens(["wgmma"], ["float16"])), ids=str)
def test_a_kernel_takes_every_way_to_run_it(specimen: Specimen) -> None:
    variants, config = case_of(specimen).variants, config_of(specimen)
    assert len(variants) >= 5 + len(MANY)
    assert (config.exchanged, config.ping_pong, config.skewed) == (
        specimen.exchanged,
        specimen.ping_pong,
        specimen.skewed,
    )


def test_persistent_blocks_come_to_a_second_tile() -> None:
    """Else nothing that they reuse would be in anybody's way."""
    variants = case_of(Specimen("wgmma_clusters", "float16")).variants
    config = kernel_named("wgmma_clusters").config_for("float16")
    assert {variant.launch.grid[0] for variant in variants} == {
        clusters * config.cluster for clusters in CLUSTERS
    }


@pytest.mark.often(1)
@pytest.mark.parametrize("stop", [Empty, KeyboardInterrupt])
def test_a_survey_that_is_stopped_keeps_what_was_found(
    stop: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its first kernel: after how much there is to do, the unbroken runs, and two mutants."""
    begun, ahead = Specimen("thread_tile", "float32"), Specimen("padded_tile", "float32")
    runs = len(case_of(begun).variants)
    answers = 1 + runs + 2

    class Stopped(SimpleQueue):  # type: ignore[type-arg]
        def get(self, block: bool = True, timeout: float | None = None) -> object:
            nonlocal answers
            answers -= 1
            if answers < 0:
                raise stop
            return super().get(block, timeout)

    monkeypatch.setattr(machine_runs, "SimpleQueue", Stopped)
    found = machine_runs.in_processes([begun, ahead], seeds=2, jobs=1, limit=None)
    assert (len(found.verdicts) + found.unreached, found.clean_runs) == (2, runs)
    of = len(mutants_for(begun))
    assert found.cut == [Cut("thread_tile", "float32", 2, of), Cut("padded_tile", "float32")]
    assert f"stopped before the end: thread_tile in float32: 2 of {of} mutants" in str(found)
    assert "stopped before the end: padded_tile in float32: not begun" in str(found)
    assert Survey.of_json(json.loads(json.dumps(found.as_json()))) == found


def test_the_page_takes_no_survey_of_a_kernel_that_is_cut(tmp_path: Path) -> None:
    def publish(day: int, cut: list[Cut], count: int) -> None:
        verdicts = [
            Verdict("thread_tile", "float32", "barrier", line, "bar.sync 0;", "Race", 0)
            for line in range(count)
        ]
        found = Survey(verdicts, [Unbroken("thread_tile", "float32", 5)], cut)
        stored = {"conditions": {"nvrtc": "13.0"}, **found.as_json()}
        (tmp_path / f"machine-2026010{day}T000000-mutants.json").write_text(json.dumps(stored))

    publish(1, [], 2)
    publish(2, [Cut("thread_tile", "float32", 1, 2)], 1)
    assert "| barrier (`bar.sync`) | 2 of 2 |" in mutants_block(tmp_path)


def test_kernels_are_surveyed_one_after_the_other() -> None:
    """What becomes ready later goes behind the pieces of the kernels before it, also where theirs come
    last.
    """
    first, second = Specimen("thread_tile", "float32"), Specimen("padded_tile", "float32")
    work = machine_runs.Work([first, second], seeds=2)
    assert [piece[0] for piece in (work.take(), work.take()) if piece] == [first, second]
    for each in (first, second):
        work.done(each, (1, 3))  # launches, mutants
    assert [piece[0] for piece in (work.take(), work.take(), work.take()) if piece] == [first, first, second]


@pytest.mark.parametrize("name", ["sgemm", "async_pipeline", "tma_streamk"])
def test_a_kernel_is_launched_in_every_depth(name: str) -> None:
    """Where rows of D whose last vector is short take other code, they are whole."""
    (specimen, *_) = specimens([name], ["float32"])
    assert len(case_of(specimen).variants) == 5 * (1 + specimen.shared)


def test_a_kernel_whose_block_has_the_whole_product_is_surveyed() -> None:
    case = case_of(Specimen("small", "float32"))
    result = survey([case], seeds=1)
    assert result.false_alarms == []
    assert result.clean_runs == len(case.variants) > 1
