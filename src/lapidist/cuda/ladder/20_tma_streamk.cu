// Lesson:   blocks that stay for many tiles can share the last ones along k, so that all SMs end together.
// From:     19_producer_warp
// Change:   one block an SM stays for many tiles of C. Producer and consumers walk the same list of them.
//           What is left over whole rounds of tiles is split along k (Stream-K). The loop over a
//           chunk now stands in bank_order.cuh, as gemm/sgemm.cu has it too.
// Predicts: a chunk is 512 fmas, 24 loads and 16 others. 8 of its fmas find two operands in one bank. That is
//           91 % of the limit. At 4096^3, 512 tiles on 132 SMs take 3.88 rounds in place of four: 3 % less
//           time.
// Measured: 4096^3: 55.5 TFLOP/s, 107.9 % of cuBLAS (H200,
//           results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   unit of a block: a tile's k, most of them all of it
//
//   producer  | wait empty | order A, B of unit after unit -> stage s | ...
//   consumers | wait full  | 8 chunks of stage s | ... | sums -> C, or to who shares the tile | next unit
#include "bank_order.cuh"
#include "config.cuh"
#include "hopper.cuh"
#include "share/sharing.cuh"

// Config: BM 256, BN 128, BK 32, WM 64, WN 64, TM 16, TN 8, STAGES 4;
//         fp16: BK 64;
//         fp64: BM 128, BK 16, WM 32, TM 8
// elements of one load of a fragment: 16 bytes, 8 of half; k of a chunk
constexpr int VEC = sizeof(T) < 8 ? 4 : 2;
constexpr int ROWS = 8;  // of a thread's TM that are in registers at once
constexpr int CONSUMERS =
    BM / WM * (BN / WN) *
    32;  // registers move between whole warpgroups: the producer's three other warps only give
constexpr int THREADS = CONSUMERS + 128;
constexpr int LANES_M = WM / TM;
constexpr int LANES_N = WN / TN;
constexpr int CHUNKS = BK / VEC;
static_assert(BK * sizeof(T) == 128, "TMA's swizzle works on rows of 128 bytes");
static_assert(LANES_M == 4 && LANES_N == 8, "a warp is 4 by 8 lanes; 4 rows of A lie in different banks");
static_assert(BM % WM == 0 && BN % WN == 0 && BM <= 256,
              "warp tiles divide the tile of C; a box has 256 rows at most");
static_assert(CONSUMERS == SHARERS,
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

__device__ __forceinline__ Vec read_shared(unsigned address) {
  return *static_cast<const Vec*>(__cvta_shared_to_generic(address));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    tma_streamk(int M, int N, int K, Acc alpha, const __grid_constant__ TensorMap a_map,
                const __grid_constant__ TensorMap b_map, Acc beta, T* C, i64 ldc,
                const __grid_constant__ Schedule schedule, Workspace workspace) {
  // Where am I: my TM x TN elements of a tile of C.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int lane_row = lane % 2 + lane / 4 % 2 * 2, lane_col = lane / 2 % 2 + lane / 8 * 2;
  const int thread_row = warp / (BN / WN) * WM + lane_row,
            thread_col = warp % (BN / WN) * WN + lane_col * VEC;

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

  if (warp >= CONSUMERS / 32) {
    // Load: one thread orders tile after tile, as far ahead as stages are empty.
    give_registers_back<24>();
    if (threadIdx.x != CONSUMERS) return;
    int stage = 0, parity = 1;
    Work work(schedule);
    while (work.next()) {
      const WorkUnit& unit = work.unit;
      for (int step = unit.k_begin; step < unit.k_end; ++step) {
        barrier_wait(&pipeline.empty[stage], parity);
        barrier_arrive_expect(&pipeline.full[stage], sizeof(T) * (BM + BN) * BK);
        tma_load(pipeline.stage[stage].A, &a_map, step * BK, unit.row * BM, &pipeline.full[stage]);
        tma_load(pipeline.stage[stage].B, &b_map, unit.column * BN, step * BK, &pipeline.full[stage]);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
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

  int stage = 0, parity = 0;
  Work work(schedule);
  while (work.next()) {
    const WorkUnit& unit = work.unit;
    // [i][j ^ 1] is column j: sums travel in quads of registers, as B does, and must not share its banks
    Acc acc[TM][TN] = {};
    if (unit.k_begin < unit.k_end) {
      barrier_wait(&pipeline.full[stage], parity);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) load_a(i);
#pragma unroll
      for (int k = 0; k < VEC; ++k) load_b(k);
    }
#pragma unroll 1
    for (int step = unit.k_begin; step < unit.k_end; ++step) {
      const int freed = stage;
      if (++stage == STAGES) stage = 0, parity ^= 1;
      const unsigned next_base = shared_address(&pipeline.stage[stage]);
      // The last chunk reads the first of the next step ahead.
      if (step + 1 < unit.k_end) barrier_wait(&pipeline.full[stage], parity);

      // Compute: chunk c of the tile, while the fragments of the next chunk replace those of this one.
#pragma unroll 1
      for (unsigned piece = 0; piece < 128; piece += VEC * sizeof(T))
        multiply_chunk<true>(
            acc, a, b,
            [&] {  // rows 0 .. ROWS - 1 and all of B come from the next chunk now
              const unsigned next = (piece + VEC * sizeof(T)) % 128;
              if (next == 0) base = next_base;
              a_even = a_lane ^ next;
              a_odd = a_even ^ 64;
              b_base = base + next * BN;
            },
            [&](int i, int k) {
              if (k == VEC - 1) load_a(i);
            },
            load_b);
      __syncwarp();  // all lanes have read the tile
      if (lane == 0) barrier_arrive(&pipeline.empty[freed]);
    }

    // Store.
    if (!work.combine<CONSUMERS>(workspace, shared, acc)) continue;
    const int row = unit.row * BM + thread_row, col = unit.column * BN + thread_col;
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
}
