// One triangle of symmetric matrices A, with the diagonal, to D: MIRRORED, both halves of D, which may be A; else
// this half alone, and the other one is left. A block takes one square of SIDE elements off the diagonal and
// its mirror, or one on the diagonal. HERMITIAN: numbers are complex, and mirror images are conjugated.
#include "config.cuh"
#include "share/triangle.cuh"

typedef long long i64;

constexpr int SIDE = sizeof(MirroredElement) > 8 ? 32 : 64, VECTORS = SIDE / TOGETHER;
// Lines are 4 bytes apart in the banks, so that columns are read without many conflicts.
constexpr int APART = sizeof(MirroredElement) > 4 ? 1 : 4 / sizeof(MirroredElement);

constexpr unsigned long long SIGN = 1ull << 63;  // of the imaginary part

__device__ __forceinline__ ulonglong2 conjugated(ulonglong2 z) { return {z.x, z.y ^ SIGN}; }
__device__ __forceinline__ unsigned long long conjugated(unsigned long long z) { return z ^ SIGN; }
__device__ __forceinline__ ulonglong2 real_part(ulonglong2 z) { return {z.x, 0}; }
__device__ __forceinline__ unsigned long long real_part(unsigned long long z) { return z & 0xffffffffull; }

template <typename Element>
__device__ __forceinline__ Element mirror_image(Element z) {
  if constexpr (HERMITIAN) return conjugated(z);
  else return z;
}
// An element of the diagonal is its own mirror image.
template <typename Element>
__device__ __forceinline__ Element on_diagonal(Element z) {
  if constexpr (HERMITIAN) return real_part(z);
  else return z;
}

struct alignas(sizeof(MirroredElement) * TOGETHER) Vector {
  MirroredElement at[TOGETHER];
};

struct Square {
  MirroredElement at[SIDE][SIDE + APART];
};

// value(row, column) of every element of a square of D, where it is one of the matrix and stored(row, column).
template <typename Value, typename Stores>
__device__ __forceinline__ void store_square(MirroredElement* D, i64 d_row, i64 d_col, int row, int col,
                                             int n, Value value, Stores stored) {
#pragma unroll
  for (int at = threadIdx.x; at < SIDE * VECTORS; at += THREADS) {
    const int line = at / VECTORS, first = at % VECTORS * TOGETHER;
    if (row + line >= n || col + first >= n) continue;
    MirroredElement* const to = D + (row + line) * d_row + (col + first) * d_col;
    Vector held;
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) held.at[i] = value(line, first + i);
    if (TOGETHER > 1 && stored(line, first) && stored(line, first + TOGETHER - 1)) {
      *reinterpret_cast<Vector*>(to) = held;
      continue;
    }
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
      if (stored(line, first + i)) to[i * d_col] = held.at[i];
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    mirror(const MirroredElement* A, MirroredElement* D, int n, int squares, i64 a_row, i64 a_col,
           i64 a_matrix, i64 d_row, i64 d_col, i64 d_matrix) {
  __shared__ Square square;
  const int matrix = blockIdx.x / squares, number = blockIdx.x - matrix * squares;
  const int line = line_of_square(number), step = number - squares_before(line);
  const int row = (FROM_UPPER ? step : line) * SIDE, col = (FROM_UPPER ? line : step) * SIDE;
  A += matrix * a_matrix, D += matrix * d_matrix;
#pragma unroll
  for (int at = threadIdx.x; at < SIDE * VECTORS; at += THREADS) {
    const int down = at / VECTORS, first = at % VECTORS * TOGETHER;
    if (row + down >= n || col + first >= n) continue;
    const MirroredElement* const from = A + (row + down) * a_row + (col + first) * a_col;
    Vector held;
    if constexpr (TOGETHER > 1) held = *reinterpret_cast<const Vector*>(from);
    else held.at[0] = *from;
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) square.at[down][first + i] = held.at[i];
  }
  __syncthreads();
  // on the diagonal, elements of the other half stand where their mirror images are
  const auto in_half = [&](int down, int across) { return FROM_UPPER ? across >= down : down >= across; };
  const bool diagonal = row == col;
  const auto own = [&](int down, int across) {
    if (HERMITIAN && diagonal && down == across) return on_diagonal(square.at[down][down]);
    return !MIRRORED || !diagonal || in_half(down, across) ? square.at[down][across]
                                                           : mirror_image(square.at[across][down]);
  };
  const auto of_half = [&](int down, int across) { return MIRRORED || !diagonal || in_half(down, across); };
  const auto all = [](int, int) { return true; };
  if (A != D || diagonal) store_square(D, d_row, d_col, row, col, n, own, of_half);
  if (MIRRORED && !diagonal)
    store_square(
        D, d_row, d_col, col, row, n,
        [&](int down, int across) { return mirror_image(square.at[across][down]); }, all);
}
