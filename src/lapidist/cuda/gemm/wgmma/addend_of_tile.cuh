// alpha and beta C for the sums of wgmma, patch by patch before they are stored. One patch of C is read from
// shared memory while the next ones are loaded.
//
// Unrolled loads of a thread's own elements of C, each with a bounds check, were half of the kernel's code
// and of its compile time. So a loop loads a patch line by line, with zeros for what is outside. The loop
// changes a copy of a patch's sums: if it changed all sums, each would be a value at every branch for the
// compiler.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/store.cuh"

constexpr bool C_IN_PATCHES = ADDEND && !C_SAME;  // C is loaded through shared memory

// With C, alpha is applied in the same instruction as beta C.
template <int Count>
__device__ __forceinline__ void scale_sums(Sum* sums, Scalar alpha) {
  if (ADDEND || !ALPHA || alpha == Scalar(1)) return;
#pragma unroll
  for (int i = 0; i < Count; ++i) sums[i] *= alpha;
}

// C of one matrix: its address, strides and extents. beta = 0 never reads it: a NaN must not leak into D.
struct Addend {
  const Out* C;
  i64 row_step, col_step;
  int rows, cols;
  Scalar alpha, beta;

  // All lanes of the warp start copies of the patch at (row, col) to shared memory. Neighbouring lanes copy
  // neighbouring elements. Each copy takes a pointer and a comparison, no more, as later loads wait for these
  // instructions. cp.async copies at least 4 bytes, so smaller elements pass through registers.
  template <typename Patch>
  __device__ __forceinline__ void bring(const Patch& patch, int row, int col) const {
    constexpr int SIZE = sizeof(Out), PIECE = C_BY_ELEMENTS ? SIZE : 16, LINES = Patch::LINES,
                  PIECES = Patch::PITCH / PIECE;
    constexpr bool ACROSS = C_BY_ELEMENTS == 2;
    constexpr int NEAR = ACROSS ? LINES : PIECES, FAR = ACROSS ? PIECES : LINES, SIDE = NEAR < 32 ? NEAR : 32,
                  STEP = 32 / SIDE;
    const int lane = threadIdx.x % 32, below = rows - row, beside = cols - col;
    const int lines = beta == Scalar(0) ? 0 : D_M_MAJOR ? beside : below, length = D_M_MAJOR ? below : beside;
    const i64 pitch = D_M_MAJOR ? col_step : row_step,
              step = C_BY_ELEMENTS ? D_M_MAJOR ? row_step : col_step : PIECE / SIZE;
    const i64 near_step = ACROSS ? pitch : step, far_step = ACROSS ? step : pitch;
    const Out* const corner = C + row * row_step + col * col_step;
#pragma unroll
    for (int near = lane % SIDE; near < NEAR; near += SIDE) {
      const int far = lane / SIDE, left = ACROSS ? (near < lines) * SIZE : length * SIZE - near * PIECE;
      const int exist = left < 0 ? 0 : min_of(left, PIECE), fars = (ACROSS ? length : lines) - far;
      const Out* from = corner + near * near_step + far * far_step;
      unsigned bits[FAR / STEP] = {};
#pragma unroll
      for (int t = 0; t < FAR; t += STEP, from += STEP * far_step) {
        const unsigned place =
            ACROSS ? patch.place(near, (far + t) * PIECE) : patch.place(far + t, near * PIECE);
        if constexpr (PIECE >= 4) cp_async_fill<PIECE>(place, from, t < fars ? exist : 0);
        else load_element_here<SIZE>(from, t < fars && exist, bits[t / STEP]);
      }
#pragma unroll
      for (int t = 0; t < FAR && PIECE < 4; t += STEP) {
        const unsigned place =
            ACROSS ? patch.place(near, (far + t) * PIECE) : patch.place(far + t, near * PIECE);
        *static_cast<Out*>(__cvta_shared_to_generic(place)) = reinterpret_cast<const Out&>(bits[t / STEP]);
      }
    }
  }

