// Batches of small matrices: a block computes `products` of them at once, where other families give each its own
// tile. Any strides, in float, double, half and __nv_bfloat16.
//
//   1. Matrices that lie one behind the other are a single run of memory, which all threads copy to shared memory in
//      vectors of 16 bytes. Others are copied element by element. There all are of the accumulator's type.
//   2. A thread computes TM x TN results of one product. They lie as far apart as the product has threads, so that
//      neighbouring threads read neighbouring columns of B.
//
// Lines in shared memory have an odd number of elements: else rows of A would start in few banks.
// A_CONTIGUOUS, B_CONTIGUOUS: as in gemm/simt.cu. M <= BM, N <= BN.
#include "common.cuh"
#include "config.cuh"

constexpr int THREADS = BM / TM * (BN / TN), VECTOR = 16 / sizeof(T), AT_ONCE = 4;

// Five blocks on an SM. With large thread tiles any number, one too, was slower than what the assembler chooses.
constexpr int LEAST_BLOCKS = TM * TN > 4 ? 0 : 5;

// As words: elements of two bytes would take a register each.
struct alignas(16) Vector {
  unsigned words[4];
};

// Division by a number that is known only here: one real division, then a multiplication each. It is exact where
// dividend times divisor is less than 2^32, and a block's shared memory has far fewer elements.
struct Divisor {
  unsigned by, inverse;
  __device__ __forceinline__ explicit Divisor(int divisor)
      : by(divisor), inverse(divisor > 1 ? 0xffffffffu / divisor + 1 : 0) {}
  __device__ __forceinline__ unsigned into(unsigned number) const {
    return inverse ? __umulhi(number, inverse) : number;
  }
};

// Where a product's matrices lie: `more` if the batch has an outer extent.
struct Batch {
  unsigned inner_extent;
  bool more;
  __device__ __forceinline__ i64 to_matrix(unsigned product, i64 inner, i64 outer) const {
    return more ? product % inner_extent * inner + product / inner_extent * outer : product * inner;
  }
  // Whether matrices of so many elements follow each other without gaps.
  __device__ __forceinline__ bool packed(i64 size, i64 inner, i64 outer) const {
    return inner == size && (!more || outer == inner_extent * size);
  }
};

// The matrices of one operand: `lines` lines of `length` elements each.
struct Operand {
  const T* at;
  int lines, length;
  i64 line, element, inner, outer;

  __device__ __forceinline__ int pitch() const { return length | 1; }
  __device__ __forceinline__ int size() const { return lines * pitch(); }  // of one matrix in shared memory
  // A stride of one element is passed as zero.
  __device__ __forceinline__ bool packed(const Batch& batch) const {
    return (length == 1 || element == 1) && (lines == 1 || line == length) &&
           batch.packed(static_cast<i64>(lines) * length, inner, outer);
  }
};

// The run of an operand's matrices of several products: null where they do not follow each other.
__device__ __forceinline__ const T* run_of(const Operand& x, unsigned first, const Batch& batch) {
  return x.packed(batch) ? x.at + static_cast<i64>(first) * x.lines * x.length : nullptr;
}
__device__ __forceinline__ int vectors_of(const T* run, int elements) {
  return run && reinterpret_cast<unsigned long long>(run) % 16 == 0 ? elements / VECTOR : 0;
}

__device__ __forceinline__ void fetch(Vector (&found)[AT_ONCE], const T* run, int from, int vectors) {
#pragma unroll
  for (int i = 0; i < AT_ONCE; ++i)
    if (from + i * THREADS < vectors) found[i] = reinterpret_cast<const Vector*>(run)[from + i * THREADS];
}

__device__ __forceinline__ void spread(Acc* to, const Vector (&found)[AT_ONCE], int from, int vectors,
                                       const Divisor& length, int pitch) {
#pragma unroll
  for (int i = 0; i < AT_ONCE; ++i)
    if (from + i * THREADS < vectors) {
      const unsigned element = (from + i * THREADS) * VECTOR, line = length.into(element);
      unsigned column = element - line * length.by, place = line * pitch + column;
#pragma unroll
      for (int e = 0; e < VECTOR; ++e) {
        to[place++] = Acc(reinterpret_cast<const T*>(found[i].words)[e]);
        if (++column == length.by) column = 0, place += pitch - length.by;
      }
    }
}

// What no vector holds.
__device__ __forceinline__ void copy_rest(Acc* to, const Operand& x, const T* run, int done, int elements,
                                          unsigned first, const Batch& batch, const Divisor& length) {
  const int pitch = x.pitch();
  if (run) {
    for (unsigned e = done + threadIdx.x; e < elements; e += THREADS) {
      const unsigned line = length.into(e);
      to[line * pitch + e - line * length.by] = Acc(run[e]);
    }
    return;
  }
  const Divisor lines(x.lines);
  for (unsigned e = threadIdx.x; e < elements; e += THREADS) {
    const unsigned line = length.into(e), column = e - line * length.by, product = lines.into(line);
    const T* const matrix = x.at + batch.to_matrix(first + product, x.inner, x.outer);
    to[line * pitch + column] = Acc(matrix[(line - product * lines.by) * x.line + column * x.element]);
  }
}

