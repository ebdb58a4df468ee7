// Warp-specialised products for Hopper (sm_90a): D = alpha A B + beta C in every type that wgmma multiplies.
//
//   producer   | wait empty | load A, B -> stage s | ...           one thread                     produce.cuh
//   consumers  | wait full  | wgmma on stage s | free stage s - 1  GROUPS warpgroups, BM / GROUPS rows of the tile each
//                                                                                                 multiply.cuh
//   in the end | sums -> swizzled shared memory -> TMA -> D, while the next tile is multiplied
//                                                                                                 finish.cuh
//
// Blocks are persistent. CLUSTER_M blocks of a cluster have tiles below each other and share B, CLUSTER_N
// have tiles side by side and share A. Each block loads a part of what they share, by multicast to all of
// them. A stage is free when all of them have read it.
#include "config.cuh"
#include "gemm/wgmma/finish.cuh"
#include "gemm/wgmma/multiply.cuh"
#include "gemm/wgmma/produce.cuh"

// One thread calls this before any barrier is used.
__device__ __forceinline__ void init_barriers(Pipeline& pipeline) {
  for (int i = 0; i < STAGES; ++i) {
    barrier_init(&pipeline.barriers.full[i], 1 + (GATHERS ? GATHERERS * 32 : FACTORS_ALONG_K ? BRINGERS : 0));
    barrier_init(&pipeline.barriers.empty[i], TILE_GROUPS * 4 * (CLUSTER_M + CLUSTER_N - 1));
  }
  for (int i = 0; i < 2 * PING_PONG; ++i) barrier_init(&pipeline.barriers.turn_of[i], TILE_GROUPS * 4);
  init_queue(pipeline);
  barrier_init_fence();
}

// Prefetch the beginning of the first tile to the L2, before the last launch has ended. Not for scheduled
// tiles: the code that walks the schedule would be compiled twice.
template <typename Product>
__device__ __forceinline__ void prefetch_first_tile(const Product& p, const Order& order, int rank) {
  Tiles first(p.extents, p.schedule, order);
  if (p.extents.K == 0 || !first.next(p.extents, rank)) return;
  if (p.a_once && ARRIVALS != ROWS_OF_A)
    prefetch_tiles<A_M_MAJOR, BM>(&p.a_map, first.row, first.begin, first.end);
  if (p.b_once && ARRIVALS != ROWS_OF_B)
    prefetch_tiles<B_N_MAJOR, BN>(&p.b_map, first.col, first.begin, first.end);
}

// All threads first pack the operands that TMA cannot load. Returns the workspace behind the packed copies.
template <typename Product>
__device__ __forceinline__ Workspace pack_operands(const Product& p, const PackedParts& parts,
                                                   const Workspace& workspace) {
  const Batch of_a = p.batch_of(p.a), of_b = p.batch_of(p.b);
  if (!RAGGED && (PACKS || !(p.a_once || p.b_once)))
    fetch_small(p.extents, p.A, p.a.line, of_a, p.B, p.b.line, of_b);
  if constexpr (PACKS) {
    return packing_of(p, workspace).pack(p.extents, parts, workspace);
  } else {
    wait_for_last_launch();
    return workspace;
  }
}

// The warpgroups that multiply what the producer loads, and finish each tile.
template <typename Pipeline, typename Tiles>
__device__ __forceinline__ void consume(const Product& p, Pipeline& pipeline, Tiles& walk, int rank,
                                        const Workspace& workspace) {
  if (!PACKS_EVENLY) take_registers<REGISTERS>();
  auto&& tiles = walk_of_consumers(p, pipeline, walk);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Multiplier<Pipeline> multiplier(p, pipeline, rank);
  const int first_warp = BY_GROUP ? own_group<GROUPS>() * 4 : warp;
  int first_buffer = 0;
  Held<D_COLS, HELD> held;
  const bool few = !HELD_FOR_SHORT && p.extents.K <= (HELD - 1) * BK;
  SumsOfParts<ROWS, BN / 2> parts_before;
  for (; tiles.next(p.extents, rank); ++multiplier.turn) {
    if (!multiplier.is_mine()) {  // the other warpgroup's tile: skip its stages
      multiplier.ring.skip(tiles.end - tiles.begin);
      continue;
    }
    multiplier.wait_for_turn();
    Sum sums[ROWS][BN / 2];
    if (!ANEW) set_to_zero(sums);
    const int row = row_of_warp<ROWS>(multiplier.tile_warp / 4, warp);
    Finisher finisher(p, pipeline, tiles, tiles.row + row, first_warp, first_buffer);
    if (!SCHEDULED && finishes(tiles)) finisher.ask_for_c();
    const int my_row = row + lane / 4 * NEXT_GROUP, my_col = lane % 4 * 2;
    if constexpr (PROMOTED) multiplier.multiply_and_promote(tiles, my_row, my_col, sums, finisher);
    else multiplier.multiply(tiles, sums, held, finisher);
    if constexpr (CUTS_ALIKE) {
      if (parts_before.template add<SHARERS>(workspace, tiles, sums)) {
        finisher.finish(parts_before.at, held, false);
        first_buffer = (first_buffer + ALL_PATCHES) % D_BUFFERS;
      }
    } else if constexpr (PEERS_IN_CLUSTER > 0) {
      finisher.finish_in_cluster(sums);
    } else if (tiles.template combine<SHARERS>(workspace, &pipeline, sums)) {
      finisher.finish(sums, held, few);
      first_buffer = (first_buffer + ALL_PATCHES) % D_BUFFERS;
    }
  }
  if (D_COPY_ENGINE && lane == 0) tma_store_wait<0>();
}

