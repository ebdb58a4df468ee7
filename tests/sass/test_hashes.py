"""Hashes of PTX: they change with what a kernel does, and with nothing else."""

from __future__ import annotations

from typer.testing import CliRunner

from lapidist.commands import cli
from lapidist.device import CHIPS
from lapidist_lab.sass.hashes import REFUSED, cases, hash_of, hashed

PTX = """.version 9.0
.visible .entry f(
)
{
\t.loc\t1 12 3
\tmov.u32 \t%r1, 1;
\tret;
}
\t.file\t1 "/somewhere/simt.cu"
"""
DEBUG = """\t.section\t.debug_str
\t{
$L__info_string0:
.b8 95,90

\t}
"""  # as NVRTC writes it: names of the functions that were inlined


def test_where_code_came_from_does_not_count() -> None:
    elsewhere = PTX.replace("12 3", "99 1").replace("somewhere", "elsewhere")
    assert hash_of(PTX) == hash_of(elsewhere)
    assert hash_of(PTX + DEBUG) == hash_of(PTX + DEBUG.replace("95", "12"))
    assert hash_of(PTX) != hash_of(PTX.replace("%r1, 1", "%r1, 2"))


def test_the_list_names_every_kernel_type_and_form() -> None:
    listed = list(cases())
    assert len({str(case) for case in listed}) == len(listed)
    assert {"wgmma-bfloat16-rc-ragged-c", "sgemm-float32-rr-ragged-batch", "mma-uint8-cc-aligned"} <= {
        str(case) for case in listed
    }


def test_a_kernel_is_hashed_as_it_is_compiled_for_the_problem() -> None:
    listed = [
        case
        for case in cases(["mma"])
        if case.math == "int8" and not case.batched and case.shape == "aligned"
    ]
    found = {hashed(case, CHIPS["h200"]) for case in listed if case.layout in ("rc", "cr")}
    assert len(found) >= 3  # of two layouts, and with C
    assert REFUSED not in found
    by_columns = next(case for case in cases(["coalesced"]) if case.layout == "cr")
    assert hashed(by_columns, CHIPS["h200"]) == REFUSED


def test_the_command_prints_a_line_a_case() -> None:
    result = CliRunner().invoke(cli.app, ["static", "uncoalesced", "--hashes"])
    assert result.exit_code == 0, result.output
    listed = [line.split() for line in result.stdout.splitlines()]
    assert [name for name, _ in listed] == [str(case) for case in cases(["uncoalesced"])]
    assert any(found != REFUSED for _, found in listed)
