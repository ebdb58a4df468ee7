// Flags by which the blocks of a tile wait for each other, zero between launches.
//
// All threads that hold sums call these together: the whole block, or its first SHARERS threads if it has a
// producer. A spinning block waits for one that is resident or done (units.py).
#pragma once

#include "config.cuh"

__device__ __forceinline__ void sharers_barrier() {
#if SHARERS
  asm volatile("bar.sync 1, %0;" ::"n"(SHARERS) : "memory");
#else
  __syncthreads();
#endif
}

// Wait until the flag has been raised `needed` times. Then everything that the raising blocks wrote before is
// visible to this block.
__device__ __forceinline__ void wait_for_flag(const int* flag, int needed) {
  if (threadIdx.x == 0 && needed > 0) {
    int raised;
    do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
    while (raised < needed);
  }
  sharers_barrier();
}

// Raise the flag after the block's writes to its slot. A separate reduction has `count` flags in a row.
__device__ __forceinline__ void raise_flag(int* flag, int count = 1) {
  sharers_barrier();
  if (threadIdx.x < 32)
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += 32)
      asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(flag + i) : "memory");
}

// The block that finishes a tile resets its flag. No block reads it again in this launch, and the next launch
// needs zero.
__device__ __forceinline__ void reset_flag(int* flag) {
  if (threadIdx.x == 0) asm volatile("st.relaxed.gpu.global.s32 [%0], 0;" ::"l"(flag) : "memory");
}
