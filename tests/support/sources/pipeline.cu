// Sums of rows, as a Hopper kernel moves them: in each of two blocks a producer loads half a row for both,
// four warps add it to their sums and store these with TMA. FAULT breaks one thing.
#include "hopper.cuh"
#ifndef FAULT
#define FAULT 0
#endif
enum {
  SOUND,
  ARRIVES_TWICE,
  EXPECTS_NOTHING,
  WRONG_PARITY,
  READS_EARLY,
  NO_PROXY_FENCE,
  LOADS_EARLY,
  WRITES_EARLY,
  LEAVES_EARLY,
  STARTS_EARLY
};
constexpr int STAGES = 2, ROW = 256, HALF = ROW / 2;

__device__ __forceinline__ void load_half(float* shared, const float* from, Barrier* full) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
      "[%3], %4;" ::"r"(shared_address(shared)),
      "l"(from), "r"(HALF * 4), "r"(shared_address(full)), "h"((short)3)
      : "memory");
}
__device__ __forceinline__ void store_row(float* to, const float* shared) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(shared)), "r"(ROW * 4)
               : "memory");
}
__device__ __forceinline__ void consumers_meet() { asm volatile("bar.sync 1, 128;" ::: "memory"); }

extern "C" __global__ void pipeline(const float* rows, float* sums, int steps) {
  __shared__ __align__(128) float stage[STAGES][ROW], line[ROW];
  __shared__ Barrier full[STAGES], empty[STAGES];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = cluster_rank();
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) barrier_init(&full[i], 1), barrier_init(&empty[i], 8);
    barrier_init_fence();
  }
  if (FAULT == STARTS_EARLY) __syncthreads();
  else cluster_barrier();
  if (threadIdx.x == 128) {
    for (int step = 0; step < steps; ++step) {
      const int s = step % STAGES, round = step / STAGES;
      if (FAULT != LOADS_EARLY) barrier_wait(&empty[s], round % 2 ^ 1);
      if (FAULT == EXPECTS_NOTHING) barrier_arrive(&full[s]);
      else barrier_arrive_expect(&full[s], ROW * 4);
      load_half(&stage[s][rank * HALF], rows + step * ROW + rank * HALF, &full[s]);
    }
  } else if (warp < 4) {
    float mine[2] = {};
    for (int step = 0; step < steps; ++step) {
      const int s = step % STAGES, parity = step / STAGES % 2;
      if (FAULT != READS_EARLY) barrier_wait(&full[s], FAULT == WRONG_PARITY ? parity ^ 1 : parity);
      for (int i = 0; i < 2; ++i) mine[i] += stage[s][threadIdx.x + i * 128];
      __syncwarp();
      if (lane < 2) barrier_arrive_at(&empty[s], lane);
      if (FAULT == ARRIVES_TWICE && lane < 2) barrier_arrive_at(&empty[s], lane);
      if (FAULT != WRITES_EARLY && threadIdx.x == 0) tma_store_wait_read<0>();
      consumers_meet();
      for (int i = 0; i < 2; ++i) line[threadIdx.x + i * 128] = mine[i];
      if (FAULT != NO_PROXY_FENCE) proxy_fence();
      consumers_meet();
      if (threadIdx.x == 0) store_row(sums + (blockIdx.x * steps + step) * ROW, line), tma_store_commit();
    }
    if (threadIdx.x == 0) tma_store_wait<0>();
  }
  if (FAULT != LEAVES_EARLY) cluster_barrier();
}
