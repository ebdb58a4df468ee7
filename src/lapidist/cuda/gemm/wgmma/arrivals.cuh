// Rows of A that arrive while the kernel runs: whoever loads a tile waits for the chunks that it has rows of.
//
//   another card   | writes a chunk | sets its flag | ...
//   producer       | waits for the flags of the tile's rows | loads A, step by step | ...
#pragma once

#include "common.cuh"
#include "config.cuh"
#include "share/rank_flags.cuh"

enum { ROWS_OF_A = 1, ROWS_OF_B };  // what arrives; of B with A and B exchanged

struct Arrivals {
  const int* flags;
  unsigned long long* report;
  long long limit;  // nanoseconds
  int rows, step;   // of a chunk; flags from one chunk's to the next one's
};
#if ARRIVALS
#define ARRIVALS_PARAMETER , const __grid_constant__ Arrivals arrivals
#define ARRIVALS_PASSED arrivals
#else
#define ARRIVALS_PARAMETER
#define ARRIVALS_PASSED Arrivals()
#endif
static_assert(!ARRIVALS || !((ARRIVALS == ROWS_OF_A ? PACK_A : PACK_B) || A_SKEWED || GATHER_A || RAGGED ||
                             BATCHED || TRIANGLE),
              "rows arrive of one plain matrix");

struct ArrivedRows {
  const Arrivals& arrivals;
  int first = 0, end = 0;  // the chunks that are known to be there
  int last_row = -1;
  bool late = false;

  __device__ __forceinline__ explicit ArrivedRows(const Arrivals& arrivals) : arrivals(arrivals) {}

  // Before each step of a tile with these rows, of which the matrix has so many. Flags that are set already are
  // taken in together: a fence in each tile took a tenth of the time of 8192 rows.
  __device__ __forceinline__ void wait(int row, int end_row, int rows) {
    if (row == last_row) return;
    last_row = row;
    const int begin = row / arrivals.rows, behind = (min_of(end_row, rows) - 1) / arrivals.rows + 1;
    if (late || row >= rows || (begin >= first && behind <= end)) return;
    for (int chunk = begin; chunk < behind && !late; ++chunk) wait_for(chunk);
    first = begin, end = behind;
    while (!late && end * arrivals.rows < rows && raised(flag_of(end))) ++end;
    // TMA reads through another proxy than the flag was read by.
    asm volatile("fence.proxy.async.global;" ::: "memory");
  }

  // The same of a whole warp, whose lanes all read what arrived.
  __device__ __forceinline__ void wait_in_warp(int row, int end_row, int rows) {
    if (threadIdx.x % 32 == 0) wait(row, end_row, rows);
    __syncwarp();
  }

  __device__ __forceinline__ void wait_for(int chunk) {
    const unsigned long long missed = chunk * arrivals.step + 1ull;
    late = !raised_in_time(flag_of(chunk), arrivals.limit, arrivals.report, missed);
  }

  __device__ __forceinline__ const int* flag_of(int chunk) const {
    return arrivals.flags + static_cast<long long>(chunk) * arrivals.step;
  }
};
