// Matrices whose lines do not start on 16 bytes: TMA refuses them, so all blocks first copy them
// into a workspace where they do. Reading and writing them once is small beside what cp.async or plain loads
// would cost in every tile.
//
//   line in memory     ..[e0 e1 e2 | e3 e4 e5 e6 | e7 ..         16-byte pieces that do not start where the line does
//   two pieces, shifted  [e0 e1 e2   e3][e4 e5 e6   e7]...       one piece of the copy: two loads, shifts, one store
//
// Then the blocks wait for each other: all of them must be on the chip at once (a cooperative launch).
#pragma once

#include "hopper.cuh"
#include "packing/transposed.cuh"
#include "share/sharing.cuh"

// ints, of which a few are used: what follows in a workspace keeps its alignment
constexpr int PACKING_FLAGS = 64;

// All warps of the grid take items of work in turn, blocks before their warps: of a small matrix every
// multiprocessor copies a little. Where the items of one matrix end, those of the next one go on.
__device__ __forceinline__ int first_item() { return threadIdx.x / 32 * gridDim.x + blockIdx.x; }

// The same of those warps of a block alone that begin with `first`.
struct Packers {
  int of_block, mine;
  __device__ __forceinline__ explicit Packers(int first)
      : of_block(blockDim.x / 32 - first), mine((threadIdx.x / 32 - first) * gridDim.x + blockIdx.x) {}
};

// How an operand steps through a batch of two dimensions; where it does not, there is one matrix for all.
struct Batch {
  int inner, outer;
  i64 inner_step, outer_step;
  __device__ __forceinline__ int inners() const { return inner_step ? inner : 1; }
  __device__ __forceinline__ int matrices() const { return inners() * (outer_step ? outer : 1); }
};

// Elements from line to line of the copy: lines of the L2, sectors where they are short (operands.py of wgmma
// has the same rule).
template <typename Element>
__device__ __forceinline__ i64 packed_step(int length) {
  const int chunk =
      static_cast<int>((length >= static_cast<int>(128 / sizeof(Element)) ? 128 : 32) / sizeof(Element));
  return static_cast<i64>(ceil_div(length, chunk)) * chunk;
}

// `lines` lines of `length` touching elements, `pitch` apart, of each matrix of a batch, and where their
// copies begin. Pieces are counted through, line after line, so that short lines leave no lane without one,
// and a warp takes 32s of them. Those inside of a matrix are copied without a question; the first 32 and the
// last two may lie where memory ends before a load of 16 bytes does.
template <typename Element>
struct Lines {
  static constexpr int PER_PIECE = 16 / sizeof(Element), MOST = 8;  // 32s that a warp takes at a time
  const Element* from;
  i64 pitch;
  int lines, length;
  Batch batch;
  Element* to;
  int whole;  // the length of lines of which these may be a part

  __device__ __forceinline__ i64 step() const { return packed_step<Element>(whole); }
  __device__ __forceinline__ i64 elements() const { return step() * lines * batch.matrices(); }
  __device__ __forceinline__ unsigned width() const { return ceil_div(length, PER_PIECE); }
  __device__ __forceinline__ unsigned pieces() const { return lines * width(); }
  // Of each matrix, in 32s: those inside, and the others.
  __device__ __forceinline__ int inner() const {
    const int all = (pieces() + 31) / 32;
    return all > 3 && pitch >= length ? all - 3 : 0;
  }
  __device__ __forceinline__ int edges() const { return (pieces() + 31) / 32 - inner(); }
  // Of one matrix, its lines from `first` up to `end`; or so of the elements of each, in whole pieces.
  __device__ __forceinline__ Lines part(bool of_each, int first, int end) const {
    const i64 along = of_each ? 1 : pitch, copy_along = of_each ? 1 : step();
    return {
        from + first * along,    pitch, of_each ? lines : end - first, of_each ? end - first : length, batch,
        to + first * copy_along, whole};
  }
  __device__ __forceinline__ const Element* begin(int matrix) const {
    const int outer = matrix / batch.inners();
    return from + (matrix - outer * batch.inners()) * batch.inner_step + outer * batch.outer_step;
  }

