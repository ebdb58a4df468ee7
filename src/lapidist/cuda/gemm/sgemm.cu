// The fp32 family for Hopper: CUDA cores fed by the copy engine, persistent, Stream-K. Every layout,
// alignment, batch and size.
//
// D = alpha A B + beta C. D is row-major; A and B touch along rows or columns; C has any strides. The shape
// of the work is that of rung 20: 256 consumers with 16 x 8 results each, operands in chunks of four k. How
// tiles lie in shared memory:
//
//   A_ALONG_K 1   rows of A, 128 bytes of k each, swizzled (piece ^ row % 8): a thread reads four k of one
//                 row
//   A_ALONG_K 0   rows of one k: a thread reads four rows of A at that k
//   B             rows of one k, always: with four k of one column in a quad of registers, as A has them,
//                 every second product would find its operands in one register bank
//
// What the copy engine cannot bring so is copied first (gemm/sgemm/operands.cuh). Batches are dimensions of
// its maps (BATCHED).
//
// An SM holds one block, so a product seldom has a whole number of tiles for each SM. What is left over the
// full waves is split along k (share/schedule.cuh), and its sums meet in the workspace (share/sharing.cuh).
// Tiles of less than 256 x 128 leave warps over, which have slices of k (gemm/sgemm/slices.cuh).
#include "common.cuh"

#define SHARERS 256  // of the block's threads, the first: the consumers
// by turnstile they would come to lie in one bank, and the main loop wait for them
#define SUMS_BY_EIGHTS SEPARATE
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
#ifndef BATCHED  // 0: one matrix, nothing to step through
#define BATCHED 0
#endif
#ifndef SLICES  // of k in each stage, with warps of their own: tiles have fewer warps than the block
#define SLICES 1
#endif
#define TILE_WARPS (BM / WM * (BN / WN))
#define CONSUMERS (TILE_WARPS * SLICES * 32)
#include "gemm/sgemm/operands.cuh"
#include "gemm/sgemm/slices.cuh"
#include "gemm/sgemm/store.cuh"

#define VEC 4   // elements of a load, and k of a chunk
#define ROWS 8  // of a thread's TM that are in registers at once
#define CHUNKS (BK / VEC / SLICES)
// registers move between whole warpgroups: three of the producer's warps only give
#define THREADS (CONSUMERS + 128)
static_assert(sizeof(T) * BK == 128, "the copy engine's swizzle works on rows of 128 bytes");
static_assert(WM == PATCH_ROWS * TM && WN == PATCH_COLS && WN == 8 * TN, "a warp is 4 by 8 lanes");
static_assert(TM == 2 * ROWS && TN == 8, "half of a thread's rows are in registers at once");
static_assert(CONSUMERS == SHARERS,
              "240 registers for 256 consumers and 24 for 128 producers are the SM's 65536");
static_assert(BM <= 256 && BN <= 256, "a box has 256 elements a side at most");
static_assert(STAGES >= 2, "one tile is read while the next one is waited for");
static_assert(CHUNKS >= 1 && CHUNKS * SLICES * VEC == BK, "slices have whole chunks of a stage");

// the swizzle counts rows of 128 bytes from a multiple of 1024
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
};

// The n-th column to visit: forth in even rows, back in odd ones, so that two rows meet in one column and
// share its B. The register file has two banks with one read a cycle each. A sum lies in the other bank than
// its B (see acc), and where two rows meet, A must lie in that of B: along k it does if the column is even as
// k is. So the two columns there change places. No branches: those of a thousand calls took the compiler a
// second.
__device__ constexpr int column(int row, int k, int n) {
  const int at = n ^ row % 2 * (TN - 1), meeting = (1 - k % 2) * (TN - 2);
  return A_ALONG_K ? at ^ (at / 2 == meeting / 2) : at;
}

