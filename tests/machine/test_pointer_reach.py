"""An address past the end of one array that lies in another one of the launch: it is out of bounds where the
kernel's pointers are known, and only there."""

import numpy as np
import pytest

from lapidist.machine import check

LENGTH = 64
READS = {
    "by a load": "y[threadIdx.x] = x[threadIdx.x + by];",
    "by cp.async": """
        __shared__ int copied[64];
        unsigned place = (unsigned)__cvta_generic_to_shared(copied + threadIdx.x);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.wait_all;"
                     :: "r"(place), "l"(x + threadIdx.x + by) : "memory");
        y[threadIdx.x] = copied[threadIdx.x];""",
    "by an atomic": "y[threadIdx.x] = atomicAdd((int*)x + threadIdx.x + by, 1);",
}
SHIFTED = 'extern "C" __global__ void shifted(const int* x, int* y, long long by) {{ {} }}'
BY_INDEX = """
extern "C" __global__ void by_index(int* x, const int* index, int* y) {
    y[index[threadIdx.x]] = x[threadIdx.x];
}
"""
ENDS = """
extern "C" __global__ void ends(const int* first, const int* last, int* y) {
    const int* place = threadIdx.x % 2 ? first + threadIdx.x : last - 1 - threadIdx.x;
    y[threadIdx.x] = *place;
}
"""
FROM_BEHIND = """
extern "C" __global__ void from_behind(const int* last, int* y) {
    y[threadIdx.x] = last[-1 - (int)threadIdx.x];
}
"""
TABLE = """
extern "C" __global__ void table(const int* const* rows, const int* spare, int* y) {
    const int* row = threadIdx.x % 2 ? rows[threadIdx.x / 32] : spare;
    y[threadIdx.x] = row[threadIdx.x % 32];
}
"""
APART = """
extern "C" __global__ void apart(const int* x, const int* z, int* y) {
    y[threadIdx.x] = x[threadIdx.x + (z - x)];
}
"""
STRUCT = """
struct Pair { const int* first; const int* second; };
extern "C" __global__ void of_struct(Pair pair, int* y) {
    y[threadIdx.x] = (threadIdx.x % 2 ? pair.first : pair.second)[threadIdx.x];
}
"""


def arrays(count):
    return [np.arange(LENGTH, dtype="i4") + 1000 * number for number in range(count)]


def places_between(first, second):
    return (second.ctypes.data - first.ctypes.data) // first.itemsize


def checked(source, *args, **named):
    return list(check(source, (1, 1, 1), (LENGTH, 1, 1), *args, seeds=1, **named))


@pytest.mark.parametrize("read", READS)
def test_what_strays_into_another_array_is_out_of_bounds(read):
    x, y = arrays(2)
    (found,) = checked(SHIFTED.format(READS[read]), x, y, places_between(x, y))
    assert found.rule == "out-of-bounds"
    assert "through a pointer to parameter x" in str(found)
    assert "in parameter y" in str(found)


def test_an_index_from_memory_leaves_the_pointer_known():
    x, index, y = arrays(3)
    index += places_between(y, x) - index[0]
    (found,) = checked(BY_INDEX, x, index, y)
    assert found.rule == "out-of-bounds"
    assert "in parameter x" in str(found)


def test_views_of_one_array_may_be_walked_through():
    both = np.arange(2 * LENGTH, dtype="i4")
    x, y, z = both[:LENGTH], arrays(1)[0], both[LENGTH:]
    source = SHIFTED.format(READS["by a load"]).replace("by)", "by, const int* z)")
    assert not checked(source, x, y, LENGTH, z)
    assert (y == z).all()


def test_pointers_that_memory_or_arithmetic_gave_reach_all_ranges():
    x, y, z = arrays(3)
    assert not checked(ENDS, x, np.uint64(x.ctypes.data + x.nbytes), y)
    rows = np.array([x.ctypes.data, z.ctypes.data], "u8")
    spare = arrays(1)[0]
    assert not checked(TABLE, rows, spare, y, memory=[x, z])
    assert y[33] == z[1]
    assert y[1] == x[1]
    assert y[2] == spare[2]
    assert not checked(APART, x, z, y)
    assert not checked(STRUCT, [x, z], y)
    assert (y == np.where(np.arange(LENGTH) % 2, x, z)).all()


def test_a_pointer_past_the_end_reaches_back_though_another_range_begins_there():
    space = memoryview(bytearray(8 * LENGTH))
    x, z = (np.frombuffer(part, "i4") for part in (space[: 4 * LENGTH], space[4 * LENGTH :]))
    x[:] = np.arange(LENGTH)
    (y,) = arrays(1)
    assert not checked(FROM_BEHIND, z, y, memory=[x])
    assert (y == x[::-1]).all()
