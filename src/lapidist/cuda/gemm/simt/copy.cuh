// Copies of A and B to shared memory by cp.async in gemm/simt.cu, several tiles ahead. Lines may start
// anywhere: then each copy is of one element.
#pragma once

#include "config.cuh"
#include "gemm/simt/constants.cuh"
#include "ptx.cuh"

// Copies OUTER x BK tiles (OUTER counts rows of A or columns of B) to shared[k][outer]. Rows outside the
// matrix repeat others, whose results are not stored. Each repeats a different one: copies of a warp from one
// address wait for each other. The first tile has `first_k` steps of k, then zeros. All other tiles are
// whole, so the loop needs no comparisons.
//
//   along k       a warp copies 8 k of 4 rows: 32 bytes of each, to 32 banks, as STEP is 4 mod 32
//   else          neighbours of one k, as many in one copy as alignment allows
template <int OUTER, int CONTIGUOUS, int VECTOR>
struct Copier {
  static constexpr bool ALONG_K = CONTIGUOUS == 1;
  static constexpr int WIDE = ALONG_K ? 1 : VECTOR;  // elements of a copy
  // threads along contiguous elements, and across them
  static constexpr int ACROSS = ALONG_K                  ? 8
                                : THREADS < OUTER / WIDE ? THREADS
                                                         : OUTER / WIDE,
                       DOWN = THREADS / ACROSS;
  static constexpr int APART = ALONG_K ? DOWN : ACROSS * WIDE;                // distance of a thread's rows
  static constexpr int POINTERS = OUTER / APART;                              // each advances along k
  static constexpr int K_STEP = ALONG_K ? ACROSS : DOWN, EACH = BK / K_STEP;  // copies per pointer
  static constexpr int COPIES = POINTERS * EACH;
  static constexpr int STEP = OUTER + PAD;  // from one k to the next in shared memory
  static_assert(THREADS % ACROSS == 0 && OUTER % APART == 0 && BK % K_STEP == 0,
                "every thread makes as many copies");
  const i64 k_stride;
  const T* gmem[POINTERS];
  unsigned place;       // address of the first copy in the first stage
  int exist[POINTERS];  // bytes of each copy that exist

  __device__ static int k_of(int i) {
    return (ALONG_K ? threadIdx.x % ACROSS : threadIdx.x / ACROSS) + i % EACH * K_STEP;
  }

  __device__ __forceinline__ Copier(const T* matrix, int first, int extent, i64 outer_stride, i64 k_stride,
                                    const Index* index, T (&shared)[STAGES][BK][STEP])
      : k_stride(ALONG_K ? 1 : k_stride) {
    const int outer = ALONG_K ? threadIdx.x / ACROSS : threadIdx.x % ACROSS * WIDE;
#pragma unroll
    for (int i = 0; i < POINTERS; ++i) {
      const int own = first + outer + i * APART;
      const int there = own < extent ? own : own >= OUTER ? own - OUTER : own % extent / WIDE * WIDE;
      gmem[i] = matrix +
                (index ? static_cast<i64>(index[there]) : there) * (CONTIGUOUS == 2 ? 1 : outer_stride) +
                k_of(0) * this->k_stride;
      exist[i] = sizeof(T) * (extent - there < WIDE ? extent - there : WIDE);
    }
    place = shared_address(&shared[0][k_of(0)][outer]);
  }

  __device__ static constexpr unsigned place_of(int i) {
    return sizeof(T) * (i % EACH * K_STEP * STEP + i / EACH * APART);
  }

  __device__ __forceinline__ void copy_first(int first_k) {
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const T* const from = gmem[i / EACH];
      const bool there = k_of(i) < first_k;
      cp_async_fill<sizeof(T) * WIDE>(place + place_of(i), there ? from + i % EACH * K_STEP * k_stride : from,
                                      there ? exist[i / EACH] : 0);
    }
#pragma unroll
    for (int i = 0; i < POINTERS; ++i) gmem[i] += first_k * k_stride;
  }

  // Start the i-th copy of a whole tile, if it is wanted. The last copy of each pointer advances it to the
  // next tile.
  __device__ __forceinline__ void copy(int i, int stage, bool wanted) {
    const unsigned to = place + stage * (sizeof(T) * BK * STEP) + place_of(i);
    const T*& from = gmem[i / EACH];
    cp_async_fill_if<sizeof(T) * WIDE>(wanted, to, ALONG_K ? from + i % EACH * K_STEP : from,
                                       exist[i / EACH]);
    if (!ALONG_K) from += K_STEP * k_stride;
    else if (i % EACH == EACH - 1) from += BK;
  }
};
