// Products of complex numbers in float, on CUDA cores, where they lie: D = alpha A B + beta C.
//
// A block has BM x BN results, a thread 8 x 4 of them, two sums each: four products of real numbers a step. Numbers
// come by cp.async, STAGES ahead, from any layout. In shared memory lines of one k follow each other, so that a thread
// reads two neighbours at once. PARTS blocks of a cluster share k.
#include "config.cuh"
#include "gemm/complex/results.cuh"
#include "overlap.cuh"
#include "ptx.cuh"

constexpr int ROWS = 8, COLS = 4, DOWN = 4, ACROSS = 8;  // results of a thread; lanes of a warp
constexpr int WARPS_ACROSS = BN / (COLS * ACROSS), THREADS = BM / (ROWS * DOWN) * WARPS_ACROSS * 32;
constexpr int A_PITCH = BM + 2, B_PITCH = BN + 2;  // lines of neighbours in k start in different banks
constexpr int A_NUMBERS = A_PITCH * BK, STAGE = (A_PITCH + B_PITCH) * BK;
static_assert(BM % (ROWS * DOWN) == 0 && BN % (COLS * ACROSS) == 0, "warps have whole parts of a tile");
static_assert(PARTS == 1 || BM * B_PITCH <= STAGES * STAGE, "sums are joined in the place of the stages");

template <int Lines, int Pitch, bool ALONG_K>
struct Copies {
  static constexpr int EACH = Lines * BK / THREADS, JUMP = THREADS / (ALONG_K ? BK : Lines);
  static_assert(EACH * THREADS == Lines * BK && JUMP >= 1, "threads share a stage evenly");
  const Complex* from;
  i64 jump, stage_step;
  int line, k, lines;

  __device__ __forceinline__ Copies(const Complex* matrix, i64 line_step, i64 k_step, int lines)
      : jump(JUMP * (ALONG_K ? line_step : k_step)),
        stage_step(BK * k_step),
        line(ALONG_K ? threadIdx.x / BK : threadIdx.x % Lines),
        k(ALONG_K ? threadIdx.x % BK : threadIdx.x / Lines),
        lines(lines) {
    from = matrix + line * line_step + k * k_step;
  }
  // Numbers that do not exist are zeros. `left`: those along k from this stage on.
  __device__ __forceinline__ void start(Complex* stage, int left) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int l = ALONG_K ? line + i * JUMP : line, at = ALONG_K ? k : k + i * JUMP;
      cp_async_fill<8>(stage + at * Pitch + l, from + i * jump, l < lines && at < left ? 8 : 0);
    }
    from += stage_step;
  }
};

// Two neighbours at once.
template <int Count, int Step>
__device__ __forceinline__ void read_pairs(Complex (&to)[Count], const Complex* from) {
#pragma unroll
  for (int i = 0; i < Count; i += 2) {
    const float4 two = *reinterpret_cast<const float4*>(from + i / 2 * Step);
    to[i] = {two.x, two.y}, to[i + 1] = {two.z, two.w};
  }
}

struct Sums {
  Complex at[ROWS][COLS] = {};

  template <typename Act>
  __device__ __forceinline__ void each(int first_row, int first_col, Act act) const {
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int j = 0; j < COLS; ++j)
        act(first_row + i / 2 * (DOWN * 2) + i % 2, first_col + j / 2 * (ACROSS * 2) + j % 2, at[i][j]);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    complex_fma(const Complex* A, const Complex* B, const Complex* C, Complex* D, int m, int n, int k,
                int tiles_m, int tiles, i64 a_row, i64 a_col, i64 a_matrix, i64 b_row, i64 b_col,
                i64 b_matrix, i64 c_row, i64 c_col, i64 c_matrix, i64 d_row, i64 d_col, i64 d_matrix,
                Part alpha, Part beta, Part alpha_im, Part beta_im) {
  extern __shared__ __align__(128) Complex shared[];
  const int unit = blockIdx.x / PARTS, part = blockIdx.x % PARTS, matrix = unit / tiles;
  const int number = unit - matrix * tiles, in_band = RASTER * (tiles / tiles_m), band = number / in_band;
  const int high = min(RASTER, tiles_m - band * RASTER), place = number - band * in_band;
  const int row = (band * RASTER + place % high) * BM, col = place / high * BN;
  const int chunks = (k + BK - 1) / BK, first = i64(chunks) * part / PARTS * BK,
            end = min(k, int(i64(chunks) * (part + 1) / PARTS) * BK);
  Copies<BM, A_PITCH, A_ALONG_K> of_a(A + matrix * a_matrix + row * a_row + first * a_col, a_row, a_col,
                                      m - row);
  Copies<BN, B_PITCH, B_ALONG_K> of_b(B + matrix * b_matrix + col * b_col + first * b_row, b_col, b_row,
                                      n - col);
  if (OVERLAPS) {
    let_next_launch_start();
    wait_for_last_launch();
  }
  const auto start = [&](int stage, int left) {
    if (left > 0)
      of_a.start(shared + stage * STAGE, left), of_b.start(shared + stage * STAGE + A_NUMBERS, left);
    cp_async_commit();  // also if none is left: waits count groups
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) start(stage, end - first - stage * BK);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first_row = warp / WARPS_ACROSS * (ROWS * DOWN) + lane / ACROSS * 2,
            first_col = warp % WARPS_ACROSS * (COLS * ACROSS) + lane % ACROSS * 2;
  Sums sums;
  int stage = 0;
  for (int left = end - first; left > 0; left -= BK) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // the stage is complete, and all threads have read the one before
    start(stage == 0 ? STAGES - 1 : stage - 1, left - (STAGES - 1) * BK);
    const Complex* const of_a = shared + stage * STAGE + first_row;
    const Complex* const of_b = shared + stage * STAGE + A_NUMBERS + first_col;
#pragma unroll
    for (int step = 0; step < BK; ++step) {
      Complex x[ROWS], y[COLS];
      read_pairs<ROWS, DOWN * 2>(x, of_a + step * A_PITCH);
      read_pairs<COLS, ACROSS * 2>(y, of_b + step * B_PITCH);
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        const float x_im = A_CONJUGATED ? -x[i].im : x[i].im;
#pragma unroll
        for (int j = 0; j < COLS; ++j) {
          const float y_im = B_CONJUGATED ? -y[j].im : y[j].im;
          sums.at[i][j].re += x[i].re * y[j].re, sums.at[i][j].im += x[i].re * y_im;
          sums.at[i][j].re -= x_im * y_im, sums.at[i][j].im += x_im * y[j].re;
        }
      }
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
  }
  const Results results{D + matrix * d_matrix + row * d_row + col * d_col,
                        C + matrix * c_matrix + row * c_row + col * c_col,
                        d_row,
                        d_col,
                        c_row,
                        c_col,
                        m - row,
                        n - col,
                        alpha,
                        beta,
                        alpha_im,
                        beta_im};
  if constexpr (PARTS > 1) {
    cp_async_wait<0>();
    __syncthreads();  // nobody reads a stage any more
    sums.each(first_row, first_col, [&](int r, int c, Complex sum) { shared[r * B_PITCH + c] = sum; });
    store_joined<BM, BN, B_PITCH, THREADS>(shared, part, results);
  } else {
    sums.each(first_row, first_col, [&](int r, int c, Complex sum) { results.store(r, c, sum); });
  }
}
