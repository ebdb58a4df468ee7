// The epilogue of gemm/sgemm.cu, for complete sums of a tile.
//
//   alpha -> beta C -> the caller's function -> D
#pragma once

#include "config.cuh"
#include "gemm/sgemm/multiply.cuh"

// The epilogue of one tile.
struct Finisher {
  const Product& p;
  const WorkUnit& unit;
  const Position& position;
  unsigned owned;  // bit i: the thread stores row i of its sums

  __device__ __forceinline__ int own_line(int i) const {
    return SLICES > 1 ? position.slice * OWN_ROWS + i : i;
  }

  template <typename Pipeline>
  __device__ __forceinline__ void finish(Pipeline& pipeline, Acc (&sums)[OWN_ROWS][TN]) const {
    const T* C = p.C;
    T* D = p.D;
    if constexpr (ARRAYS) {
      C = static_cast<const T*>(p.lists->c.at[unit.batch]);
      D = static_cast<T*>(const_cast<void*>(p.lists->d.at[unit.batch]));
    }
    const i64 inner = BATCHED && !ARRAYS ? unit.batch % p.batch : 0,
              outer = BATCHED && !ARRAYS ? unit.batch / p.batch : 0;
    scale_sums(sums, p.alpha);
    const auto row = [&](int i) {
      return owned >> i & 1 ? unit.row * BM + position.line(own_line(i), position.row) : p.M;
    };
    const auto col = [&](int j) {
      return unit.column * BN + position.thread_col + (j / 4 * 32) + (j % 4 ^ 1);
    };
    add_addend(sums, p.beta, C + inner * p.c_inner + outer * p.c_outer, p.c_row, p.c_col, p.M, p.N, p.modes,
               row, col);
    IF_EPILOGUE(fused::finish(sums, fused::Epilogue(p.operands, inner, outer, p.M, p.N, p.modes), row, col);)
    if constexpr (EPILOGUE_STORES) return;  // the function has stored everything
    const Output output{p.modes, D + inner * p.d_inner + outer * p.d_outer, p.d_row, p.M, p.N};
    if constexpr (D_VECTOR == 4) store_quads(output, sums);
    else store_by_patches(output, pipeline.patch, sums);
  }

  // One store for each quad.
  __device__ __forceinline__ void store_quads(const Output& output, const Acc (&sums)[OWN_ROWS][TN]) const {
    const Lane out(output, unit.row * BM + position.line(own_line(0), position.row),
                   unit.column * BN + position.thread_col);
#pragma unroll
    for (int i = 0; i < OWN_ROWS; ++i)
      if (owned >> i & 1)
        out.store(position.line(i, 0) - position.line(0, 0), {quad(sums[i], 0), quad(sums[i], 4)});
  }

  // For rows of D that start anywhere: four of the warp's rows at a time, with lanes along the row.
  __device__ __forceinline__ void store_by_patches(const Output& output, Patch* patches,
                                                   const Acc (&sums)[OWN_ROWS][TN]) const {
    const Lane out(output, unit.row * BM + position.line(own_line(0), 0),
                   unit.column * BN + position.of_tile % (BN / WN) * WN + position.lane);
    Patch& patch = patches[position.warp];
#pragma unroll 1
    for (int i0 = 0; i0 < OWN_ROWS; i0 += WRITTEN)
#pragma unroll
      for (int e = 0; e < WRITTEN; ++e) {
        if (!(owned >> (i0 + e) & 1)) continue;
        __syncwarp();  // all lanes have read the rows before
        patch.lay(position.row, position.col, sums, e, i0 + e);
        __syncwarp();  // the patch is complete
#pragma unroll
        for (int r = 0; r < PATCH_ROWS; ++r)
          out.store(position.line(i0 + e, r) - position.line(0, 0),
                    {patch.at[r][position.lane], patch.at[r][position.lane + 32]});
      }
  }
};

// Add the peers' sums of a unit; one of the peers stores the tile.
template <typename Pipeline>
__device__ __forceinline__ void finish_unit(const Product& p, Pipeline& pipeline, const Work& work,
                                            const Workspace& workspace, const Position& position,
                                            Acc (&sums)[OWN_ROWS][TN]) {
  if (!work.combine<CONSUMERS>(workspace, &pipeline, sums)) return;
  Finisher{p, work.unit, position, work.owned_rows<OWN_ROWS>()}.finish(pipeline, sums);
}

// The same, after the slices' sums were added.
template <typename Pipeline>
__device__ __forceinline__ void finish(const Product& p, Pipeline& pipeline, const Work& work,
                                       const Workspace& workspace, const Position& position,
                                       Acc (&acc)[TM][TN]) {
  if constexpr (SLICES > 1) {
    Acc sums[OWN_ROWS][TN];
    bring_together(pipeline.meeting, position.slice, acc, sums);  // those of a reduction block are zero
    finish_unit(p, pipeline, work, workspace, position, sums);
  } else {
    finish_unit(p, pipeline, work, workspace, position, acc);
  }
}
