// Constants that follow from gemm/sgemm.cu's config, and a block's shared memory: stages of A and B, and
// space for sums in the epilogue.
#pragma once

#include "config.cuh"
#include "gemm/sgemm/operands.cuh"
#include "gemm/slices.cuh"
#include "gemm/sgemm/store.cuh"
#include "share/grouped_work.cuh"
#include "share/unit_queue.cuh"

constexpr int VEC = 4;   // elements of a load, and k of a chunk
constexpr int ROWS = 8;  // of a thread's TM rows of A, those in registers at once
constexpr int CHUNKS = BK / VEC / SLICES;
// registers move between whole warpgroups: three of the producer's warps only give theirs away
constexpr int THREADS = CONSUMERS + 128;
static_assert(sizeof(T) * BK == 128, "TMA's swizzle works on rows of 128 bytes");
static_assert(WM == PATCH_ROWS * TM && WN == PATCH_COLS && WN == 8 * TN, "a warp is 4 by 8 lanes");
static_assert(TM == 2 * ROWS && TN == 8, "half of a thread's rows are in registers at once");
static_assert(CONSUMERS == SHARERS,
              "240 registers for 256 consumers and 24 for 128 producers are the SM's 65536");
static_assert(BM <= 256 && BN <= 256, "a box has 256 elements a side at most");
static_assert(STAGES >= 2, "one tile is read while the next one is waited for");
static_assert(CHUNKS >= 1 && CHUNKS * SLICES * VEC == BK, "slices have whole chunks of a stage");

// TMA's swizzle repeats every 1024 bytes
struct alignas(1024) Stage {
  T A[BM * BK], B[BK * BN];
};
struct Pipeline {
  Stage stage[STAGES];
  Barrier full[STAGES], empty[STAGES];
#if D_VECTOR < 4
  Patch patch[CONSUMERS / 32];
#endif
#if SLICES > 1
  Meeting meeting;
#endif
#if RAGGED
  QueueOf<TileOfGroup> queue;
#endif
};

// One thread calls this before any barrier is used.
__device__ __forceinline__ void init_barriers(Pipeline& pipeline) {
  for (int i = 0; i < STAGES; ++i)
    barrier_init(&pipeline.full[i], 1), barrier_init(&pipeline.empty[i], CONSUMERS / 32);
#if RAGGED
  pipeline.queue.init(CONSUMERS / 32);
#endif
  barrier_init_fence();
}
