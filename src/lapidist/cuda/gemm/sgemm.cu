// The fp32 family for Hopper: CUDA cores fed by the copy engine, persistent, Stream-K. Every layout, alignment and size.
//
// D = alpha A B + beta C. D is row-major; A and B touch along rows or columns; C has any strides. The shape of the work is that
// of rung 15: 256 consumers with 16 x 8 results each, operands in chunks of four k. How tiles lie in shared memory:
//
//   A_ALONG_K 1   rows of A, 128 bytes of k each, swizzled (piece ^ row % 8): a thread reads four k of one row
//   A_ALONG_K 0   rows of one k: a thread reads four rows of A at that k
//   B             rows of one k, always: with four k of one column in a quad of registers, as A has them, every second
//                 product would find its operands in one register bank
//
// What the copy engine cannot bring so is copied first, by all blocks together (packing.cuh): matrices whose lines do not
// start on 16 bytes (PACK_A, PACK_B), and a B that touches along k (B_ALONG_K), which is turned on the way.
//
// A tile of D is 256 x 128 and an SM holds one block, so a product seldom has a whole number of tiles for each SM. What is
// left over the full waves is split along k (schedule.cuh), and its sums meet in the workspace (sharing.cuh).
#include "common.cuh"

#define SHARERS 256  // of the block's threads, the first: the consumers
#include "packing.cuh"

#ifndef BM
#define BM 256
#define BN 128
#define BK 32
#define WM 64
#define WN 64
#define TM 16
#define TN 8
#define STAGES 4
#endif
#ifndef A_ALONG_K
#define A_ALONG_K 1
#define B_ALONG_K 0
#define PACK_A 0
#define PACK_B 0
#define D_VECTOR 1
#endif
#define VEC 4   // elements of a load, and k of a chunk
#define ROWS 8  // of a thread's TM that are in registers at once
#define CHUNKS (BK / VEC)
#define CONSUMERS (BM / WM * (BN / WN) * 32)
#define THREADS (CONSUMERS + 128)  // registers move between whole warpgroups: three of the producer's warps only give
static_assert(sizeof(T) * BK == 128, "the copy engine's swizzle works on rows of 128 bytes");
static_assert(WM == 4 * TM && WN == 8 * TN, "a warp is 4 by 8 lanes");
static_assert(TM == 2 * ROWS && TN == 8, "half of a thread's rows are in registers at once");
static_assert(CONSUMERS == SHARERS, "240 registers for 256 consumers and 24 for 128 producers are the SM's 65536");
static_assert(BM <= 256 && BN <= 256, "a box has 256 elements a side at most");

struct alignas(1024) Stage { T A[BM * BK], B[BK * BN]; };  // the swizzle counts rows of 128 bytes from a multiple of 1024
struct Pipeline { Stage stage[STAGES]; Barrier full[STAGES], empty[STAGES]; };

// The n-th column to visit: forth in even rows, back in odd ones, so that two rows meet in one column and share its B. The
// register file has two banks with one read a cycle each. A sum lies in the other bank than its B (see acc), and where two
// rows meet, A must lie in that of B: along k it does if the column is even as k is.
__device__ constexpr int column(int row, int k, int n) {
  const int at = row % 2 ? TN - 1 - n : n;
  if (!A_ALONG_K) return at;
  if (k % 2) return at < 2 ? 1 - at : at;
  return at < TN - 2 ? at : 2 * TN - 3 - at;
}

__device__ __forceinline__ Four<T> read_four(unsigned address) {
  return *static_cast<const Four<T>*>(__cvta_shared_to_generic(address));
}