  // A lane's elements in the order of its sums, packed in words. When it returns, all lanes have read theirs.
  template <int Cols>
  __device__ __forceinline__ void read(const Patch<Cols>& patch,
                                       unsigned (&words)[Cols / 2 * sizeof(Out) / 4]) const {
    if constexpr (sizeof(Out) == 2 && !A_TRANSPOSED) {
#pragma unroll
      for (int j = 0; j < Cols / 16; ++j)
        ldmatrix<D_M_MAJOR>(reinterpret_cast<unsigned (&)[4]>(words[4 * j]),
                            static_cast<const char*>(__cvta_shared_to_generic(patch.matrix_row(j))));
    } else {
      const int m = threadIdx.x % 32 / 4 * NEXT_GROUP, n = threadIdx.x % 4 * 2;
      auto& elements = reinterpret_cast<Out(&)[Cols / 2]>(words);
#pragma unroll
      for (int i = 0; i < Cols / 2; i += 2) {
        const int down = m + i / 2 % 2 * NEXT_ROW, across = n + i / 4 * 8;
        if (D_M_MAJOR) elements[i] = patch.at(across, down), elements[i + 1] = patch.at(across + 1, down);
        else
          reinterpret_cast<Vector<Out, 2>&>(elements[i]) =
              reinterpret_cast<const Vector<Out, 2>&>(patch.at(down, across));
      }
    }
    __syncwarp();
  }

  // Add C of a patch. All copies but the last Pending groups must be complete.
  template <int Pending, int Cols>
  __device__ __forceinline__ void add(const Patch<Cols>& patch, Sum* sums) const {
    unsigned words[Cols / 2 * sizeof(Out) / 4];
    cp_async_wait<Pending>();
    __syncwarp();
    read(patch, words);
#pragma unroll
    for (int i = 0; i < Cols / 2; ++i)
      sums[i] = alpha * sums[i] + beta * Scalar(reinterpret_cast<const Out*>(words)[i]);
  }

  template <int Cols>
  __device__ __forceinline__ void add_one(const Patch<Cols>& patch, int row, int col, Sum* sums) const {
    bring(patch, row, col);
    cp_async_commit();
    add<0>(patch, sums);
  }

  // Start the copy of patch `number` of All. The first patch is at (row, col), and Across patches lie in a
  // row. Past the last patch an empty group is committed, so that waits can count groups.
  template <int Across, int All, int Cols, int Buffers>
  __device__ __forceinline__ void bring_one(const Patch<Cols> (&buffers)[Buffers], int row, int col,
                                            int number) const {
    if (number < All)
      bring(buffers[number % Buffers], row + number / Across * NEXT_SLAB, col + number % Across * Cols);
    cp_async_commit();
  }
  // Start as many copies as there are buffers; before the products, if the tile is this block's alone.
  template <int Across, int All, int Cols, int Buffers>
  __device__ __forceinline__ void begin(const Patch<Cols> (&buffers)[Buffers], int row, int col) const {
#pragma unroll 1
    for (int number = 0; number < Buffers; ++number) bring_one<Across, All>(buffers, row, col, number);
  }
  // Then call take(number, sums) for each patch. What is stored twice is kept: registers cannot be indexed.
  template <int Across, int All, int Cols, int Buffers, typename Take>
  __device__ __forceinline__ void each(const Patch<Cols> (&buffers)[Buffers], int row, int col, Sum* sums,
                                       Take take) const {
#pragma unroll 1
    for (int number = 0; number < All; ++number) {
      Sum mine[Cols / 2];
      at_patch<Cols, All>(sums, number, [&](const Sum* found) {
#pragma unroll
        for (int i = 0; i < Cols / 2; ++i) mine[i] = found[i];
      });
      add<Buffers - 1>(buffers[number % Buffers], mine);
      bring_one<Across, All>(buffers, row, col, number + Buffers);
      take(number, mine);
#pragma unroll
      for (int i = 0; BOTH_HALVES && i < All * Cols / 2; ++i)
        if (i / (Cols / 2) == number) sums[i] = mine[i % (Cols / 2)];
    }
  }
};
