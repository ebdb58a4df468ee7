// Complex numbers in memory, and where results of them go.
#pragma once

#include "config.cuh"
#include "cluster.cuh"

typedef long long i64;

struct alignas(2 * sizeof(Part)) Complex {
  Part re, im;
};

__device__ __forceinline__ Complex times(Part re, Part im, Complex z) {
  return {re * z.re - im * z.im, re * z.im + im * z.re};
}

// A number of alpha or beta. A real one multiplies both parts, so that no infinity meets an imaginary zero.
template <bool Real>
__device__ __forceinline__ Complex scaled(Part re, Part im, Complex z) {
  return Real ? Complex{re * z.re, re * z.im} : times(re, im, z);
}

// Where results go, and what is added to them.
struct Results {
  Complex* d;
  const Complex* c;
  i64 d_row, d_col, c_row, c_col;
  int rows, cols;
  Part alpha, beta, alpha_im, beta_im;

  __device__ __forceinline__ void store(int row, int col, Complex sum) const {
    if (row >= rows || col >= cols) return;
    Complex z = scaled<ALPHA_REAL>(alpha, alpha_im, sum);
    if (READS_C) {
      Complex of_c = c[row * c_row + col * c_col];
      if (C_CONJUGATED) of_c.im = -of_c.im;
      of_c = scaled<BETA_REAL>(beta, beta_im, of_c);
      z = {z.re + of_c.re, z.im + of_c.im};
    }
    d[row * d_row + col * d_col] = z;
  }
};

constexpr int WIDE = 16 / sizeof(Complex);
struct alignas(16) Sixteen {
  Complex at[WIDE];
};

// The sums of all blocks of the cluster, which lie at the same place in each, for this block's share of the
// rows. They are added in the order of the blocks, which is that of k.
template <int Rows, int Cols, int Pitch, int Threads>
__device__ __forceinline__ void store_joined(const Complex* sums, int part, const Results& results) {
  cluster_barrier();
  constexpr int PIECES = Cols / WIDE, MINE = Rows / PARTS * PIECES;
  static_assert(Rows % PARTS == 0 && Pitch % WIDE == 0, "each block has whole rows, which start on 16 bytes");
  for (int i = threadIdx.x; i < MINE; i += Threads) {
    const int row = part * (Rows / PARTS) + i / PIECES, col = i % PIECES * WIDE;
    const Sixteen* const place = reinterpret_cast<const Sixteen*>(sums + row * Pitch + col);
    Sixteen total = read_peer(place, 0);
#pragma unroll
    for (int rank = 1; rank < PARTS; ++rank) {
      const Sixteen more = read_peer(place, rank);
#pragma unroll
      for (int j = 0; j < WIDE; ++j) total.at[j].re += more.at[j].re, total.at[j].im += more.at[j].im;
    }
#pragma unroll
    for (int j = 0; j < WIDE; ++j) results.store(row, col + j, total.at[j]);
  }
  cluster_barrier();  // nobody's shared memory goes while another one reads it
}
