"""On a GPU, with torch: every kernel at awkward sizes, every layout, streams, graphs, threads, and the other
frameworks.

Run with `pytest -m gpu`. Outputs start as NaN; `verify.judge` decides.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import lapidist
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.ladder import BByColumns, CopiedRows
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.verify.sum_bound import judge
from on_gpu import laid_out, normal, poisoned, rows_on_16_bytes, whole
from typed import takes

pytestmark = pytest.mark.gpu

DTYPES = ["float16", "float32", "float64"]
# test_gpu_types.py has the others, test_gpu_batches.py small matrices
FLOAT_KERNELS = [each for each in KERNELS if "float32" in each.types.maths and takes(each, 640, 384, 1024)]
TYPED = [(kernel, dtype) for kernel in FLOAT_KERNELS for dtype in DTYPES if dtype in kernel.types.maths]
SIZES = [
    (1, 1, 1),
    (33, 35, 37),
    (128, 128, 128),
    (130, 132, 36),
    (257, 511, 129),
    (5, 1000, 3),
    (1000, 3, 65),
    (16, 16, 0),
    (640, 384, 1024),
]
SCALES = [(1.0, 0.0), (-0.5, 1.25), (0.0, 2.0), (2.0, 1.0)]


def fitting(kernel: Kernel, a: Any, b: Any) -> tuple[Any, Any]:
    """The same numbers, laid out as the kernel takes them."""
    if isinstance(kernel.family, BByColumns):
        return a, b.T.contiguous().T
    if isinstance(kernel.family, CopiedRows):
        return rows_on_16_bytes(a), rows_on_16_bytes(b)
    return a, b


def named(value: Kernel | str | int) -> str:
    return value.name if isinstance(value, Kernel) else str(value)


# ---- every kernel ----


@pytest.mark.parametrize(
    ("kernel", "dtype", "m", "n", "k"),
    [(*typed, *size) for typed in TYPED for size in SIZES if takes(typed[0], *size)],
    ids=named,
)
def test_every_kernel_at_awkward_sizes(
    torch: Any, kernel: Kernel, dtype: str, m: int, n: int, k: int
) -> None:
    a, b = fitting(kernel, normal(torch, m, k, dtype=dtype), normal(torch, k, n, dtype=dtype))
    out = poisoned(torch, m, n, dtype=dtype)
    assert lapidist.gemm(a, b, out=out, kernel=kernel.name) is out
    assert judge(out, a, b).ok


@pytest.mark.parametrize(("alpha", "beta"), SCALES)
@pytest.mark.parametrize(("kernel", "dtype"), TYPED, ids=named)
def test_every_kernel_scales(torch: Any, kernel: Kernel, dtype: str, alpha: float, beta: float) -> None:
    a, b = fitting(kernel, normal(torch, 150, 84, dtype=dtype), normal(torch, 84, 196, dtype=dtype))
    c = normal(torch, 150, 196, dtype=dtype)
    out = c.clone() if beta else poisoned(torch, 150, 196, dtype=dtype)
    lapidist.gemm(a, b, out, alpha=alpha, beta=beta, out=out, kernel=kernel.name)
    assert judge(out, a, b, c, alpha, beta).ok


@pytest.mark.parametrize(("kernel", "dtype"), TYPED, ids=named)
def test_integers_are_exact(torch: Any, kernel: Kernel, dtype: str) -> None:
    """Sums of at most 60 products of at most 16: exact in every type."""
    a, b = fitting(kernel, whole(torch, dtype, 300, 60), whole(torch, dtype, 60, 260))
    out = poisoned(torch, 300, 260, dtype=dtype)
    lapidist.gemm(a, b, out=out, kernel=kernel.name)
    assert judge(out, a, b, exact=True).ok


@pytest.mark.parametrize("kernel", FLOAT_KERNELS, ids=named)
def test_nothing_outside_the_output_is_written(torch: Any, kernel: Kernel) -> None:
    a, b = fitting(kernel, normal(torch, 131, 70), normal(torch, 70, 133))
    base = poisoned(torch, 160, 160)
    lapidist.gemm(a, b, out=base[7:138, 9:142], kernel=kernel.name)
    assert judge(base[7:138, 9:142], a, b).ok
    base[7:138, 9:142] = float("nan")
    assert base.isnan().all()


@pytest.mark.parametrize("kernel", FLOAT_KERNELS, ids=named)
def test_the_same_bits_again(torch: Any, kernel: Kernel) -> None:
    a, b = fitting(kernel, normal(torch, 520, 900), normal(torch, 900, 390))
    first, second = (lapidist.gemm(a, b, kernel=kernel.name) for _ in range(2))
    assert torch.equal(first, second)


def test_every_config_of_the_production_kernels(torch: Any) -> None:
    for name, dtypes in (("simt", DTYPES), ("mma", ["float16", "bfloat16", "float64"])):
        for dtype in dtypes:
            a, b = normal(torch, 333, 200, dtype=dtype), normal(torch, 200, 222, dtype=dtype)
            for config, _ in kernel_named(name).configs_for(dtype):
                assert judge(lapidist.gemm(a, b, kernel=name, config=config), a, b).ok, config


# ---- layouts and batches ----

LAYOUTS = ["row", "col", "strided", "offset"]


@pytest.mark.parametrize("out_layout", ["row", "col", "offset"])
@pytest.mark.parametrize("b_layout", LAYOUTS)
@pytest.mark.parametrize("a_layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts(torch: Any, dtype: str, a_layout: str, b_layout: str, out_layout: str) -> None:
    a = laid_out(normal(torch, 3, 70, 45, dtype=dtype), a_layout)
    b = laid_out(normal(torch, 3, 45, 90, dtype=dtype), b_layout)
    out = laid_out(poisoned(torch, 3, 70, 90, dtype=dtype), out_layout)
    assert lapidist.gemm(a, b, out=out) is out
    assert judge(out, a, b).ok
    assert judge(lapidist.gemm(a[0], b[1], out=out[2]), a[0], b[1]).ok


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 40, 30), (3, 30, 50)),
        ((3, 40, 30), (30, 50)),
        ((40, 30), (3, 30, 50)),
        ((2, 3, 40, 30), (2, 3, 30, 50)),
        ((2, 1, 40, 30), (3, 30, 50)),
        ((2, 1, 3, 40, 30), (4, 1, 30, 50)),
        ((300, 1, 8), (300, 8, 1)),
        ((0, 4, 5), (5, 6)),
        ((3, 0, 5), (5, 6)),
    ],
)
def test_batches_broadcast(torch: Any, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = normal(torch, *a), normal(torch, *b)
    result = lapidist.matmul(left, right)
    assert result.shape == torch.matmul(left, right).shape
    assert judge(result, left, right).ok


@pytest.mark.parametrize(
    ("a", "b"),
    [((60,), (60, 50)), ((40, 60), (60,)), ((60,), (60,)), ((2, 40, 60), (60,)), ((60,), (2, 60, 50))],
)
def test_vectors(torch: Any, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = whole(torch, "float32", *a), whole(torch, "float32", *b)
    expected = torch.matmul(left, right)
    result = lapidist.matmul(left, right)
    assert result.shape == expected.shape
    assert torch.equal(result, expected)


def test_broadcast_and_windows(torch: Any) -> None:
    row, base = normal(torch, 1, 64), normal(torch, 200)
    repeated, windows = row.expand(100, 64), base.unfold(0, 64, 1)
    b = normal(torch, 64, 72)
    assert judge(lapidist.matmul(repeated, b), repeated, b).ok
    assert judge(lapidist.matmul(windows, b), windows, b).ok
    assert judge(lapidist.matmul(b.T, b), b.T, b).ok  # one memory, two operands


def test_c_broadcasts_and_transposes_are_taken(torch: Any) -> None:
    a, b, c = normal(torch, 60, 100), normal(torch, 80, 60), normal(torch, 80)
    result = lapidist.gemm(a, b, c, alpha=0.5, beta=-2.0, trans_a=True, trans_b=True)
    assert judge(result, a.T, b.T, c.expand(100, 80), 0.5, -2.0).ok


def test_nan_that_must_not_leak(torch: Any) -> None:
    nan, c = poisoned(torch, 64, 64), normal(torch, 64, 64)
    eye = torch.eye(64, device="cuda")
    assert torch.equal(lapidist.gemm(eye, eye, nan, beta=0.0), eye)
    assert torch.equal(lapidist.gemm(nan, nan, c, alpha=0.0, beta=1.0), c)
    assert torch.equal(lapidist.gemm(nan[:, :0], nan[:0], c, beta=2.0), 2 * c)
    assert not lapidist.matmul(nan[:, :0], nan[:0]).any()


def test_more_than_two_to_the_31_elements(torch: Any) -> None:
    """2^31 + 2^17 elements of A, in half: the last rows lie beyond 32 bits."""
    rows, cols = (1 << 17) + 8, 1 << 14
    a = torch.zeros(rows, cols, device="cuda", dtype=torch.float16)
    a[-5:] = normal(torch, 5, cols, dtype="float16")
    b = normal(torch, cols, 24, dtype="float16")
    out = poisoned(torch, rows, 24, dtype="float16")
    lapidist.matmul(a, b, out=out)
    assert judge(out[-5:], a[-5:], b).ok
    assert not out[:-5].any()


# ---- plans, streams, graphs, threads ----


def test_a_plan_runs_again_on_other_tensors(torch: Any) -> None:
    a, b, c = normal(torch, 200, 100), normal(torch, 100, 300), normal(torch, 200, 300)
    plan = lapidist.plan(a, b, c, alpha=2.0, beta=0.5)
    for _ in range(4):
        a, b, c = normal(torch, 200, 100), normal(torch, 100, 300), normal(torch, 200, 300)
        out = poisoned(torch, 200, 300)
        assert plan.execute(a, b, c, out) is out
        assert judge(out, a, b, c, 2.0, 0.5).ok
        before = c.clone()
        plan_in_place = lapidist.gemm(a, b, c, alpha=2.0, beta=0.5, out=c)
        assert judge(plan_in_place, a, b, before, 2.0, 0.5).ok


def test_a_plan_refuses_another_geometry(torch: Any) -> None:
    a, b = normal(torch, 200, 100), normal(torch, 100, 300)
    plan = lapidist.plan(a, b)
    plan.execute(a, b)
    plan.execute(a, b)  # the short way now
    out = poisoned(torch, 200, 300)
    others = [
        (a[:100], b),
        (a, normal(torch, 300, 100).T),
        (a.double(), b.double()),
        (normal(torch, 200, 101)[:, 1:], b),
    ]
    for left, right in others:
        with pytest.raises(
            lapidist.LapidistError,
            match=r"must have the geometry that was planned|out: must have shape|element type",
        ):
            plan.execute(left, right, None, out)
    assert out.isnan().all()
    base = normal(torch, 600, 300)
    with pytest.raises(lapidist.StrideError, match="out: must not overlap"):
        plan.execute(base.view(-1)[: 200 * 100].view(200, 100), b, None, base[50:250])


def test_a_graph_captures_and_replays(torch: Any) -> None:
    a, b, out = normal(torch, 300, 200), normal(torch, 200, 260), poisoned(torch, 300, 260)
    lapidist.gemm(a, b, out=out)  # loads the kernel: nothing may be loaded while capturing
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lapidist.gemm(a, b, out=out)
        lapidist.gemm(a, b, out, alpha=1.0, beta=1.0, out=out)
    for _ in range(3):
        a.copy_(normal(torch, 300, 200))
        b.copy_(normal(torch, 200, 260))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert judge(out, a, b, alpha=2.0).ok


def test_work_is_ordered_on_the_current_stream(torch: Any) -> None:
    """Behind 50 ms of work that fills A: on another stream the product would read zeros."""
    stream = torch.cuda.Stream()
    a, b = torch.zeros(512, 512, device="cuda"), normal(torch, 512, 512)
    filled = normal(torch, 512, 512)
    lapidist.matmul(a, b)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        a.copy_(filled)
        result = lapidist.matmul(a, b)
    stream.synchronize()
    assert judge(result, filled, b).ok


def test_two_streams_at_once(torch: Any) -> None:
    streams = [torch.cuda.Stream() for _ in range(2)]
    inputs = [(normal(torch, 700, 300), normal(torch, 300, 500)) for _ in streams]
    outs = [poisoned(torch, 700, 500) for _ in streams]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, (a, b), out in zip(streams, inputs, outs, strict=True):
            lapidist.gemm(a, b, out=out, stream=stream)
    torch.cuda.synchronize()
    for (a, b), out in zip(inputs, outs, strict=True):
        assert judge(out, a, b).ok


def test_streams_are_taken_as_handles_too(torch: Any) -> None:
    a, b, stream = normal(torch, 64, 64), normal(torch, 64, 64), torch.cuda.Stream()
    torch.cuda.synchronize()
    result = lapidist.matmul(a, b, stream=stream.cuda_stream)
    stream.synchronize()
    assert judge(result, a, b).ok


def test_many_threads(torch: Any) -> None:
    """Each with its own stream and its own numbers, through one plan."""
    a0, b0 = normal(torch, 150, 120), normal(torch, 120, 170)
    plan = lapidist.plan(a0, b0, alpha=1.5)
    plan.execute(a0, b0)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(40):
                a, b = (
                    torch.randn(*shape, device="cuda", generator=generator)
                    for shape in ((150, 120), (120, 170))
                )
                out = torch.full((150, 170), float("nan"), device="cuda")
                plan.execute(a, b, None, out)
                verdict = judge(out, a, b, alpha=1.5)
                if not verdict.ok:
                    wrong.append((seed, verdict))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.alone
def test_memory_stays_flat_after_the_first_call(torch: Any) -> None:
    a, b, out = normal(torch, 512, 512), normal(torch, 512, 512), poisoned(torch, 512, 512)
    lapidist.gemm(a, b, out=out)
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(200):
        lapidist.gemm(a, b, out=out)
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] == free


# ---- host arrays, other frameworks ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_host_arrays_on_the_gpu(rng: np.random.Generator, dtype: str) -> None:
    a, b = rng.standard_normal((3, 90, 70)).astype(dtype), rng.standard_normal((70, 110)).astype(dtype)
    assert judge(lapidist.matmul(a, b, device="gpu"), a, b).ok
    c, base = rng.standard_normal((90, 110)).astype(dtype), np.full((100, 240), np.nan, dtype)
    out = base[4:94, 3:113]
    assert lapidist.gemm(a[0, ::-1], b, c, alpha=0.5, beta=2.0, out=out, device=0) is out
    assert judge(out, a[0, ::-1], b, c, 0.5, 2.0).ok
    base[4:94, 3:113] = np.nan
    assert np.isnan(base).all()
    before = c.copy()
    lapidist.gemm(a[0], b, c, beta=1.0, out=c, device="gpu")
    assert judge(c, a[0], b, before, 1.0, 1.0).ok


def test_cupy(torch: Any) -> None:
    import cupy

    a, b = (
        cupy.random.standard_normal((90, 70)).astype("float32"),
        cupy.random.standard_normal((70, 110)).astype("float32"),
    )
    result = lapidist.matmul(a, b)
    assert isinstance(result, cupy.ndarray)
    assert judge(result.get(), a.get(), b.get()).ok
    out = cupy.full((110, 90), cupy.nan, "float32").T
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(3):
            assert lapidist.gemm(a, b, alpha=2.0, out=out) is out
        stream.synchronize()
    assert judge(out.get(), a.get(), b.get(), alpha=2.0).ok


def test_jax() -> None:
    import jax

    first, second = jax.random.split(jax.random.PRNGKey(0))
    a, b = jax.random.normal(first, (90, 70)), jax.random.normal(second, (70, 110))
    result = lapidist.matmul(a, b)
    assert isinstance(result, jax.Array)
    assert judge(np.asarray(result), np.asarray(a), np.asarray(b)).ok
    with pytest.raises(lapidist.ArgumentError, match="out: JAX arrays cannot be written to"):
        lapidist.matmul(a, b, out=result)


def test_any_object_that_speaks_the_cuda_array_interface(torch: Any) -> None:
    class Speaker:
        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__

    a, b, out = normal(torch, 60, 50), normal(torch, 50, 40), poisoned(torch, 60, 40)
    torch.cuda.synchronize()
    lapidist.gemm(Speaker(a), Speaker(b), out=Speaker(out))
    torch.cuda.synchronize()
    assert judge(out, a, b).ok


# ---- errors ----


def test_arrays_in_two_places(torch: Any) -> None:
    a, b = normal(torch, 8, 8), torch.randn(8, 8)
    with pytest.raises(lapidist.DeviceError, match=r"b: must be where a is, GPU 0; it is in host memory"):
        lapidist.matmul(a, b)
    with pytest.raises(lapidist.DeviceError, match=r"out: must be where a is, GPU 0; it is in host memory"):
        lapidist.matmul(a, a, out=b)


@pytest.mark.parametrize("device", ["machine", "host"])
def test_gpu_arrays_stay_on_the_gpu(torch: Any, device: str) -> None:
    with pytest.raises(lapidist.ArgumentError, match="takes arrays in host memory"):
        lapidist.matmul(normal(torch, 8, 8), normal(torch, 8, 8), device=device)


def test_a_gpu_that_is_not_there(torch: Any) -> None:
    count = torch.cuda.device_count()
    with pytest.raises(
        lapidist.DeviceError, match=f"device: GPU {count} was asked for, but the driver sees {count}"
    ):
        lapidist.matmul(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32), device=count)


def test_gradients_are_refused_and_views_without_them_are_not(torch: Any) -> None:
    a, b = normal(torch, 8, 8).requires_grad_(), normal(torch, 8, 8)
    for _ in range(3):
        with pytest.raises(lapidist.ArgumentError, match=r"a: requires a gradient.*no_grad"):
            lapidist.matmul(a, b)
        with torch.no_grad():
            assert judge(lapidist.matmul(a, b), a.detach(), b).ok
        assert judge(lapidist.matmul(a.detach(), b), a.detach(), b).ok


def test_a_refused_call_leaves_the_output_alone(torch: Any) -> None:
    out = poisoned(torch, 8, 8)
    for wrong in ({"b": normal(torch, 9, 8)}, {"beta": 1.0}, {"kernel": "b_transposed"}, {"kernel": "none"}):
        with pytest.raises(lapidist.LapidistError):
            lapidist.gemm(**{"a": normal(torch, 8, 8), "b": normal(torch, 8, 8), "out": out, **wrong})
    torch.cuda.synchronize()
    assert out.isnan().all()


# ---- more than one GPU, fresh processes ----


@pytest.mark.two_gpus
def test_the_second_gpu(torch: Any) -> None:
    assert torch.cuda.device_count() > 1, "there is one GPU: run the others with -m 'gpu and not two_gpus'"
    a, b = (torch.randn(100, 100, device="cuda:1") for _ in range(2))
    result = lapidist.matmul(a, b)
    assert result.device.index == 1
    assert judge(result, a, b).ok
    assert torch.cuda.current_device() == 0
    with pytest.raises(lapidist.DeviceError, match="b: must be where a is, GPU 1; it is in GPU 0"):
        lapidist.matmul(a, normal(torch, 100, 100))


def test_a_fresh_process_finds_the_cached_kernel(tmp_path: Any) -> None:
    program = (
        "import numpy, lapidist, lapidist.build.compiler as c, sys\n"
        "if sys.argv[1] == 'warm': c.run_nvrtc = None\n"
        "a = numpy.ones((50, 60), 'float32')\n"
        "assert (lapidist.matmul(a, a.T.copy(), device='gpu') == 60).all()\n"
    )
    environment = {**os.environ, "LAPIDIST_CACHE_DIR": str(tmp_path)}
    for state in ("cold", "warm"):
        subprocess.run([sys.executable, "-c", program, state], env=environment, check=True)
