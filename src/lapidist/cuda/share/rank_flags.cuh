// Flags by which ranks tell each other what is there, in memory that their cards share.
//
// A wait has a limit. Behind it the kernel tells the host which flag it missed, and goes on with what is
// there: a kernel that waits for ever takes its card with it.
#pragma once

#include "config.cuh"

__device__ __forceinline__ int value_of(const int* flag) {
  int value;
  asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

__device__ __forceinline__ bool raised(const int* flag) { return value_of(flag) != 0; }

// What this thread knows was written before.
__device__ __forceinline__ void set_flag(int* flag, int value) {
  asm volatile("st.release.sys.global.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

// Whether `is_there` became true before the limit, in nanoseconds. If not, `missed` is reported.
template <typename Condition>
__device__ __forceinline__ bool came_in_time(const Condition& is_there, long long limit,
                                             unsigned long long* report, unsigned long long missed) {
  unsigned long long start, now;
  for (bool began = false; !is_there(); began = true) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (!began) start = now;
    if (now - start < limit) continue;
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(report), "l"(missed) : "memory");
    return false;
  }
  return true;
}

__device__ __forceinline__ bool raised_in_time(const int* flag, long long limit, unsigned long long* report,
                                               unsigned long long missed) {
  return came_in_time([flag] { return raised(flag); }, limit, report, missed);
}