  // A block's part of a small matrix in one piece to the L2, by one thread. Nothing is read, so it may come
  // before the launch ahead has ended, beside whose end memory's latency then lies.
  __device__ __forceinline__ void fetch_ahead() const {
    if (pitch != length || batch.matrices() > 1) return;
    const unsigned long long begin = (reinterpret_cast<unsigned long long>(from) + 15) & ~15ull;
    const unsigned long long end = reinterpret_cast<unsigned long long>(from + pitch * lines) & ~15ull;
    if (end <= begin) return;
    const unsigned whole = static_cast<unsigned>(end - begin) / 16, share = ceil_div(whole, gridDim.x),
                   first = share * blockIdx.x;
    if (first < whole)
      bulk_prefetch(begin + first * 16ull, (whole - first < share ? whole - first : share) * 16);
  }

  struct Place {
    const Element* source;
    Element* target;
    unsigned number, place;  // counted through; in its line
  };
  __device__ __forceinline__ Place locate(int matrix, unsigned number) const {
    const unsigned line = number / width(), place = number - line * width();
    const Element* const source = matrix > 0 ? begin(matrix) : from;
    Element* const target = to + step() * lines * matrix;
    return {source + (line * pitch + place * PER_PIECE), target + (line * step() + place * PER_PIECE), number,
            place};
  }

  // A piece a lane of the first and last ones.
  __device__ __forceinline__ void pack_edge(int item) const {
    const int matrix = batch.matrices() > 1 ? item / edges() : 0, edge = item - matrix * edges();
    const Place at = locate(matrix, (edge > 0 ? edge + inner() : 0) * 32 + threadIdx.x % 32);
    const Readable readable(matrix > 0 ? begin(matrix) : from, pitch, lines, length);
    wait_for_last_launch_behind(at.source);
    if (at.number < pieces())
      *reinterpret_cast<Words*>(at.target) =
          readable.piece(at.source, length - static_cast<int>(at.place) * PER_PIECE);
  }

  // A lane's next piece, 32 further: some lines down and some pieces along; or where the line ends, one line
  // more.
  struct Further {
    unsigned width, along;
    i64 on, wrapped, copy_on, copy_wrapped;
    __device__ __forceinline__ bool go(Place& at) const {
      const bool wraps = (at.place += along) >= width;
      if (wraps) at.place -= width;
      at.target += wraps ? copy_wrapped : copy_on;
      return wraps;
    }
  };
  __device__ __forceinline__ Further further() const {
    const unsigned down = 32 / width(), along = 32 - down * width();
    const i64 back = static_cast<i64>(width()) * PER_PIECE;
    const i64 on = down * pitch + along * PER_PIECE, copy_on = down * step() + along * PER_PIECE;
    return {width(), along, on, on + pitch - back, copy_on, copy_on + step() - back};
  }

  // `count` 32s inside of a matrix, at most Most. Elements past a line's end, up to the 16 bytes, become
  // whatever follows it.
  template <int Most = MOST>
  __device__ __forceinline__ void pack_inner(int matrix, int first, int count) const {
    const Further next = further();
    Place at = locate(matrix, (1 + first) * 32 + threadIdx.x % 32);
    wait_for_last_launch_behind(at.source);
    Words low[Most], high[Most], *targets[Most];
    unsigned skew[Most];
#pragma unroll
    for (int i = 0; i < Most; ++i) {
      skew[i] = skew_of(at.source), targets[i] = reinterpret_cast<Words*>(at.target);
      load_pair_here(reinterpret_cast<const char*>(at.source) - skew[i], i < count, low[i], high[i]);
      at.source += next.go(at) ? next.wrapped : next.on;
    }
    if (length > 0)  // always; but it parts the loads from the shifts
#pragma unroll
      for (int i = 0; i < Most; ++i) {
        if (i >= count) break;
        store_here(targets[i], shifted<sizeof(Element)>(low[i], high[i], skew[i]));
      }
  }