__device__ __forceinline__ Four<T> read_four(unsigned address) {
  return *static_cast<const Four<T>*>(__cvta_shared_to_generic(address));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sgemm(int M, int N, int K, int batch, int batches, Acc alpha, Acc beta,
          const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, const T* A,
          const T* B, const T* C, T* D, i64 a_row, i64 a_col, i64 a_inner, i64 a_outer, i64 b_row, i64 b_col,
          i64 b_inner, i64 b_outer, i64 c_row, i64 c_col, i64 c_inner, i64 c_outer, i64 d_row, i64 d_inner,
          i64 d_outer, Modes modes, const __grid_constant__ Schedule schedule,
          Workspace workspace LISTS EPILOGUE_PARAMETER) {
  if (!BATCHED) batch = batches = 1, a_inner = a_outer = b_inner = b_outer = 0;
  extern __shared__ __align__(1024) char shared[];
  Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared);
  let_next_launch_start();
  if (SCALARS || !(PACKS && AS_THEY_LIE)) wait_for_last_launch();  // else those who pack wait
  modes.read_scalars(alpha, beta);
  const Source a_from{A, a_row, a_col, M, {batch, batches, a_inner, a_outer}, modes.a_rows OF_LIST(a)};
  const Source b_from{B, b_col, b_row, N, {batch, batches, b_inner, b_outer}, modes.b_cols OF_LIST(b)};
  workspace = pack_operands(a_from, b_from, K, workspace);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i)
      barrier_init(&pipeline.full[i], 1), barrier_init(&pipeline.empty[i], CONSUMERS / 32);
    barrier_init_fence();
  }
  __syncthreads();  // nobody uses a barrier before it is initialised
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  if (warp >= CONSUMERS / 32) {
    // Load: one thread orders the tiles of the same units as below, as far ahead as stages are empty.
    give_registers_back<24>();
    if (threadIdx.x != CONSUMERS) return;
    if (PACKS) wait_packed(workspace);
    Work work(schedule);
    for (int stage = 0, parity = 1; work.next();) {
      const int row = work.unit.row * BM, col = work.unit.column * BN;
      const Place of_a = place_in(a_from.batch, work.unit.batch),
                  of_b = place_in(b_from.batch, work.unit.batch);
      for (int k = work.unit.k_begin * BK; k < work.unit.k_end * BK; k += BK) {
        Stage& to = pipeline.stage[stage];
        Barrier* const full = &pipeline.full[stage];
        barrier_wait(&pipeline.empty[stage], parity);
        barrier_arrive_expect(full, sizeof(T) * (BM + BN) * BK);
        load_tile(to.A, &a_map, A_ALONG_K ? k : row, A_ALONG_K ? row : k, of_a, full);
        load_tile(to.B, &b_map, col, k, of_b, full);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
    if (PACKS) leave_packed(workspace);
    return;
  }

  // Where am I in a tile, and what I read: line(i, lane_row) of A in groups of four, four columns of B and
  // four further ones.
  take_registers<240>();
  const int lane_row = lane % 2 + lane / 4 % 2 * 2, lane_col = lane / 2 % 2 + lane / 8 * 2;
  const int slice = SLICES > 1 ? warp / TILE_WARPS : 0, of_tile = SLICES > 1 ? warp % TILE_WARPS : warp;
  const int warp_row = of_tile / (BN / WN) * WM, thread_col = of_tile % (BN / WN) * WN + lane_col * VEC;
  const auto line = [&](int i, int r) {
    return warp_row + (A_ALONG_K ? r + 4 * i : r * 4 + i / 4 * 16 + i % 4);
  };
  // the slice's first chunk is a multiple of its chunks, a power of two: its number and theirs share no bits
  const unsigned skipped = slice * CHUNKS;
  const unsigned a_lane = A_ALONG_K ? (line(0, lane_row) * 128 + lane_row * 16) ^ skipped * 16
                                    : sizeof(T) * (line(0, lane_row) + VEC * skipped * BM);
  const unsigned b_lane = sizeof(T) * (BM * BK + VEC * skipped * BN + thread_col);
  // acc[i][j ^ 1] is column j: quads of b and of acc then lie in opposite banks
  Acc a[ROWS][VEC], b[VEC][TN], acc[TM][TN];
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

  Work work(schedule);
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
      const int chunks = CHUNKS == 1 ? unknown(1) : CHUNKS;
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; ++chunk) {
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
#if SLICES > 1
    Acc sums[OWN_ROWS][TN];
    bring_together(pipeline.meeting, slice, acc, sums);  // those of a reduction block are zero
#else
    Acc(&sums)[TM][TN] = acc;
#endif
    const auto own_line = [&](int i) { return SLICES > 1 ? slice * OWN_ROWS + i : i; };
    if (!work.combine<CONSUMERS>(workspace, shared, sums)) continue;
#if ARRAYS
    C = static_cast<const T*>(lists.c.at[unit.batch]);
    D = static_cast<T*>(const_cast<void*>(lists.d.at[unit.batch]));
#endif
    const i64 inner = BATCHED && !ARRAYS ? unit.batch % batch : 0,
              outer = BATCHED && !ARRAYS ? unit.batch / batch : 0;
    scale_sums(sums, alpha);
    const unsigned owned = work.owned_rows<OWN_ROWS>();
    const auto row = [&](int i) { return owned >> i & 1 ? unit.row * BM + line(own_line(i), lane_row) : M; };
    const auto col = [&](int j) { return unit.column * BN + thread_col + (j / 4 * 32) + (j % 4 ^ 1); };
    add_addend(sums, beta, C + inner * c_inner + outer * c_outer, c_row, c_col, M, N, modes, row, col);
    IF_EPILOGUE(fused::finish(sums, fused::Epilogue(EPILOGUE_PASSED, inner, outer, M, N, modes), row, col);)
    const Output output{modes, D + inner * d_inner + outer * d_outer, d_row, M, N};
#if D_VECTOR == 4
    const Lane out(output, unit.row * BM + line(own_line(0), lane_row), unit.column * BN + thread_col);
#pragma unroll
    for (int i = 0; i < OWN_ROWS; ++i)
      if (owned >> i & 1) out.store(line(i, 0) - line(0, 0), {quad(sums[i], 0), quad(sums[i], 4)});
#else
    const Lane out(output, unit.row * BM + line(own_line(0), 0),
                   unit.column * BN + of_tile % (BN / WN) * WN + lane);
    Patch& patch = pipeline.patch[warp];
#pragma unroll 1
    for (int i0 = 0; i0 < OWN_ROWS; i0 += WRITTEN)
#pragma unroll
      for (int e = 0; e < WRITTEN; ++e) {
        if (!(owned >> (i0 + e) & 1)) continue;
        __syncwarp();  // all lanes have taken up the rows before
        patch.lay(lane_row, lane_col, sums, e, i0 + e);
        __syncwarp();  // the patch is whole
#pragma unroll
        for (int r = 0; r < PATCH_ROWS; ++r)
          out.store(line(i0 + e, r) - line(0, 0), {patch.at[r][lane], patch.at[r][lane + 32]});
      }
#endif
  }
}
