// Lesson:   a warp that waits for memory does not multiply: another one orders the tiles, and those that
//           multiply never meet.
// From:     18_bank_order
// Change:   a producer thread waits until a stage is empty and orders the next tile into it. Each consumer
//           warp says by an mbarrier when it has read a stage. The producer's warpgroup gives its registers
//           to the consumers.
// Predicts: no barrier of the block is left in the loop: a warp may be STAGES - 1 steps ahead of another. The
//           fmas are the limit: 91 % of it in the loop. 1.02x to 1.05x.
// Measured: 4096^3: 53.7 TFLOP/s, 104.4 % of cuBLAS (H200,
//           results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   full[s], empty[s]: one pair of mbarriers a stage
//
//   producer  | wait empty[s] | order A, B -> stage s | ...          one thread, 24 registers
//   consumers | wait full[s]  | 8 chunks of stage s   | free s | ... 8 warps, 240 registers a thread
#include "common.cuh"
#include "config.cuh"
#include "hopper.cuh"

// Config: BM 256, BN 128, BK 32, WM 64, WN 64, TM 16, TN 8, STAGES 4;
//         fp16: BK 64;
//         fp64: BM 128, BK 16, WM 32, TM 8
constexpr int CONSUMERS =
    BM / WM * (BN / WN) *
    32;  // registers move between whole warpgroups: the producer's three other warps only give
constexpr int THREADS = CONSUMERS + 128;
constexpr int LANES_M = WM / TM;
constexpr int LANES_N = WN / TN;
// elements of one load of a fragment: 16 bytes, 8 of half; k of a chunk
constexpr int VEC = sizeof(T) < 8 ? 4 : 2;
constexpr int ROWS = 8;  // of a thread's TM that are in registers at once
static_assert(BK * sizeof(T) == 128, "TMA's swizzle works on rows of 128 bytes");
static_assert(LANES_M == 4 && LANES_N == 8, "a warp is 4 by 8 lanes; 4 rows of A lie in different banks");
static_assert(BM % WM == 0 && BN % WN == 0 && BM <= 256 && BN <= 256,
              "warp tiles divide the tile of C; a box has 256 elements a side at most");
static_assert(CONSUMERS == 256,
              "240 registers for 256 consumers and 24 for 128 producers are the SM's 65536");
static_assert(TM % ROWS == 0 && TN % VEC == 0, "a thread loads whole vectors");
static_assert(STAGES >= 3,
              "one tile is read, the next one is waited for a tile ahead, one at least is under way");

struct alignas(sizeof(T) * VEC) Vec {
  T at[VEC];
};
// the swizzle counts rows of 128 bytes from a multiple of 1024
struct alignas(1024) Stage {
  T A[BM * BK], B[BK * BN];
};
struct Pipeline {
  Stage stage[STAGES];
  Barrier full[STAGES], empty[STAGES];
};

// The boxes of one step, to one stage; `full` hears when all bytes are there.
__device__ __forceinline__ void load(Stage& stage, Barrier* full, const TensorMap* a_map,
                                     const TensorMap* b_map, int row, int col, int k) {
  barrier_arrive_expect(full, sizeof(T) * (BM + BN) * BK);
  tma_load(stage.A, a_map, k, row, full);
  tma_load(stage.B, b_map, col, k, full);
}

// The n-th column to visit: forth in even rows, back in odd ones, so that two rows meet in one column and
// share its B. They meet where B lies in the bank of A (both alternate with their index), which leaves the
// other bank to the sum.
__device__ constexpr int column(int row, int k, int n) {
  const int at = row % 2 ? TN - 1 - n : n;
  if (k % 2) return at < 2 ? 1 - at : at;
  return at < TN - 2 ? at : 2 * TN - 3 - at;
}

