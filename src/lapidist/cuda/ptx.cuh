// PTX instructions that CUDA C++ has no name for, each wrapped once.
#pragma once

#include "common.cuh"
#include "config.cuh"
#include "shared_address.cuh"

// Copy 4, 8 or 16 bytes from global to shared memory without a register in between; both addresses are
// multiples of Bytes. The copy is done only after a wait, and others see it only after a barrier. (16 bytes
// go past the L1: .cg.)
template <int Bytes>
__device__ __forceinline__ void cp_async(void* smem, const void* gmem) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async knows 4, 8 and 16 bytes");
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(smem)), "l"(gmem)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(smem)), "l"(gmem),
                 "n"(Bytes)
                 : "memory");
}

// The same, or nothing: no branch parts the instructions around it.
template <int Bytes>
__device__ __forceinline__ void cp_async_if(bool wanted, void* smem, const void* gmem) {
  static_assert(Bytes == 8 || Bytes == 16, "used for doubles");
  if constexpr (Bytes == 16)
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %2, 0;\n"
        "@wanted cp.async.cg.shared.global [%0], [%1], 16;\n}" ::"r"(shared_address(smem)),
        "l"(gmem), "r"(static_cast<int>(wanted))
        : "memory");
  else
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %2, 0;\n"
        "@wanted cp.async.ca.shared.global [%0], [%1], 8;\n}" ::"r"(shared_address(smem)),
        "l"(gmem), "r"(static_cast<int>(wanted))
        : "memory");
}

// The same, but only `exist` bytes (0 to Bytes) are read; the rest of the target becomes zero.
template <int Bytes>
__device__ __forceinline__ void cp_async_fill(unsigned place, const void* gmem, int exist) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async knows 4, 8 and 16 bytes");
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(gmem), "r"(exist)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(gmem), "n"(Bytes),
                 "r"(exist)
                 : "memory");
}
template <int Bytes>
__device__ __forceinline__ void cp_async_fill(void* smem, const void* gmem, int exist) {
  cp_async_fill<Bytes>(shared_address(smem), gmem, exist);
}
// Both: so much of it, or nothing.
template <int Bytes>
__device__ __forceinline__ void cp_async_fill_if(bool wanted, unsigned place, const void* gmem, int exist) {
  if constexpr (Bytes == 4)
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %2, 0;\n"
        "@wanted cp.async.ca.shared.global [%0], [%1], 4;\n}" ::"r"(place),
        "l"(gmem), "r"(static_cast<int>(wanted))
        : "memory");
  else if constexpr (Bytes == 16)
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %2, 0;\n"
        "@wanted cp.async.cg.shared.global [%0], [%1], 16, %3;\n}" ::"r"(place),
        "l"(gmem), "r"(static_cast<int>(wanted)), "r"(exist)
        : "memory");
  else
    asm volatile(
        "{\n.reg .pred wanted;\nsetp.ne.s32 wanted, %2, 0;\n"
        "@wanted cp.async.ca.shared.global [%0], [%1], 8, %3;\n}" ::"r"(place),
        "l"(gmem), "r"(static_cast<int>(wanted)), "r"(exist)
        : "memory");
}

// The copies of this thread since its last commit become one group. An empty group counts too.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until at most `Pending` of this thread's groups, the youngest, are still under way.
template <int Pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// One element to shared memory. cp.async has no 2-byte form: half goes through a register and is there at
// once.
template <typename Element>
__device__ __forceinline__ void copy_async(Element* smem, const Element* gmem) {
  if constexpr (sizeof(Element) >= 4) cp_async<sizeof(Element)>(smem, gmem);
  else *smem = *gmem;
}

// from[0 .. 3] to shared memory: as load4 of common.cuh, past from[last] too.
__device__ __forceinline__ void copy4_async(T* smem, const T* from, int last) {
  if constexpr (ALIGNED) {
    constexpr int step = sizeof(T) < 8 ? 4 : 2;  // elements a copy: 16 bytes at most
#pragma unroll
    for (int i = 0; i < 4; i += step) cp_async<step * sizeof(T)>(smem + i, from + i);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) copy_async(smem + i, from + min_of(i, last));
  }
}

// A value that the compiler must take for a new one; no instruction.
__device__ __forceinline__ void opaque(float& value) { asm volatile("" : "+f"(value)); }
__device__ __forceinline__ void opaque(unsigned& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void opaque(long long& value) { asm volatile("" : "+l"(value)); }
__device__ __forceinline__ void opaque(double& value) { asm volatile("" : "+d"(value)); }

// Four tiles of 8 rows of 16 bytes; lane l gives the address of row l % 8 of tile l / 8. Lane 4 g + t
// receives the t-th 4 bytes of row g; Transposed, of 2-byte elements, rows 2t and 2t + 1 of column g.
template <bool Transposed>
__device__ __forceinline__ void ldmatrix(unsigned (&tile)[4], const char* row) {
  if constexpr (Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
                 : "r"(shared_address(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// The multiprocessor that this block runs on; and nanoseconds, of which these are the low 32 bits.
__device__ __forceinline__ unsigned multiprocessor() {
  unsigned number;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
  return number;
}
__device__ __forceinline__ unsigned nanoseconds() {
  unsigned now;
  asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(now));
  return now;
}
