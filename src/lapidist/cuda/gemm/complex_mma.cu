// Products of complex numbers in double, on tensor cores, where they lie: D = alpha A B + beta C.
//
// Real and imaginary parts are fragments of four products of real numbers, with two sums an element:
//
//   shared memory                    fragments         sums
//   re: k ->       im: k ->          A re, A im        re += re re     im += re im
//   line  r r r    line  i i i   ->  B re, B im   ->   re -= im im     im += im re
//
// cp.async moves numbers of any layout part by part. Together they would be loaded from shared memory by fewer
// instructions, but into registers that the tensor core does not take: the copies between them waited for the loads,
// and the products behind them.
//
// A block has BM x BN results, a warp WM x WN of them. Lines of A and of B have BK numbers along k. Number k of line l
// lies at k ^ swizzle(l): half a warp reads four lines of four numbers, writes one line or 16 of one number, and meets
// no bank twice. PARTS blocks of a cluster share k.
#include "config.cuh"
#include "double_mma.cuh"
#include "gemm/complex_results.cuh"
#include "overlap.cuh"
#include "ptx.cuh"

constexpr int THREADS = BM / WM * (BN / WN) * 32, STEPS = BK / 8, ROWS = WM / 16, COLS = WN / 8;
constexpr int A_PARTS = 2 * BM * BK, STAGE = A_PARTS + 2 * BN * BK;  // doubles
constexpr int PITCH = BN + 1;  // of joined sums: eight rows of two meet no bank twice
static_assert(BK == 16, "lines have 16 numbers, which swizzles permute");
static_assert(BM % WM == 0 && BN % WN == 0 && WM % 16 == 0 && WN % 16 == 0, "warps have whole products");
static_assert(PARTS == 1 || 2 * BM * PITCH <= STAGES * STAGE, "sums are joined in the place of the stages");

__device__ __forceinline__ int swizzle(int line) { return line % 4 * 4 + line / 4 % 4; }

// A thread's copies of one operand: numbers of one k (ALONG_K: those of a line touch), or of one line.
template <int Lines, bool ALONG_K>
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
  __device__ __forceinline__ void start(double* re, int left) {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int l = ALONG_K ? line + i * JUMP : line, at = ALONG_K ? k : k + i * JUMP;
      const int bytes = l < lines && at < left ? sizeof(double) : 0;
      double* const to = re + l * BK + (at ^ swizzle(l));
      cp_async_fill<8>(to, &from[i * jump].re, bytes);
      cp_async_fill<8>(to + Lines * BK, &from[i * jump].im, bytes);
    }
    from += stage_step;
  }
};

// Parts of one operand that a warp multiplies in 8 steps of k: of lines g of each Eight, at k = t and 4 + t.
template <int Eights, int Lines>
struct Fragment {
  double re[Eights][2], im[Eights][2];

  // `first`: where the lane's first number lies. Lines eight further have another swizzle.
  __device__ __forceinline__ void read(const double* from, int first, int step) {
#pragma unroll
    for (int e = 0; e < Eights; ++e)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const double* const at = from + (first ^ (e % 2 * 2) ^ (step * 8 + i * 4)) + e * 8 * BK;
        re[e][i] = at[0], im[e][i] = at[Lines * BK];
      }
  }
};
struct Fragments {
  Fragment<ROWS * 2, BM> a;
  Fragment<COLS, BN> b;
  __device__ __forceinline__ void read(const double* stage, int first_a, int first_b, int step) {
    a.read(stage, first_a, step), b.read(stage + A_PARTS, first_b, step);
  }
};

template <bool Negative>
__device__ __forceinline__ double signed_by(double number) {
  return Negative ? -number : number;
}

struct Sums {
  static constexpr bool SAME = A_CONJUGATED == B_CONJUGATED;
  double re[ROWS][COLS][4] = {}, im[ROWS][COLS][4] = {};

