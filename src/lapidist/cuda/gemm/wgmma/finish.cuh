// The epilogue of gemm/wgmma.cu.
//
//   shared tiles       sums of all peers are added: in the workspace (share/), or in a cluster (Exchange)
//   each patch         factors -> alpha, beta C -> the caller's function -> D's type -> D
//
// A patch is 16 rows of one warp. TMA stores it from swizzled shared memory. If rows of D do not start on
// multiples of 16 bytes, threads store it.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/epilogue_of_tile.cuh"
#include "gemm/wgmma/deferred_store.cuh"
#include "gemm/wgmma/product.cuh"

// A C of one row, like a bias, or of one column. Each thread reads its own elements a few columns ahead of
// the sums that they are added to, the first ones while the last products run.
//
// Loaded in patches like a whole C, it took 10 to 60 % of the product's time at k = 1024: the same row was
// loaded for each row of D, and patches of D could not be held during the next tile's products.

// As in gemm/wgmma/addend_of_tile.cuh: beta C is rounded, then one instruction multiplies by alpha and adds it.
__device__ __forceinline__ float scaled_and(float alpha, float sum, float added) {
  return __fmaf_rn(alpha, sum, added);
}
__device__ __forceinline__ int scaled_and(int alpha, int sum, int added) { return alpha * sum + added; }

// C for 16 rows from `row` on and Cols columns from `col` on. If C is a row, elements[2 j + i] belongs to
// column 8 j + i behind the lane's first. Else elements[h] belongs to the lane's row h of two.
template <int Cols>
struct LineOfC {
  static constexpr int COUNT = C_SAME == 1 ? Cols / 4 : 2;
  alignas(2 * sizeof(Out)) Out elements[COUNT];

  __device__ __forceinline__ void fetch(const Addend& c, int row, int col) {
    const int lane = threadIdx.x % 32;
    const bool read = c.beta != Scalar(0);
    if constexpr (C_SAME == 1) {
      const int first = col + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < COUNT; i += 2) {
        const int at = first + i / 2 * 8;
        auto& two = reinterpret_cast<Vector<Out, 2>&>(elements[i]);
        if constexpr (C_BY_ELEMENTS) {
          elements[i] = read && at < c.cols ? c.C[at * c.col_step] : Out(0);
          elements[i + 1] = read && at + 1 < c.cols ? c.C[(at + 1) * c.col_step] : Out(0);
        } else {
          two = read && at < c.cols ? reinterpret_cast<const Vector<Out, 2>&>(c.C[at]) : Vector<Out, 2>{};
        }
      }
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int at = row + lane / 4 * NEXT_GROUP + h * NEXT_ROW;
        elements[h] = read && at < c.rows ? c.C[at * c.row_step] : Out(0);
      }
    }
  }
  // wgmma leaves the sum of row h and column 8 j + i in sums[4 j + 2 h + i].
  __device__ __forceinline__ void add(const Addend& c, Sum* sums) const {
    Scalar added[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) added[i] = c.beta * Scalar(elements[i]);
#pragma unroll
    for (int i = 0; i < Cols / 2; ++i)
      sums[i] = scaled_and(c.alpha, sums[i], added[C_SAME == 1 ? i / 4 * 2 + i % 2 : i / 2 % 2]);
  }
  __device__ __forceinline__ static void add_one(const Addend& c, int row, int col, Sum* sums) {
    LineOfC line;
    line.fetch(c, row, col);
    line.add(c, sums);
  }
};

// C for a whole tile. `begin` loads its first elements, `add` the rest.
struct LinesOfC {
  LineOfC<LINE_COLS> ahead;

  __device__ __forceinline__ void begin(const Addend& c, int row, int col) { ahead.fetch(c, row, col); }
  __device__ __forceinline__ void add(const Addend& c, int row, int col, Sum (&sums)[ROWS][BN / 2]) {
    constexpr int PARTS = BN / LINE_COLS, ALL = ROWS * PARTS;
#pragma unroll
    for (int i = 0; i < ALL; ++i) {
      LineOfC<LINE_COLS> next = ahead;
      const int m = (i + 1) / PARTS, part = (i + 1) % PARTS;
      if (i + 1 < ALL && (C_SAME == 1 || part == 0))
        next.fetch(c, row + m * NEXT_SLAB, col + part * LINE_COLS);
      ahead.add(c, sums[i / PARTS] + i % PARTS * (LINE_COLS / 2));
      ahead = next;
    }
  }
};

