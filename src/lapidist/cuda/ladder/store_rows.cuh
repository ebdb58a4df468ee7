// Rows of C that do not start on 16 bytes, which TMA refuses: how rungs 29 to 31 store their patches then.
//
//   row of a patch   | end of the patch before, 32 bytes | this patch, 128 bytes | 16 bytes: eight rows lie in
//                                                                                  different banks
//
// What leaves starts on a sector of 32 bytes in memory, up to 31 bytes before the patch (unaligned/rows_out.cuh).
// So all sectors are stored whole, but for those that a tile's row shares with its neighbours.
#pragma once

#include "config.cuh"
#include "unaligned/rows_out.cuh"

// Patch number `i` of a tile. C points to the first of the warp's rows in the tile, of which rows x cols exist.
// `begins` is kept from a tile's first patch to its last.
template <typename Patch, int Count>
__device__ __forceinline__ void store_rows(Patch& patch, Words& begins, const Sum (&sums)[Count], int i,
                                           Out* C, i64 ldc, int rows, int cols) {
  constexpr int PITCH = Patch::PITCH, SIZE = sizeof(Out);
  const int row = threadIdx.x % 16, half = threadIdx.x % 32 / 16 * 16;
  const auto words_at = [&](int byte) -> Words& {
    return *static_cast<Words*>(__cvta_shared_to_generic(patch.place(row, byte)));
  };
  Words end = {};
  if (i > 0) end = words_at(PITCH - SECTOR + half);
  __syncwarp();  // all lanes have read the patch before
  patch.lay(sums + i * (PITCH / SIZE / 2));
  words_at(half - SECTOR) = end;  // only now, so that nothing waits for its load
  __syncwarp();
  char* const start = reinterpret_cast<char*>(C) + i * PITCH;
  RowsOut<Patch, SIZE, Count>{patch, i * PITCH, cols * SIZE - i * PITCH, start, ldc * SIZE, begins}.store(
      rows);
}
