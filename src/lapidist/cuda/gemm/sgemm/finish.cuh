// The epilogue of gemm/sgemm.cu, for complete sums of a tile.
//
//   alpha -> beta C -> the caller's function -> D
#pragma once

#include "config.cuh"
#include "gemm/both_halves.cuh"
#include "gemm/sgemm/multiply.cuh"

// The epilogue of one tile.
struct Finisher {
  const Product& p;
  const Units& work;
  const WorkUnit& unit;
  const Position& position;
  unsigned owned;  // bit i: the thread stores row i of its sums

  __device__ __forceinline__ int first_row() const { return unit.row * BM + work.first_row(); }
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
    const int M = work.rows(p);
    scale_sums(sums, p.alpha);
    const auto row = [&](int i) {
      return owned >> i & 1 ? first_row() + position.line(own_line(i), position.row) : M;
    };
    const auto col = [&](int j) {
      return unit.column * BN + position.thread_col + (j / 4 * 32) + (j % 4 ^ 1);
    };
    add_addend(sums, p.beta, C + inner * p.c_inner + outer * p.c_outer, p.c_row, p.c_col, M, p.N, p.modes,
               row, col);
    IF_EPILOGUE(fused::finish(sums, fused::Epilogue(p.operands, inner, outer, M, p.N, p.modes), row, col);)
    if constexpr (EPILOGUE_STORES) return;  // the function has stored everything
    const Output output{p.modes, D + inner * p.d_inner + outer * p.d_outer, p.d_row, M, p.N};
    if constexpr (BOTH_HALVES) {
      if (unit.row * BM < (unit.column + 1) * BN - 1)  // it meets the diagonal
        return store_mirrored<true>(output.D, p.d_row, M, sums, row, col);
      store_mirrored<false>(output.D, p.d_row, M, sums, row, col);
    }
    if constexpr (D_VECTOR == 4) store_quads(output, sums);
    else store_by_patches(output, pipeline.patch, sums);
  }

  // One store for each quad.
  __device__ __forceinline__ void store_quads(const Output& output, const Acc (&sums)[OWN_ROWS][TN]) const {
    const Lane out(output, first_row() + position.line(own_line(0), position.row),
                   unit.column * BN + position.thread_col);
#pragma unroll
    for (int i = 0; i < OWN_ROWS; ++i)
      if (owned >> i & 1)
        out.store(position.line(i, 0) - position.line(0, 0), {quad(sums[i], 0), quad(sums[i], 4)});
  }

  // For rows of D that start anywhere: four of the warp's rows at a time, with lanes along the row.
  __device__ __forceinline__ void store_by_patches(const Output& output, Patch* patches,
                                                   const Acc (&sums)[OWN_ROWS][TN]) const {
    const Lane out(output, first_row() + position.line(own_line(0), 0),
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
__device__ __forceinline__ void finish_unit(const Product& p, Pipeline& pipeline, const Units& work,
                                            const Workspace& workspace, const Position& position,
                                            Acc (&sums)[OWN_ROWS][TN]) {
  if (!work.combine<CONSUMERS>(workspace, &pipeline, sums)) return;
  Finisher{p, work, work.unit, position, work.owned_rows<OWN_ROWS>()}.finish(pipeline, sums);
}

// Never stores. A group's sums leave as quads of D alone, in which neighbours are swapped. The assembler then swaps
// their registers too, into the banks of b: it had 112 cycles of waits in a chunk of 512 products, and has none with
// a use of quads as they lie, such as sums that peers share have.
__device__ __forceinline__ void keep_in_banks(const Product& p, void* shared, const Acc (&acc)[TM][TN]) {
  if (p.batch > 0) return;  // always; but the compiler does not know
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; j += VEC)
      static_cast<Four<Acc>*>(shared)[i * TN / VEC + j / VEC] = {acc[i][j], acc[i][j + 1], acc[i][j + 2],
                                                                 acc[i][j + 3]};
}

// A unit's sums, after those of slices were added.
template <typename Pipeline>
__device__ __forceinline__ void finish(const Product& p, Pipeline& pipeline, const Units& work,
                                       const Workspace& workspace, const Position& position,
                                       Acc (&acc)[TM][TN]) {
  if constexpr (SLICES > 1) {
    Acc sums[OWN_ROWS][TN];
    bring_together(pipeline.meeting, position.slice, acc, sums);  // those of a reduction block are zero
    finish_unit(p, pipeline, work, workspace, position, sums);
  } else {
    if (RAGGED) keep_in_banks(p, &pipeline, acc);
    finish_unit(p, pipeline, work, workspace, position, acc);
  }
}