template <typename Pipeline, typename Tiles>
struct Finisher {
  const Product& p;
  Pipeline& pipeline;
  const Tiles& tiles;
  int warp, lane, warp_row;  // the first row of the warp's sums
  int first_warp;            // of the warps that store patches together
  int first_buffer;          // patches use the buffers in turn, tile after tile
  Addend addend;
  LinesOfC lines;                               // C, if it is a single row or column
  fused::Fragments::Turns<ROWS, BN / 2> turns;  // the caller's function
  Words begins;                                 // if threads store rows: the end of the patch before

  __device__ __forceinline__ Finisher(const Product& p, Pipeline& pipeline, const Tiles& tiles, int warp_row,
                                      int first_warp, int first_buffer)
      : p(p),
        pipeline(pipeline),
        tiles(tiles),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        warp_row(warp_row),
        first_warp(first_warp),
        first_buffer(first_buffer),
        addend{p.c_of(tiles.inner, tiles.outer), p.c_row, p.c_col, rows(), columns(), p.alpha, p.beta} {}

  // Where the tile's matrix ends.
  __device__ __forceinline__ int rows() const { return end_of_rows(tiles, p.extents); }
  __device__ __forceinline__ int columns() const { return end_of_cols(tiles, p.extents); }

  // Load the first patches of C while the products run.
  __device__ __forceinline__ void ask_for_c() const {
    if constexpr (C_IN_PATCHES)
      addend.template begin<D_PATCHES, ALL_PATCHES>(pipeline.patch.C[warp], warp_row, tiles.col);
  }

  // Load the first operands of the caller's function while the last products run.
  __device__ __forceinline__ void ask_for_operands() {
    if constexpr (C_SAME && !PEERS_IN_CLUSTER) lines.begin(addend, warp_row, tiles.col);
    if constexpr (!C_IN_PATCHES && !PEERS_IN_CLUSTER) of_caller().begin(turns, warp_row, tiles.col);
  }

  __device__ __forceinline__ static int row_of(int patch) { return patch / D_PATCHES * NEXT_SLAB; }
  __device__ __forceinline__ int col_of(int patch) const { return tiles.col + patch % D_PATCHES * D_COLS; }

  __device__ __forceinline__ void apply_factors(int row, int col, Sum* sums) const {
    scale_in_the_end<D_COLS / 2>(sums, scales_of(p, tiles), p.modes, row + lane / 4 * NEXT_GROUP,
                                 col + lane % 4 * 2, rows(), columns());
  }
  __device__ __forceinline__ fused::Fragments of_caller() const {
    return fused::Fragments(p.operands, tiles.inner, tiles.outer, rows(), columns(), p.modes);
  }

  // Store one patch of D; `number`: patches of the tile that came before. `sums` holds those of AMONG
  // patches.
  __device__ __forceinline__ void store(int row, int patch, int number, Sum* sums) {
    if constexpr (EPILOGUE_STORES) return;  // the function has stored everything
    const int col = col_of(patch);
    auto& buffer = pipeline.patch.D[warp][(first_buffer + number) % D_BUFFERS];
    if (!D_COPY_ENGINE) {
      // in a cluster a warp has no neighbouring patches: they belong to other warps
      const int before = PEERS_IN_CLUSTER ? 0 : patch * D_COLS;
      const int cols = min_of(columns() - col, PEERS_IN_CLUSTER ? D_COLS : BN - before);
      Out* const d = p.d_of(tiles.inner, tiles.outer);
      return store_by_hand<AMONG, LIVE, PatchRows>(buffer, begins, sums, number, d + row * p.d.line + col,
                                                   p.d.line, before, rows() - row, cols);
    }
    if (lane == 0) tma_store_wait_read<D_BUFFERS - 1>();
    __syncwarp();
    buffer.template lay<AMONG>(sums, number);
    proxy_fence();
    __syncwarp();
    if (SCATTERS || lane == 0)
      store_box(destination_of(p), D_M_MAJOR ? row : col, D_M_MAJOR ? col : row, tiles.inner, tiles.outer,
                limit_of(tiles), buffer.bytes);
    if (lane == 0) tma_store_commit();
  }