__device__ __forceinline__ Vec read_shared(unsigned address) {
  return *static_cast<const Vec*>(__cvta_shared_to_generic(address));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    producer_warp(int M, int N, int K, Acc alpha, const __grid_constant__ TensorMap a_map,
                  const __grid_constant__ TensorMap b_map, Acc beta, T* C, i64 ldc) {
  // Where am I: the tile of C and my TM x TN elements in it, rows LANES_M apart.
  const int tiles_n = ceil_div(N, BN), steps = ceil_div(K, BK);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int lane_row = lane % 2 + lane / 4 % 2 * 2, lane_col = lane / 2 % 2 + lane / 8 * 2;
  const int thread_row = warp / (BN / WN) * WM + lane_row,
            thread_col = warp % (BN / WN) * WN + lane_col * VEC;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  extern __shared__ __align__(1024) char shared[];
  Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(&pipeline.full[i], 1);
      barrier_init(&pipeline.empty[i], CONSUMERS / 32);
    }
    barrier_init_fence();
  }
  __syncthreads();  // nobody uses a barrier before it is initialised

  int stage = 0;
  if (warp >= CONSUMERS / 32) {
    // Load: one thread, as far ahead as stages are empty.
    give_registers_back<24>();
    if (threadIdx.x != CONSUMERS) return;
    int parity = 1;
    for (int step = 0; step < steps; ++step) {
      barrier_wait(&pipeline.empty[stage], parity);
      load(pipeline.stage[stage], &pipeline.full[stage], &a_map, &b_map, tile_row, tile_col, step * BK);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    return;
  }

  // What I read: rows thread_row + 4 i of A, even and odd i with their swizzle; columns thread_col + LANES_N
  // * VEC j of B.
  take_registers<240>();
  const unsigned a_lane = thread_row * 128 + lane_row * 16, b_lane = sizeof(T) * (BM * BK + thread_col);
  unsigned a_even = a_lane, a_odd = a_lane ^ 64, base = shared_address(pipeline.stage), b_base = base;
  Vec a[ROWS], b[VEC][TN / VEC];
  const auto load_a = [&](int i) {
    a[i % ROWS] = read_shared(base + (i % 2 ? a_odd : a_even) + i * LANES_M * 128);
  };
  const auto load_b = [&](int k) {
#pragma unroll
    for (int j = 0; j < TN / VEC; ++j)
      b[k][j] = read_shared(b_base + b_lane + (k * BN + j * LANES_N * VEC) * sizeof(T));
  };

  // [i][j ^ 1] is column j: sums travel in quads of registers, as B does, and must not share its banks
  Acc acc[TM][TN] = {};
  int parity = 0;
  if (steps > 0) {
    barrier_wait(&pipeline.full[stage], parity);
#pragma unroll
    for (int i = 0; i < ROWS; ++i) load_a(i);
#pragma unroll
    for (int k = 0; k < VEC; ++k) load_b(k);
  }
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int freed = stage;
    if (++stage == STAGES) stage = 0, parity ^= 1;
    const unsigned next_base = shared_address(&pipeline.stage[stage]);
    // The last chunk reads the first of the next step ahead.
    if (step + 1 < steps) barrier_wait(&pipeline.full[stage], parity);

    // Compute: chunk c of the tile, while the fragments of the next chunk replace those of this one.
#pragma unroll 1
    for (unsigned piece = 0; piece < 128; piece += VEC * sizeof(T)) {
#pragma unroll
      for (int i0 = 0; i0 < TM; i0 += ROWS) {
        if (i0 + ROWS == TM) {  // rows 0 .. ROWS - 1 and all of B come from the next chunk now
          const unsigned next = (piece + VEC * sizeof(T)) % 128;
          if (next == 0) base = next_base;
          a_even = a_lane ^ next;
          a_odd = a_even ^ 64;
          b_base = base + next * BN;
        }
#pragma unroll
        for (int k = 0; k < VEC; ++k) {
#pragma unroll
          for (int i = i0; i < i0 + ROWS; ++i) {
#pragma unroll
            for (int n = 0; n < TN; ++n) {
              const int j = column(i, k, n);
              acc[i][j ^ 1] += Acc(a[i % ROWS].at[k]) * Acc(b[k][j / VEC].at[j % VEC]);
            }
            if (k == VEC - 1) load_a((i + ROWS) % TM);
          }
          if (i0 + ROWS == TM) load_b(k);
        }
      }
    }
    __syncwarp();  // all lanes have read the tile
    if (lane == 0) barrier_arrive(&pipeline.empty[freed]);
  }

  // Store.
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; j += VEC) {
      Acc sums[VEC];
#pragma unroll
      for (int e = 0; e < VEC; ++e) sums[e] = acc[i][j + e ^ 1];
      if constexpr (VEC == 4) {
        store4(C, ldc, row + i * LANES_M, col + j * LANES_N, M, N, alpha, sums, beta);
      } else {
        store(C, ldc, row + i * LANES_M, col + j * LANES_N, M, N, alpha, sums[0], beta);
        store(C, ldc, row + i * LANES_M, col + j * LANES_N + 1, M, N, alpha, sums[1], beta);
      }
    }
}
