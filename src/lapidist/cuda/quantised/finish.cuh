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

  __device__ __forceinline__ Element* place(int row, int col) const {
    return out + modes.c_row(row) * row_step + col;
  }
  // What becomes of two neighbours of a row that exists, the first in an even column that does.
  __device__ __forceinline__ void apply(float (&sums)[2], int row, int col) const {
    if constexpr (BIAS) {
      sums[0] += static_cast<float>(bias[col]);
      if (col + 1 < n) sums[1] += static_cast<float>(bias[col + 1]);
    }
    IF_EPILOGUE(const fused::Epilogue<Modes> function(operands, group, 0, m, n, modes);
                fused::AllResults results;
                function.apply_two(sums[0], sums[1], function.fetch_two(row, col), results);
                function.store_two(row, col, results);)
  }
  __device__ __forceinline__ void finish(float (&sums)[2], int row, int col) const {
    apply(sums, row, col);
    if constexpr (EPILOGUE_STORES) return;  // the function has stored everything
    Element* const to = place(row, col);
    to[0] = Element(sums[0]);
    if (col + 1 < n) to[1] = Element(sums[1]);
  }
  // Four, the first in a column that is a multiple of 4: in one store, where rows of D lie so.
  __device__ __forceinline__ void finish(float (&sums)[4], int row, int col) const {
    struct alignas(4 * sizeof(Element)) Four {
      Element at[4];
    };
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      if (col + i >= n) break;
      float two[2] = {sums[i], sums[i + 1]};
      apply(two, row, col + i);
      sums[i] = two[0], sums[i + 1] = two[1];
    }
    if constexpr (EPILOGUE_STORES) return;
    Element* const to = place(row, col);
    if (col + 4 <= n && reinterpret_cast<unsigned long long>(to) % sizeof(Four) == 0) {
      *reinterpret_cast<Four*>(to) = {Element(sums[0]), Element(sums[1]), Element(sums[2]), Element(sums[3])};
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (col + i < n) to[i] = Element(sums[i]);
    }
  }
};