// Operands that the copy engine cannot bring as they lie, into the workspace. Returns the workspace behind them.
__device__ __forceinline__ Workspace pack_operands(const T* A, i64 a_pitch, const T* B, i64 b_pitch, int M, int N, int K,
                                                   Workspace workspace) {
  if (!PACK_A && !PACK_B) return workspace;
  T* room = static_cast<T*>(workspace.slots);
  int block = blockIdx.x;
  if (PACK_A) room += pack<!A_ALONG_K, false>(room, A, a_pitch, M, K, block);
  if (PACK_B && !B_ALONG_K) room += pack<true, false>(room, B, b_pitch, N, K, block);
  if (PACK_B && B_ALONG_K) {
    const i64 pitch = packed_step<T>(N);
    pack_turned(room, pitch, B, b_pitch, N, K, block);
    room += K * pitch;
  }
  meet_all_blocks(workspace.flags);
  return Workspace{workspace.flags + PACKING_FLAGS, room};
}

// D[0 .. 3] = alpha * sums + beta * C[0 .. 3], of which the first `exist` exist. beta = 0 never reads C.
__device__ __forceinline__ void store_four(T* D, const T* C, i64 c_col, int exist, Acc alpha, const Acc* acc, Acc beta) {
  Four<T> four;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    four.at[i] = alpha * acc[i ^ 1];
    if (beta != Acc(0) && i < exist) four.at[i] += beta * C[i * c_col];
  }
  if (D_VECTOR == 4 && exist >= 4) {
    *reinterpret_cast<Four<T>*>(D) = four;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i < exist) D[i] = four.at[i];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
