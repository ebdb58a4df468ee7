// The tensor-core family for sm_80 and newer: every type of mma.sync, layout, stride, alignment, batch and
// size.
//
// D = alpha A B + beta C. D is row-major; A, B and C have any strides. Macros say what the host knows:
//   A_CONTIGUOUS   1: contiguous along k (A row-major)   2: along m                   0: neither
//   B_CONTIGUOUS   1: contiguous along k                 2: along n (B row-major)     0: neither
//   A_VECTOR, B_VECTOR   elements loaded at once, as pointers and strides allow: 1, 2, ... up to 16 bytes
//   D_VECTOR             elements stored at once; C_VECTOR is the same if C's rows allow it, else 1; factors: factors.cuh
//
// Rung 24 with loads for all layouts (gemm/mma/move.cuh); the epilogue is in finish.cuh. The main loop stands
// in the kernel itself: as a function it took up to 17 instructions more, of 278. A tile has the same layout
// in shared memory as in global memory:
//
//      contiguous along k      along m or n              moved by
//   m  | chunk chunk |      k  | chunk chunk chunk |     16, 8, 4 bytes: cp.async, STAGES - 1 tiles ahead
//   |  | chunk chunk |      |  | chunk chunk chunk |      2, 1 bytes:    registers, the five words that a chunk lies in,
//   v  | chunk chunk |      v                                            loaded in a tile's first step, stored in its last
// Elements outside the matrix are zero in shared memory. Readers (mma_tile.cuh) make mma.sync's fragments of
// either layout.
#include "config.cuh"
#include "gemm/mma/finish.cuh"
#include "gemm/mma/move.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    mma(int M, int N, int K, Scalar alpha, Scalar beta, const T* A, const T* B, const Out* C, Out* D,
        i64 a_row, i64 a_col, i64 a_inner, i64 a_outer, i64 b_row, i64 b_col, i64 b_inner, i64 b_outer,
        i64 c_row, i64 c_col, i64 c_inner, i64 c_outer, i64 d_row, i64 d_inner, i64 d_outer, int batch,
        Modes modes, Schedule schedule,
        Workspace workspace LISTS SCALES_PARAMETER RAGGED_PARAMETER EPILOGUE_PARAMETER) {
  modes.read_scalars(alpha, beta);
  if (modes.is_off()) return;
  const Product whole = {M,
                         N,
                         K,
                         alpha,
                         beta,
                         A,
                         B,
                         C,
                         D,
                         {a_row, a_col, a_inner, a_outer},
                         {b_row, b_col, b_inner, b_outer},
                         {c_row, c_col, c_inner, c_outer},
                         {d_row, 1, d_inner, d_outer},
                         batch,
                         modes,
                         LISTS_PASSED,
                         EPILOGUE_PASSED};
  extern __shared__ __align__(128) char shared[];
  const Position position(thread_now() / 32 % (THREADS / 32));
  for (Units work(schedule, RAGGED_PASSED, M, N, K);
       work.next<RASTER>(ceil_div(M, BM), ceil_div(N, BN), ceil_div(K, BK));) {
    const Product& product = work.part(whole);
    const Task task(product, work);
    const Scales& factors_of_task = work.factors(SCALES);
    const int count = task.count;
    MoverOfA move_a(product, task);
    MoverOfB move_b(product, task);
    Sums sums[ROWS][WN / 8];
    Totals<ROWS, WN / 8> totals;
    Factors<ROWS, WN / 8, true> factors;
    Eight a[2][WM / 8], b[2][WN / 8];
    const AReader read_a(position.row);
    const BReader read_b(position.col);
    fill_stages(move_a, move_b, shared);
    if constexpr (LEAVES_OUT)
      if (product.M - task.row < BM || product.N - task.col < BN) clear_last_stage(move_a, move_b, shared);
    if (count > 0) {
      cp_async_wait<STAGES - 2>();
      __syncthreads();  // the tile is complete before any thread reads it
      read_a.read(a[0], shared, 0);
      read_b.read(b[0], shared + A_BYTES, 0);
    }

    const bool whole = (product.M - task.row >= BM && product.N - task.col >= BN) ||
                       (LEAVES_OUT && MoverOfA::by_vectors(product.M) && MoverOfB::by_vectors(product.N));
    unsigned k0 = 0;  // may end at 2^31
    int stage = 0, freed = STAGES - 1;
#pragma unroll
    // compiled twice: one loop for whole tiles, one for the rest
    for (int border = 0; border < 2; ++border) {
      for (; border ? k0 < count : whole && move_a.k_left >= WHOLE; k0 += BK) {
        const bool more = !border || move_a.k_left > 0;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
          if (step == STEPS - 1) {  // the next step is in the next tile
            if (more) {
              move_a.store(shared + freed * STAGE, !border);
              move_b.store(shared + freed * STAGE + A_BYTES, !border);
            }
            freed = stage;
            // after the last tile any stage will do
            stage = stage == STAGES - 1 || k0 + BK >= count ? 0 : stage + 1;
            cp_async_wait<STAGES - 2>();
            __syncthreads();  // the tile is complete, and all threads have read the last one
          }
          if (PROMOTED && step == 0)
            factors.load(factors_of_task, task.modes, task.row + position.row, task.col + position.col,
                         task.k + k0, product.M, product.N);
          const auto a_now = operands_of<T>(a[step % 2]);
          const auto b_now = operands_of<ElementB>(b[step % 2]);
#pragma unroll
          for (int m = 0; m < ROWS; ++m) {
            // Read the next step's Eights, and load a part of the tile STAGES - 1 ahead, for each row of
            // products.
            const int part = step * ROWS + m - COPY_FROM;
            read_a.read(a[(step + 1) % 2], shared + stage * STAGE, (step + 1) % STEPS, m, READ_ROWS);
            read_b.read(b[(step + 1) % 2], shared + stage * STAGE + A_BYTES, (step + 1) % STEPS, m,
                        READ_ROWS);
            if (part >= 0 && part < COPY_PARTS && more) {
              move_a.load(shared + freed * STAGE, part, COPY_PARTS, !border);
              move_b.load(shared + freed * STAGE + A_BYTES, part, COPY_PARTS, !border);
            }
            if (part == COPY_PARTS - 1) cp_async_commit();
            multiply_eights(sums[m], a_now.at[2 * m], a_now.at[2 * m + 1], b_now, READS_FIRST && m % 2);
          }
          if (PROMOTED && step == STEPS - 1) totals.promote(sums, factors);
        }
      }
    }
    totals.take(sums);

    if (work.combine<THREADS>(workspace, shared, totals.at))
      finish(product, task, work, position, factors_of_task, totals, shared);
  }
}
