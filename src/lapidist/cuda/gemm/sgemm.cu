// The fp32 family for Hopper: CUDA cores fed by TMA, persistent, Stream-K. Every layout,
// alignment, batch and size.
//
// D = alpha A B + beta C. D is row-major; A and B are contiguous along rows or columns; C has any strides.
// Tiles and main loop are those of rung 20 (bank_order.cuh): 256 consumers with 16 x 8 results each, operands
// in chunks of four k.
//
//   producer   | wait empty | load A, B -> stage s | ...       one thread                        produce.cuh
//   consumers  | wait full  | chunks of stage s | free it      256 threads, each a part of it    multiply.cuh
//   in the end | sums of all slices and peers -> D             while the next stages fill        finish.cuh
//
// The layout of tiles in shared memory:
//
//   A_ALONG_K 1   rows of A, 128 bytes of k each, swizzled (piece ^ row % 8): a thread reads four k of one
//                 row
//   A_ALONG_K 0   rows of one k: a thread reads four rows of A at that k
//   B             always rows of one k: with four k of one column in four adjacent registers, like A, every second
//                 product would have both operands in one register bank
//
// Operands that TMA cannot load in these layouts are packed first (gemm/sgemm/operands.cuh). Batches are
// dimensions of its maps (BATCHED).
//
// An SM holds one block, so tiles seldom fill whole waves. The tiles left over are split along k
// (share/schedule.cuh), and their sums are added in the workspace (share/sharing.cuh). Tiles below 256 x 128
// need fewer warps than a block has, so groups of warps have slices of k (gemm/slices.cuh).
#include "config.cuh"
#include "gemm/sgemm/finish.cuh"
#include "gemm/sgemm/produce.cuh"

// The consumers: multiply and store tile after tile.
__device__ __forceinline__ void consume(const Product& p, Pipeline& pipeline, const Workspace& workspace) {
  take_registers<REGISTERS>();
  const Position position(threadIdx.x / 32, threadIdx.x % 32);
  Fragments fragments(position);
  // acc[i][j ^ 1] is column j, so that quads of b and of acc lie in opposite banks
  Acc acc[TM][TN];
  Ring ring = {0, 0};
  for (Units work(p, pipeline); work.next();) {
    multiply(work.depth(p), pipeline, work.unit, position, fragments, acc, ring);
    finish(p, pipeline, work, workspace, position, acc);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sgemm(int M, int N, int K, int batch, int batches, Acc alpha, Acc beta,
          const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, const T* A,
          const T* B, const T* C, T* D, i64 a_row, i64 a_col, i64 a_inner, i64 a_outer, i64 b_row, i64 b_col,
          i64 b_inner, i64 b_outer, i64 c_row, i64 c_col, i64 c_inner, i64 c_outer, i64 d_row, i64 d_inner,
          i64 d_outer, Modes modes, const __grid_constant__ Schedule schedule,
          Workspace workspace LISTS RAGGED_PARAMETER EPILOGUE_PARAMETER) {
  if (!BATCHED) batch = batches = 1, a_inner = a_outer = b_inner = b_outer = 0;
  extern __shared__ __align__(1024) char shared[];
  Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared);
  let_next_launch_start();
  if (SCALARS || RAGGED || !(PACKS && AS_THEY_LIE)) wait_for_last_launch();  // else packing waits
  // of groups, the lines of all
  if (RAGGED == RAGGED_ROWS) M = RAGGED_PASSED.total;
  if (RAGGED == RAGGED_K && K > 0) K = RAGGED_PASSED.total;
  modes.read_scalars(alpha, beta);
  const Lists* const lists_of = LISTS_PASSED;
  const Source a{
      A, a_row, a_col, M, {batch, batches, a_inner, a_outer}, modes.a_rows, ARRAYS ? &lists_of->a : nullptr};
  const Source b{
      B, b_col, b_row, N, {batch, batches, b_inner, b_outer}, modes.b_cols, ARRAYS ? &lists_of->b : nullptr};
  workspace = pack_operands(a, b, K, workspace, RAGGED_PASSED);
  if (threadIdx.x == 0) init_barriers(pipeline);
  __syncthreads();  // no thread uses a barrier before it is initialised

  const Product product = {
      M,     N,       K,       batch, alpha,    beta,     a_map,         b_map,
      a,     b,       C,       D,     c_row,    c_col,    c_inner,       c_outer,
      d_row, d_inner, d_outer, modes, schedule, lists_of, RAGGED_PASSED, EPILOGUE_PASSED};
  if (threadIdx.x >= CONSUMERS) produce(product, pipeline, workspace);
  else consume(product, pipeline, workspace);
}
