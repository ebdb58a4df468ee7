// Quantisation in the consumers of gemm/wgmma.cu. If a tile has whole groups of columns that share a factor,
// four lanes hold the groups of two rows. Values stay in the sums' registers until a group's largest is
// known; then they are stored in 8 bits. Other kernels leave the values to a second pass
// (second/quantise.cu).
//
//   EPILOGUE_GROUPED   which of the results beside D has the values, from 1 on; 0: this kernel quantises nothing
//   EPILOGUE_GROUPS    the kind of D's array; the launch passes D and the factors before all results
//   EPILOGUE_LARGEST   the largest number of D's type, to which a group's largest value is scaled
#pragma once

#include "config.cuh"
#include "gemm/wgmma/vector_io.cuh"

#if FUSED
namespace fused {

#if EPILOGUE_UNSTORED >= 0
constexpr bool QUANTISES = true;

// The larger of `largest` and |value|; NaN propagates.
__device__ __forceinline__ float larger_size(float largest, float value) {
  float found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(largest), "f"(fabsf(value)));
  return found;
}

// Whether one instruction converts two values.
template <typename Type>
constexpr bool IN_TWOS = false;
template <>
constexpr bool IN_TWOS<E4M3> = true;
template <>
constexpr bool IN_TWOS<E5M2> = true;

struct Groups : Pieces {
  using Pieces::Pieces;

  typedef Numbered<EPILOGUE_GROUPS, 0> D;
  // Pairs of the product's columns that a lane has in a group, and its values for each pair.
  static constexpr int PAIRS = GROUPED_COLUMNS / 4, EACH_HAS = EACH ? 2 : 1;

  __device__ __forceinline__ void keep(Sum* two, const AllResults& results) const {
    const auto& held = results.template at<EPILOGUE_UNSTORED>();
#pragma unroll
    for (int i = 0; i < EACH_HAS; ++i) two[i] = held.at[i];
  }
  template <int Rows, int Half>
  __device__ __forceinline__ void quantise(Sum (&values)[Rows][Half], int row, int col) const {
#pragma unroll
    for (int m = 0; m < Rows; ++m)
#pragma unroll
      for (int begin = 0; begin < Half; begin += 2 * PAIRS)
        quantise_group(values[m] + begin, row + m * NEXT_SLAB, col + begin * 2);
  }

  // Values of columns outside D do not count.
  __device__ __forceinline__ void quantise_group(Sum* values, int row, int col) const {
    const int first = EACH ? col + threadIdx.x % 4 * 2 : col / 2 + threadIdx.x % 4;
    if (col / (2 / EACH_HAS) >= N) return;
    if ((col + GROUPED_COLUMNS) / (2 / EACH_HAS) > N) {
#pragma unroll
      for (int i = 0; i < 2 * PAIRS; ++i)
        if (first + i / 4 * 4 * EACH_HAS + (EACH ? i % 2 : 0) >= N) values[i] = 0;
    }
    float largest[2] = {0, 0};
    Quotient by[2];
#pragma unroll
    for (int i = 0; i < 2 * PAIRS; i += 3 - EACH_HAS)
      largest[i / 2 % 2] = larger_size(largest[i / 2 % 2], values[i]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int far = 1; far < 4; far *= 2)
        largest[h] = larger_size(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], far));
      const float wanted = largest[h] / float(EPILOGUE_LARGEST), factor = wanted == 0 ? 1 : wanted;
      by[h] = quotient(factor, values + 2 * h);
      store_factor(factor, row + row_of(h), col / GROUPED_COLUMNS);
    }
#pragma unroll
    for (int begin = 0; begin < PAIRS; begin += At<D>::PAIRS) {
      typename D::Kind::Held held[At<D>::PAIRS];
#pragma unroll
      for (int i = 0; i < At<D>::PAIRS; ++i) {
        const Sum* const two = values + 2 * (begin + i);
        put<D::Kind>(held[i], by[i % 2].of(two[0]), EACH ? by[i % 2].of(two[1]) : 0);
      }
      const At<D> piece(*this, array(0), row, col + begin * 4);
      store_piece<At<D>::BYTES>([&](int i) -> const auto& { return held[i]; }, piece.here(), piece.exists());
    }
  }
  template <typename Kind>
  __device__ __forceinline__ static void put(typename Kind::Held& held, float first, float second) {
    if constexpr (EACH && IN_TWOS<typename Kind::Of>) {
      reinterpret_cast<unsigned short&>(held) = Kind::Of::two(first, second);
    } else {
      Kind::put(held, first, 0);
      if (EACH) Kind::put(held, second, 1);
    }
  }

  // Values of a row divided by their factor, with the rounding of a division: multiply by the inverse, then
  // correct by the remainder. An infinite factor has the inverse 0, and the remainder must not count.
  struct Quotient {
    float factor, inverse;
    __device__ __forceinline__ float of(float value) const {
      const float found = value * inverse;
      return fmaf(__fmaf_rd(-found, factor, value), inverse, found);  // rd: a zero remainder is -0; -0 stays
    }
  };
  // If the factor is so large or small that its inverse is not normal, scale it and its values towards one.
  __device__ __forceinline__ Quotient quotient(float factor, Sum* values) const {
    float nearer = 1;
    if (!(factor > 0x1p-100f && factor < 0x1p100f)) {
      nearer = factor < 1 ? 0x1p64f : 0x1p-64f;
#pragma unroll
      for (int i = 0; i < 2 * PAIRS; i += 4) values[i] *= nearer, values[i + 1] *= nearer;
    }
    const float inverse = 1 / (factor * nearer);
    return {inverse == 0 ? 0 : factor * nearer, inverse};
  }
  __device__ __forceinline__ void store_factor(float factor, int row, int group) const {
    const Operand& to = array(1);
    if (threadIdx.x % 4 == 0 && row < M)
      reinterpret_cast<float*>(to.at)[row * to.row + group * to.col] = factor;
  }
  // 0: D, 1: its factors.
  __device__ __forceinline__ const Operand& array(int which) const { return stored()[which - 2]; }
};
#else
constexpr bool QUANTISES = false;
typedef Pieces Groups;
#endif

}  // namespace fused
#endif
