// Consuming: the warpgroups of gemm/wgmma.cu that multiply what the producer loads, and finish each tile.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/finish.cuh"
#include "gemm/wgmma/multiply.cuh"

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
  const bool few = RAGGED != RAGGED_K && p.extents.K <= (HELD - 1) * BK;
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
    if constexpr (PEERS_IN_CLUSTER > 0) {
      finisher.finish_in_cluster(sums);
    } else if (tiles.template combine<SHARERS>(workspace, &pipeline, sums)) {
      finisher.finish(sums, held, RAGGED == RAGGED_K ? tiles.end < HELD : few);
      first_buffer = (first_buffer + ALL_PATCHES) % D_BUFFERS;
    }
  }
  if (D_COPY_ENGINE && lane == 0) tma_store_wait<0>();
}