extern "C" __global__ CLUSTERED void __launch_bounds__(THREADS, RESIDENT)
    wgmma(int M, int N, int K, int batch, int batches, Scalar alpha, Scalar beta,
          const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
          const __grid_constant__ TensorMap d_map, const T* A, const T* B, const Out* C, Out* D, i64 a_line,
          i64 a_inner, i64 a_outer, i64 b_line, i64 b_inner, i64 b_outer, i64 c_row, i64 c_col, i64 c_inner,
          i64 c_outer, i64 d_line, i64 d_inner, i64 d_outer, const __grid_constant__ Schedule schedule,
          Workspace workspace, Scales scales,
          const __grid_constant__ Order order MODES_PARAMETER RAGGED_PARAMETER ARRIVALS_PARAMETER
              OWNERS_PARAMETER EPILOGUE_PARAMETER) {
  if (!BATCHED)
    batch = batches = 1, a_inner = a_outer = b_inner = b_outer = c_inner = c_outer = d_inner = d_outer = 0;
  if (RAGGED == RAGGED_ROWS) M = MANY_LINES;
  if (RAGGED == RAGGED_COLS) N = MANY_LINES;
  extern __shared__ __align__(1024) char shared[];
  Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared);
  const int rank = CLUSTER > 1 ? cluster_rank() : 0;
  if (threadIdx.x == (PACKS ? THREADS - 32 : 0)) init_barriers(pipeline);  // the first warps pack more
  // Blocks that pack have a barrier of all threads after packing.
  if (CLUSTER > 1) cluster_start();
  else if (!PACKS) __syncthreads();
  let_next_launch_start();
  if constexpr (GUARDED) {
    wait_for_last_launch();
    if (Modes(MODES_PASSED).is_off()) return;
  }
  if (RAGGED && threadIdx.x == GROUPS * 128) tma_prefetch_map(&a_map), tma_prefetch_map(&b_map);

  const Product product = {{M, N, K, batch, batches OWNERS_PASSED},
                           alpha,
                           beta,
                           a_map,
                           b_map,
                           d_map,
                           A,
                           B,
                           C,
                           D,
                           {a_line, a_inner, a_outer},
                           {b_line, b_inner, b_outer},
                           {d_line, d_inner, d_outer},
                           c_row,
                           c_col,
                           c_inner,
                           c_outer,
                           schedule,
                           scales,
                           RAGGED_PASSED,
                           MODES_PASSED,
                           ARRIVALS_PASSED,
                           EPILOGUE_PASSED,
                           read_once<BN>(N, batch * batches),
                           read_once<BM>(M, batch * batches)};
  if ((!SCHEDULED || PEERS_IN_CLUSTER) && !RAGGED && !PACKS && !A_SKEWED &&
      (product.a_once || product.b_once) && threadIdx.x == GROUPS * 128)
    prefetch_first_tile(product, order, rank);
  const PackedParts parts(product.extents);
  const Workspace whole = workspace;
  workspace = pack_operands(product, parts, workspace);
  if (PEERS_IN_CLUSTER && blockIdx.x >= schedule.sk_blocks) {  // a cluster that only helped to pack
    if (threadIdx.x == 0) leave_packed(workspace);
    return;
  }

  Tiles tiles(product.extents, schedule, order);
  if (threadIdx.x >= GROUPS * 128) produce(product, pipeline, tiles, rank, parts, whole, workspace);
  else consume(product, pipeline, tiles, rank, workspace);
}