  // Products of A's real parts, then of its imaginary ones, so that none waits for the one before. Signs are B's.
  __device__ __forceinline__ void add(const Fragments& f) {
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      const int top = 2 * row, bottom = top + 1;
#pragma unroll
      for (int col = 0; col < COLS; ++col) {
        const double (&b_re)[2] = f.b.re[col], (&b_im)[2] = f.b.im[col];
        multiply_doubles(re[row][col], f.a.re[top], f.a.re[bottom], b_re[0], b_re[1]);
        multiply_doubles(im[row][col], f.a.re[top], f.a.re[bottom], signed_by<B_CONJUGATED>(b_im[0]),
                         signed_by<B_CONJUGATED>(b_im[1]));
      }
#pragma unroll
      for (int col = 0; col < COLS; ++col) {
        const double (&b_re)[2] = f.b.re[col], (&b_im)[2] = f.b.im[col];
        multiply_doubles(re[row][col], f.a.im[top], f.a.im[bottom], signed_by<SAME>(b_im[0]),
                         signed_by<SAME>(b_im[1]));
        multiply_doubles(im[row][col], f.a.im[top], f.a.im[bottom], signed_by<A_CONJUGATED>(b_re[0]),
                         signed_by<A_CONJUGATED>(b_re[1]));
      }
    }
  }
  template <typename Act>
  __device__ __forceinline__ void each(int first_row, int first_col, Act act) const {
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
#pragma unroll
      for (int col = 0; col < COLS; ++col)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          act(first_row + row * 16 + i / 2 * 8, first_col + col * 8 + i % 2,
              Complex{re[row][col][i], im[row][col][i]});
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    complex_mma(const Complex* A, const Complex* B, const Complex* C, Complex* D, int m, int n, int k,
                int tiles_m, int tiles, i64 a_row, i64 a_col, i64 a_matrix, i64 b_row, i64 b_col,
                i64 b_matrix, i64 c_row, i64 c_col, i64 c_matrix, i64 d_row, i64 d_col, i64 d_matrix,
                Part alpha, Part beta, Part alpha_im, Part beta_im) {
  extern __shared__ __align__(128) double shared[];
  const int unit = blockIdx.x / PARTS, part = blockIdx.x % PARTS, matrix = unit / tiles;
  const int number = unit - matrix * tiles, in_band = RASTER * (tiles / tiles_m), band = number / in_band;
  const int high = min(RASTER, tiles_m - band * RASTER), place = number - band * in_band;
  const int row = (band * RASTER + place % high) * BM, col = place / high * BN;
  const int chunks = (k + BK - 1) / BK, first = i64(chunks) * part / PARTS * BK,
            end = min(k, int(i64(chunks) * (part + 1) / PARTS) * BK);
  Copies<BM, A_ALONG_K> of_a(A + matrix * a_matrix + row * a_row + first * a_col, a_row, a_col, m - row);
  Copies<BN, B_ALONG_K> of_b(B + matrix * b_matrix + col * b_col + first * b_row, b_col, b_row, n - col);
  if (OVERLAPS) {
    let_next_launch_start();
    wait_for_last_launch();
  }
  const auto start = [&](int stage, int left) {
    if (left > 0)
      of_a.start(shared + stage * STAGE, left), of_b.start(shared + stage * STAGE + A_PARTS, left);
    cp_async_commit();  // also if none is left: waits count groups
  };
#pragma unroll
  for (int stage = 0; stage < STAGES; ++stage) start(stage, end - first - stage * BK);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int warp_row = warp / (BN / WN) * WM, warp_col = warp % (BN / WN) * WN;
  const int first_a = (warp_row + g) * BK + (t ^ swizzle(g)),
            first_b = (warp_col + g) * BK + (t ^ swizzle(g));
  Fragments fragments[2];
  Sums sums;
  cp_async_wait<STAGES - 1>();
  __syncthreads();
  if (first < end) fragments[0].read(shared, first_a, first_b, 0);
  int stage = 0;
  for (int left = end - first; left > 0; left -= BK) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      if (step == STEPS - 1) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // the next stage is complete, and all threads have read this one
        start(stage, left - STAGES * BK);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
      }
      if (step < STEPS - 1 || left > BK)
        fragments[(step + 1) % 2].read(shared + stage * STAGE, first_a, first_b, (step + 1) % STEPS);
      sums.add(fragments[step % 2]);
    }
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
  const int sums_row = warp_row + g, sums_col = warp_col + t * 2;
  if constexpr (PARTS > 1) {
    Complex* const joined = reinterpret_cast<Complex*>(shared);
    // Behind the last step's barrier nobody reads a stage, and no copy is under way.
    sums.each(sums_row, sums_col, [&](int r, int c, Complex sum) { joined[r * PITCH + c] = sum; });
    store_joined<BM, BN, PITCH, THREADS>(joined, part, results);
  } else {
    sums.each(sums_row, sums_col, [&](int r, int c, Complex sum) { results.store(r, c, sum); });
  }
}
