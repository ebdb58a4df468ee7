// D = x W for few rows of x, W in few bits (sm_90a): bulk copies bring lines of W several stages ahead; four warps
// decode 64 columns of W into the A of wgmma, whose B is x. So columns of W are the rows of a product.
//
//     block     COLUMN_GROUPS x 64 columns of W, BN rows of x, a PARTS-th of k
//     stage     128 steps of k: x as two boxes of TMA (of 8 bits as one), or rows of it by their indices; then
//               codes, factors and zero points of each 64 columns
//     cluster   the PARTS of k, whose sums meet in shared memory, in order
#include "config.cuh"
#include "quantised/reduce_parts.cuh"
#include "quantised/stages.cuh"
#if X_OF_8_BITS
#include "quantised/consume_bytes.cuh"
#else
#include "quantised/consume.cuh"
#endif
#if INEXACT
#define INEXACT_PARAMETER , const unsigned* inexact
#else
#define INEXACT_PARAMETER
#endif

// Whether the columns of this block have codes that quantised/decoded.cu rounded. All blocks of a cluster agree.
__device__ __forceinline__ bool any_inexact(const unsigned* inexact, int tiles, int blocks) {
  wait_for_last_launch();
  const int first = blockIdx.x * COLUMN_GROUPS, end = min_of(first + COLUMN_GROUPS, tiles);
  bool found = false;
  for (i64 i = static_cast<i64>(first) * blocks + threadIdx.x; i < static_cast<i64>(end) * blocks;
       i += THREADS)
    found = found || inexact[i] != 0;
  return __syncthreads_or(found);
}

// Further rows of a block. Hardly any has a rounded code, and one that only finds that out takes an SM 2 us, as no
// other fits beside it: so there are as many blocks as run at once, and each walks. Sums lay where stages come next.
__device__ __forceinline__ bool rows_follow(Rows& rows) {
  if constexpr (INEXACT) {
    rows.begin += gridDim.y * BN;
    if (rows.begin >= rows.end) return false;
    proxy_fence();
    __syncthreads();
    return true;
  }
  return false;
}

#if GATHER_A
#define X_PARAMETER const char* A
#define X_PASSED A
#else
#define X_PARAMETER const __grid_constant__ TensorMap A
#define X_PASSED &A
#endif

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    streamed(X_PARAMETER, const char* B, const Out* C, Out* D, const char* scales, const char* zeros,
             i64 d_row, int m, int n, int tiles, int blocks,
             const float* weights X_FACTORS_PARAMETERS INEXACT_PARAMETER MODES_PARAMETER RAGGED_PARAMETER
                 EPILOGUE_PARAMETER) {
  extern __shared__ __align__(1024) char room[];
  __shared__ Barrier barriers[2 * STAGES];  // a stage is full, and empty again
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Range range(blocks, blockIdx.z);
  let_next_launch_start();
  if constexpr (RAGGED) {
    // All blocks together prefetch what groups begin with, each of the group that it would have in a full grid.
    const Ragged& groups = RAGGED_PASSED;
    if (BEFORE_ENDS && threadIdx.x == 0 && blockIdx.y < groups.groups)
      Lines{B, scales, zeros, static_cast<int>(blockIdx.y) * tiles, tiles, blocks}.prefetch(range);
    wait_for_last_launch();  // which may have written where groups end
  }
  Rows rows;
  if (!find_rows<BN>(RAGGED_PASSED, m, rows)) return;
  const int first_tile = rows.group * tiles;
#if INEXACT
  if (!any_inexact(inexact, tiles, blocks)) return;
#endif
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(&barriers[i], ARRIVALS_OF_X + LOADS);
      barrier_init(&barriers[STAGES + i], CONSUMERS);
    }
    barrier_init_fence();
  }
  __syncthreads();
  if (warp >= CONSUMERS) {
    give_registers_back<REGISTERS_LEFT>();
    const Lines lines{B, scales, zeros, first_tile, tiles, blocks};
    if (!BEFORE_ENDS && warp == CONSUMERS + 1 && lane == 0) lines.prefetch(range);
    wait_for_last_launch();
    Turn turn(1, room, barriers);
    do {
      const RowsOfX x(X_PASSED, MODES_PASSED, rows, blocks);
      produce(__shfl_sync(0xffffffffu, warp - CONSUMERS, 0), lane, room, turn, range, x, lines);
      __syncwarp();
      meet_while_others_reduce();
    } while (rows_follow(rows));
    return;
  }
  take_registers<REGISTERS>();
  wait_for_last_launch();
  const int tile = first_tile + min_of(blockIdx.x * COLUMN_GROUPS + warp / 4, tiles - 1);
  Consumer consumer(warp, lane, zeros, tile);
  const Target<Out> target{C, D, d_row, rows.group, rows.end, n, EPILOGUE_PASSED, MODES_PASSED};
  const auto of_column = [&](int column) {
    if constexpr (GROUP != 0) return 1.0f;
    else
      return factor_of(reinterpret_cast<const Scales*>(scales)[first_tile * 32 + column / 16 * 8 + column % 8]
                           .at[0][column / 8 % 2]);
  };
#if X_OF_8_BITS
  const auto factor_at = [&](int row, int column) { return of_column(column) * LARGER * X_FACTOR_OF(row); };
#else
  const float of_all = factor_of_all<T>(weights, rows.group);
  const auto factor_at = [&](int row, int column) {
    return (GROUP != 0 ? of_all : of_column(column)) * X_FACTOR_OF(row);
  };
#endif
  Turn turn(0, room, barriers);
  do {
    consumer.run(room, turn, range);
    __syncthreads();  // nobody reads the stages any more
    keep_sums(room, consumer.sums, warp, lane);
    reduce(room, target, rows.begin, blockIdx.x * COLUMNS, blockIdx.z, factor_at);
  } while (rows_follow(rows));
}