  // The peers of a tile form a cluster: each patch has one owner, which receives the sums of all peers.
  __device__ __forceinline__ void finish_in_cluster(Sum (&sums)[ROWS][BN / 2]) {
    typedef Exchange<PEERS_IN_CLUSTER, GROUPS * 4, ALL_PATCHES, D_COLS> Peers;
    const Peers exchange = {reinterpret_cast<Piece<Sum>*>(&pipeline), tiles.unit.peer, warp, lane};
    static_assert(Peers::BYTES <= sizeof(pipeline.stage), "the sums lie where the operands were");
    const fused::Fragments function = of_caller();
    exchange.send(sums[0]);
    exchange.each([&](int patch, int of, int number, Sum* mine) {
      const int row = tiles.row + row_of_warp<ROWS>(of / 4, of) + row_of(patch), col = col_of(patch);
      apply_factors(row, col, mine);
      scale_sums<D_COLS / 2>(mine, p.alpha);
      if constexpr (C_SAME) LineOfC<D_COLS>::add_one(addend, row, col, mine);
      else if constexpr (ADDEND) addend.add_one(pipeline.patch.C[warp][0], row, col, mine);
      function.template finish<D_COLS / 2>(mine, row, col);
      store(row, patch % D_PATCHES, number, mine);
    });
  }

  // This block has all of the tile's sums.
  template <typename Held>
  __device__ __forceinline__ void finish(Sum (&sums)[ROWS][BN / 2], Held& held, bool few) {
    const fused::Fragments function = of_caller();
#pragma unroll
    for (int i = 0; i < ALL_PATCHES; ++i)
      apply_factors(warp_row + row_of(i), col_of(i), &sums[i / D_PATCHES][i % D_PATCHES * (D_COLS / 2)]);
    scale_sums<ROWS * BN / 2>(sums[0], p.alpha);
    if constexpr (C_SAME) lines.add(addend, warp_row, tiles.col, sums);
    if constexpr (C_IN_PATCHES) {
      if (SCHEDULED) ask_for_c();
      addend.template each<D_PATCHES, ALL_PATCHES>(
          pipeline.patch.C[warp], warp_row, tiles.col, sums[0], [&](int i, Sum* mine) {
            const int row = warp_row + row_of(i);
            function.template finish<D_COLS / 2>(mine, row, col_of(i));
            if (!by_elements()) store(row, i % D_PATCHES, i, mine);
          });
      store_mirrored(sums, ALL_PATCHES);
    } else {
      function.finish_all(turns, sums, warp_row, tiles.col);
      if constexpr (EPILOGUE_STORES) return;
      if constexpr (D_COPY_ENGINE) {
        copy_out(sums, held, few);
      } else {
        // Stores by threads are some hundred instructions for a patch. Unrolled over all patches, they took
        // most of a second to compile.
#pragma unroll 1
        for (int i = 0; i < ALL_PATCHES; ++i) store(warp_row + row_of(i), i % D_PATCHES, i, sums[0]);
      }
    }
  }
  // Whether the tile's sums on both sides of the diagonal may differ, so that those above it are not stored.
  __device__ __forceinline__ bool by_elements() const {
    if constexpr (BOTH_HALVES == 2) return tiles.on_diagonal;
    else return false;
  }
  // The second store of a tile, or all of one on the diagonal. `stored`: patches of the first one.
  __device__ __forceinline__ void store_mirrored(const Sum (&sums)[ROWS][BN / 2], int stored) const {
    if constexpr (BOTH_HALVES) {
      const int group = warp / 4, down = tiles.row + group % TILE_GROUPS * ROWS * 64;
      const MirroredStore<D_COLS> mirror = {
          destination_of(p), pipeline.patch.D + group * 4, down, tiles.col, tiles.inner, tiles.outer};
      if (!tiles.on_diagonal) mirror.store(sums, first_buffer + stored, limit_of(tiles));
      if (by_elements())
        store_lower_twice(pipeline.patch.D[warp][0], p.d_of(tiles.inner, tiles.outer), p.d.line, warp_row,
                          tiles.col, rows(), sums);
    }
  }
  // Store the first patches now. The last ones are held in registers, and stored during the next products.
  template <typename Held>
  __device__ __forceinline__ void copy_out(Sum (&sums)[ROWS][BN / 2], Held& held, bool few) {
    if (by_elements()) return store_mirrored(sums, 0);
    auto* const buffers = reinterpret_cast<typename WayOut<D_COLS>::Buffer*>(pipeline.patch.D[first_warp]);
    const int row = BY_GROUP ? tiles.row + first_warp % (TILE_GROUPS * 4) / 4 * ROWS * 64 : warp_row;
    const WayOut<D_COLS> out = {destination_of(p), buffers,     row,          tiles.col,
                                tiles.inner,       tiles.outer, first_buffer, limit_of(tiles)};
    out.template store<0, ALL_PATCHES - HELD>(
        [&](int i) { out.buffer(i).lay(sums[i / D_PATCHES] + patch_begin(i % D_PATCHES) / 2); });
    store_mirrored(sums, ALL_PATCHES - HELD);
    held.take(out, sums[0], tiles.end - tiles.begin);
    if (few || tiles.last()) held.store_all();
  }
};