  // From `item` on, all that are the warp's.
  __device__ __forceinline__ void pack(int& item) const {
    const int per_matrix = (inner() + MOST - 1) / MOST, inners = per_matrix * batch.matrices();
    const int warps = gridDim.x * (blockDim.x / 32), items = inners + edges() * batch.matrices();
    for (; item < inners; item += warps) {
      const int matrix = batch.matrices() > 1 ? item / per_matrix : 0,
                first = (item - matrix * per_matrix) * MOST;
      pack_inner(matrix, first, min_of(MOST, inner() - first));
    }
    for (; item < items; item += warps) pack_edge(item - inners);
    item -= items;
  }
};

// An operand of `extent` rows (A) or columns (B). MnMajor: as it lies, and stays, m or n touch. Lines of the
// copy start on lines of the L2, short ones on its sectors.
template <bool MnMajor, typename Element>
__device__ __forceinline__ Lines<Element> lines_of(Element* to, const Element* from, i64 pitch, int extent,
                                                   int k, const Batch& batch) {
  const int length = MnMajor ? extent : k;
  return Lines<Element>{from, pitch, MnMajor ? k : extent, length, batch, to, length};
}

// The same, copied; returns how many elements the copy takes. Transpose: as it lies m or n touch, but k
// shall.
template <bool MnMajor, bool Transpose, typename Element>
__device__ __forceinline__ i64 pack(Element* to, const Element* from, i64 pitch, int extent, int k,
                                    const Batch& batch, int& item) {
  const Lines<Element> copy = lines_of<MnMajor>(to, from, pitch, extent, k, batch);
  if constexpr (Transpose) {
    const i64 step = packed_step<Element>(copy.length);
#pragma unroll 1
    for (int matrix = 0; matrix < batch.matrices(); ++matrix) {
      const int outer = matrix / batch.inners(), inner = matrix - outer * batch.inners();
      pack_transposed(to + step * copy.lines * matrix, step,
                      from + inner * batch.inner_step + outer * batch.outer_step, pitch, copy.length,
                      copy.lines, item);
    }
  } else {
    copy.pack(item);
  }
  return copy.elements();
}

// ---- all blocks meet: what they wrote before is there for TMA after ----
//
// Only who orders copies waits, one thread of a block: all others wait for what it brings. `flags`, zero before
// and after the launch: blocks that have arrived, and that have left; for each part that is packed beside
// products, warps that are done with it.

// By all threads, when they have packed. A block without a tile then only leaves.
__device__ __forceinline__ void arrive_packed(int* flags) {
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(flags) : "memory");
}

// By a warp that packs beside products, of parts numbered from 1 on.
__device__ __forceinline__ void arrive_packed_beside(int* flags, int part) {
  __syncwarp();
  if (threadIdx.x % 32 == 0)
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(flags + 1 + part) : "memory");
}

__device__ __forceinline__ void wait_arrived(const int* flag, int all) {
  int arrived;
  do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(arrived) : "l"(flag) : "memory");
  while (arrived < all);
  // between what generic stores wrote and what TMA reads
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// `behind` is the workspace that packing left: its flags come after these.
__device__ __forceinline__ void wait_packed(const Workspace& behind) {
  wait_arrived(behind.flags - PACKING_FLAGS, gridDim.x);
}
__device__ __forceinline__ void wait_packed_beside(const Workspace& behind, int part, int warps) {
  wait_arrived(behind.flags - PACKING_FLAGS + 1 + part, warps * gridDim.x);
}

// By one thread of each block, behind all of its waits: the last one puts the flags back.
__device__ __forceinline__ void leave_packed(const Workspace& behind, int parts = 0) {
  int *const flags = behind.flags - PACKING_FLAGS, left;
  asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(left) : "l"(flags + 1) : "memory");
  if (left == static_cast<int>(gridDim.x) - 1)
    for (int i = 0; i < 2 + parts; ++i)
      asm volatile("st.relaxed.gpu.global.s32 [%0], 0;" ::"l"(flags + i) : "memory");
}