sgemm(int M, int N, int K, Acc alpha, Acc beta, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
      const T* A, const T* B, const T* C, T* D, i64 a_row, i64 a_col, i64 b_row, i64 b_col, i64 c_row, i64 c_col, i64 d_row,
      const __grid_constant__ Schedule schedule, Workspace workspace) {
  extern __shared__ __align__(1024) char shared[];
  Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared);
  workspace = pack_operands(A, A_ALONG_K ? a_row : a_col, B, B_ALONG_K ? b_col : b_row, M, N, K, workspace);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(&pipeline.full[i], 1);
      barrier_init(&pipeline.empty[i], CONSUMERS / 32);
    }
    barrier_init_fence();
  }
  __syncthreads();  // nobody uses a barrier before it is initialised
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Work work(schedule);

  if (warp >= CONSUMERS / 32) {
    // Load: one thread orders the tiles of the same units as below, as far ahead as stages are empty.
    give_registers_back<24>();
    if (threadIdx.x != CONSUMERS) return;
    int stage = 0, parity = 1;
    while (work.next()) {
      const int row = work.unit.row * BM, col = work.unit.column * BN;
      for (int k = work.unit.k_begin * BK; k < work.unit.k_end * BK; k += BK) {
        Stage& to = pipeline.stage[stage];
        Barrier* const full = &pipeline.full[stage];
        barrier_wait(&pipeline.empty[stage], parity);
        barrier_arrive_expect(full, sizeof(T) * (BM + BN) * BK);
        tma_load(to.A, &a_map, A_ALONG_K ? k : row, A_ALONG_K ? row : k, full);
        tma_load(to.B, &b_map, col, k, full);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
    return;
  }

  // Where am I in a tile, and what I read: line(i) of A in groups of four, four columns of B and four further ones.
  take_registers<240>();
  const int lane_row = lane % 2 + lane / 4 % 2 * 2, lane_col = lane / 2 % 2 + lane / 8 * 2;
  const int warp_row = warp / (BN / WN) * WM, thread_col = warp % (BN / WN) * WN + lane_col * VEC;
  const auto line = [&](int i) { return warp_row + (A_ALONG_K ? lane_row + 4 * i : lane_row * 4 + i / 4 * 16 + i % 4); };
  const unsigned a_lane = A_ALONG_K ? line(0) * 128 + lane_row * 16 : sizeof(T) * line(0);
  const unsigned b_lane = sizeof(T) * (BM * BK + thread_col);
  Acc a[ROWS][VEC], b[VEC][TN], acc[TM][TN];  // acc[i][j ^ 1] is column j: quads of b and of acc then lie in opposite banks
  unsigned base, a_even, a_odd, b_at;

  const auto go_to = [&](int chunk) {
    a_even = base + (A_ALONG_K ? a_lane ^ chunk * 16 : a_lane + VEC * chunk * BM * sizeof(T));
    a_odd = a_even ^ 64;
    b_at = base + b_lane + VEC * chunk * BN * sizeof(T);
  };
  const auto load_a_row = [&](int i) {
    const Four<T> four = read_four((i % 2 ? a_odd : a_even) + i * 4 * 128);
#pragma unroll
    for (int k = 0; k < VEC; ++k) a[i % ROWS][k] = four.at[k];
  };
  const auto load_a_rows = [&](int i, int k) {
    const Four<T> four = read_four(a_even + (k * BM + i * 4) * sizeof(T));
#pragma unroll
    for (int e = 0; e < 4; ++e) a[i % ROWS + e][k] = four.at[e];
  };
  const auto load_b = [&](int k) {
#pragma unroll
    for (int j = 0; j < TN; j += 4) {
      const Four<T> four = read_four(b_at + (k * BN + j * 8) * sizeof(T));
#pragma unroll
      for (int e = 0; e < 4; ++e) b[k][j + e] = four.at[e];
    }
  };

  int stage = 0, parity = 0;
  while (work.next()) {
    const WorkUnit& unit = work.unit;
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) acc[i][j] = 0;
    if (unit.k_begin < unit.k_end) {
      barrier_wait(&pipeline.full[stage], parity);
      base = shared_address(&pipeline.stage[stage]);
      go_to(0);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        if (A_ALONG_K) load_a_row(i);
        else if (i % 4 == 0)
#pragma unroll
          for (int k = 0; k < VEC; ++k) load_a_rows(i, k);
      }
#pragma unroll
      for (int k = 0; k < VEC; ++k) load_b(k);
    }
#pragma unroll 1
    for (int step = unit.k_begin; step < unit.k_end; ++step) {
      const int freed = stage;
      if (++stage == STAGES) stage = 0, parity ^= 1;
      unsigned next_base = base;  // after the unit's last step: what is read ahead is not used
      if (step + 1 < unit.k_end) {
        barrier_wait(&pipeline.full[stage], parity);
        next_base = shared_address(&pipeline.stage[stage]);
      }

      // Compute: a chunk, while the fragments of the next one replace those of this one.
#pragma unroll 1
      for (int chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll
        for (int i0 = 0; i0 < TM; i0 += ROWS) {
          if (i0 + ROWS == TM) {  // rows 0 .. ROWS - 1 and all of B come from the next chunk now
            if (chunk + 1 == CHUNKS) base = next_base;
            go_to((chunk + 1) % CHUNKS);
          }
#pragma unroll
          for (int k = 0; k < VEC; ++k) {
#pragma unroll
            for (int i = i0; i < i0 + ROWS; ++i) {
#pragma unroll
              for (int n = 0; n < TN; ++n) {
                const int j = column(i, k, n);
                acc[i][j ^ 1] += a[i % ROWS][k] * b[k][j];
              }
              if (A_ALONG_K && k == VEC - 1) load_a_row((i + ROWS) % TM);
              if (!A_ALONG_K && i % 4 == 3) load_a_rows((i - 3 + ROWS) % TM, k);
            }
            if (i0 + ROWS == TM) load_b(k);
          }
        }
      }
      __syncwarp();  // all lanes have read the stage
      if (lane == 0) barrier_arrive(&pipeline.empty[freed]);
    }

    // Store.
    if (!work.combine<CONSUMERS>(workspace, shared, acc)) continue;
    const int col = unit.column * BN + thread_col;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      const int row = unit.row * BM + line(i);
      if (row >= M || !work.owns_row(i)) continue;
#pragma unroll
      for (int j = 0; j < TN; j += 4)
        store_four(D + row * d_row + col + j * 8, C + row * c_row + (col + j * 8) * c_col, c_col, N - col - j * 8, alpha,
                   &acc[i][j], beta);
    }
  }
}
