// What becomes of finished sums of quantised/skinny.cu and streamed.cu: a bias or a caller's function, then D.
#pragma once
#include "config.cuh"
#include "epilogue.cuh"
#include "modes.cuh"

typedef long long i64;

template <typename Element>
struct Target {
  const Element* bias;
  Element* out;
  i64 row_step;
  int group, m, n;  // rows end at m
  const fused::Operands* operands;
  Modes modes;  // where rows of D lie, and those of a function's operands

  // Two neighbours of a row that exists, the first in an even column that does.
  __device__ __forceinline__ void finish(float (&sums)[2], int row, int col) const {
    const bool both = col + 1 < n;
    if constexpr (BIAS) {
      sums[0] += static_cast<float>(bias[col]);
      if (both) sums[1] += static_cast<float>(bias[col + 1]);
    }
    IF_EPILOGUE(const fused::Epilogue<Modes> function(operands, group, 0, m, n, modes);
                fused::AllResults results;
                function.apply_two(sums[0], sums[1], function.fetch_two(row, col), results);
                function.store_two(row, col, results);)
    if constexpr (EPILOGUE_STORES) return;  // the function has stored everything
    Element* const place = out + modes.c_row(row) * row_step + col;
    place[0] = Element(sums[0]);
    if (both) place[1] = Element(sums[1]);
  }
};
