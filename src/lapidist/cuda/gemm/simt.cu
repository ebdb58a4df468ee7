// The CUDA-core family: every layout, stride, alignment, batch and size, in float, double and half (summed in
// float). OUTPUT is the type of C and D: the element's own, or another of float, half and __nv_bfloat16.
//
// D = alpha A B + beta C. D is row-major; A, B and C have any strides. Macros say what the host knows:
//   A_CONTIGUOUS   1: contiguous along k (A row-major)   2: along m                   0: neither
//   B_CONTIGUOUS   1: contiguous along k                 2: along n (B row-major)     0: neither
//   A_VECTOR, B_VECTOR, D_VECTOR   elements moved at once, as pointers and strides allow (1, 2 or 4)
//
// Parts: loads (gemm/simt/move.cuh, or without registers: copy.cuh), main loop (multiply.cuh), epilogue
// (finish.cuh). The design joins the ideas of the ladder's rungs:
//   block tile BM x BN, BK deep, in STAGES shared buffers; A transposed to As[k][m], so both operands are read as rows
//   next tile travels global -> registers while this one is computed, registers -> the other buffer after it;
//   with more than two stages, tiles are copied to shared memory while those before are computed
//   with SLICES, as many groups of warps have the same tiles, and each has a part of every step of k
//   warp tile WM x WN of 4 x 8 lanes in the zig-zag order of rung 11, thread tile TM x TN in groups of 4 x 4
//
//     n ->   warp_n                                 lane (4 x 8, zig-zag)
//   m   +----------+----------+           0  2  8 10 16 18 24 26
//   |   | WM x WN  |          |  BM       1  3  9 11 17 19 25 27
//   v   +----------+----------+           4  6 12 14 20 22 28 30
//       |          |          |           5  7 13 15 21 23 29 31
//       +----------+----------+           16-byte loads of one row or column pair up: 2 wavefronts in place of 4
//            BN
#include "config.cuh"
#include "gemm/simt/finish.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    simt(int M, int N, int K, Acc alpha, Acc beta, const T* A, const T* B, const Out* C, Out* D, i64 a_row,
         i64 a_col, i64 a_inner, i64 a_outer, i64 b_row, i64 b_col, i64 b_inner, i64 b_outer, i64 c_row,
         i64 c_col, i64 c_inner, i64 c_outer, i64 d_row, i64 d_inner, i64 d_outer, int batch, Modes modes,
         Schedule schedule, Workspace workspace LISTS RAGGED_PARAMETER EPILOGUE_PARAMETER) {
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
  __shared__ __align__(16) char shared[SHARED];
  const Tiles tiles(shared);
  const Position position(threadIdx.x / 32, threadIdx.x % 32);
  for (Units work(schedule, RAGGED_PASSED, M, N, K);
       work.next(ceil_div(M, BM), ceil_div(N, BN), ceil_div(K, BK));) {
    const Product& product = work.part(whole);
    const Task task(product, work);
    Acc sums[TM][TN] = {};
    multiply(product, task, tiles, position, sums);
    finish(product, task, work, workspace, shared, position, sums);
  }
}