// Copies the matrices of `count` products. The first loads of A and of B wait for memory together.
__device__ __forceinline__ void load(Acc* As, Acc* Bs, const Operand& a, const Operand& b, unsigned first,
                                     int count, const Batch& batch) {
  const T* const a_run = run_of(a, first, batch);
  const T* const b_run = run_of(b, first, batch);
  const int a_elements = a.lines * count * a.length, b_elements = b.lines * count * b.length;
  const int a_vectors = vectors_of(a_run, a_elements), b_vectors = vectors_of(b_run, b_elements);
  Vector a_found[AT_ONCE], b_found[AT_ONCE];
  fetch(a_found, a_run, threadIdx.x, a_vectors);
  fetch(b_found, b_run, threadIdx.x, b_vectors);
  const Divisor a_length(a.length), b_length(b.length);
  for (int from = threadIdx.x;;) {
    spread(As, a_found, from, a_vectors, a_length, a.pitch());
    spread(Bs, b_found, from, b_vectors, b_length, b.pitch());
    from += AT_ONCE * THREADS;
    if (from >= a_vectors && from >= b_vectors) break;
    fetch(a_found, a_run, from, a_vectors);
    fetch(b_found, b_run, from, b_vectors);
  }
  copy_rest(As, a, a_run, a_vectors * VECTOR, a_elements, first, batch, a_length);
  copy_rest(Bs, b, b_run, b_vectors * VECTOR, b_elements, first, batch, b_length);
}

// As in gemm/simt.cu, where alpha times a sum is not fused with beta C.
__device__ __forceinline__ float rounded(float one, float other) { return __fmul_rn(one, other); }
__device__ __forceinline__ double rounded(double one, double other) { return __dmul_rn(one, other); }

extern "C" __global__ void __launch_bounds__(THREADS, LEAST_BLOCKS)
    small(int M, int N, int K, Acc alpha, Acc beta, const T* A, const T* B, const Out* C, Out* D, i64 a_row,
          i64 a_col, i64 a_inner, i64 a_outer, i64 b_row, i64 b_col, i64 b_inner, i64 b_outer, i64 c_row,
          i64 c_col, i64 c_inner, i64 c_outer, i64 d_row, i64 d_inner, i64 d_outer, int batch, int all,
          int products) {
  extern __shared__ __align__(16) char shared[];
  const Operand a = A_CONTIGUOUS == 2 ? Operand{A, K, M, a_col, a_row, a_inner, a_outer}
                                      : Operand{A, M, K, a_row, a_col, a_inner, a_outer};
  const Operand b = B_CONTIGUOUS == 1 ? Operand{B, N, K, b_col, b_row, b_inner, b_outer}
                                      : Operand{B, K, N, b_row, b_col, b_inner, b_outer};
  const Batch products_at = {static_cast<unsigned>(batch), all > batch};
  const unsigned first = blockIdx.x * products;
  const int count = min_of(products, all - first);
  Acc* const As = reinterpret_cast<Acc*>(shared);
  Acc* const Bs = As + products * a.size();
  load(As, Bs, a, b, first, count, products_at);
  __syncthreads();

  const int rows = ceil_div(M, TM), cols = ceil_div(N, TN);  // threads of a product
  const int a_step = A_CONTIGUOUS == 2 ? 1 : a.pitch(), a_k = A_CONTIGUOUS == 2 ? a.pitch() : 1;
  const int b_step = B_CONTIGUOUS == 1 ? b.pitch() : 1, b_k = B_CONTIGUOUS == 1 ? 1 : b.pitch();
  const Divisor parts(rows * cols), across(cols);
  const bool d_packed = products_at.packed(M * N, d_inner, d_outer);
  for (unsigned part = threadIdx.x; part < count * rows * cols; part += THREADS) {
    const unsigned own = parts.into(part), place = part - own * parts.by, row = across.into(place),
                   col = place - row * across.by;
    const Acc* a_at[TM];
    const Acc* b_at[TN];
#pragma unroll
    for (int i = 0; i < TM; ++i) a_at[i] = As + own * a.size() + min_of(row + i * rows, M - 1) * a_step;
#pragma unroll
    for (int j = 0; j < TN; ++j) b_at[j] = Bs + own * b.size() + min_of(col + j * cols, N - 1) * b_step;
    Acc sums[TM][TN] = {};
#pragma unroll 4
    for (int k = 0; k < K; ++k) {
      Acc a_now[TM], b_now[TN];
#pragma unroll
      for (int i = 0; i < TM; ++i) a_now[i] = a_at[i][k * a_k];
#pragma unroll
      for (int j = 0; j < TN; ++j) b_now[j] = b_at[j][k * b_k];
      outer_product(sums, a_now, b_now);
    }
    const unsigned product = first + own;
    const i64 to_matrix = d_packed ? product * d_inner : products_at.to_matrix(product, d_inner, d_outer);
    Out* const d = D + to_matrix + row * d_row + col;
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
      for (int j = 0; j < TN; ++j) {
        if (row + i * rows >= M || col + j * cols >= N) continue;
        Acc sum = ALPHA ? rounded(alpha, sums[i][j]) : sums[i][j];
        if (ADDEND && beta != Acc(0))
          sum += beta * Acc(C[products_at.to_matrix(product, c_inner, c_outer) + (row + i * rows) * c_row +
                              (col + j * cols) * c_col]);
        d[i * rows * d_row + j * cols] = Out(sum);
      }
  }
}
