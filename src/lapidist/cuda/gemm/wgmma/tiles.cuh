// The tiles of D that a block of gemm/wgmma.cu computes one after another, and the reduction of tiles that it
// shares.
//
//   SCHEDULED 0          whole tiles, every gridDim.x-th; blocks of a cluster take neighbouring tiles
//   TRIANGLE             those of them that meet one triangle of D (triangle_tiles.cuh)
//   SCHEDULED 1          the units of a schedule: whole tiles, or stretches of k whose sums are added in the workspace
//                        (share/sharing.cuh)
//   RAGGED               tiles of groups that end where device memory says (grouped_tiles.cuh); the last ones may be
//                        cut along k
//   PEERS_IN_CLUSTER     the peers of a tile form a cluster: each has one stretch, and sums are added in shared memory
#pragma once

#include "config.cuh"

#include "gemm/wgmma/addend_of_tile.cuh"
#include "gemm/wgmma/grouped_tiles.cuh"
#include "gemm/wgmma/owners.cuh"
#include "gemm/wgmma/triangle_tiles.cuh"

#include "share/unit_queue.cuh"
#include "packing/packing.cuh"

// elements of m or n in a slab of an M-major or N-major tile, which has a row of 128 bytes for each k
constexpr int MN_MAJOR_COLS = 128 / sizeof(T);

struct Extents {
  int M, N, K, batch, batches;
#if OWNERS
  const Owners* owners;  // of rows of D
#endif
};

// For each pair of blocks, the distance of its first tile from its own number: pairs in one GPC start with
// tiles that read the same rows of A (placement.py). All zeros are right too.
struct Order {
  signed char further[MOST_PAIRS];
};

// One stretch of one tile, found without walking the schedule, which would delay the first load.
template <int Peers>
struct ClusterTiles {
  const Schedule& schedule;
  WorkUnit unit;
  int row, col, inner, outer, begin, end;
  bool done = false;

  __device__ __forceinline__ ClusterTiles(const Extents&, const Schedule& schedule, const Order&)
      : schedule(schedule) {}

  __device__ __forceinline__ bool next(const Extents& e, int) {
    if (done) return false;
    done = true;
    const int peer = blockIdx.x % Peers;
    begin = peer * schedule.normal_iterations + min_of(peer, schedule.big_blocks);
    end = begin + schedule.normal_iterations + (peer < schedule.big_blocks);
    unit = schedule.make(blockIdx.x / Peers, begin, end);
    unit.peer = peer;
    row = unit.row * BM, col = unit.column * BN;
    outer = BATCHED ? floor_div(unit.batch, e.batch) : 0, inner = BATCHED ? unit.batch - outer * e.batch : 0;
    return true;
  }
  __device__ __forceinline__ bool last() const { return true; }
};

// Tiles from a schedule. Units walks the schedule itself, publishes units, or receives them (unit_queue.cuh).
template <typename Units>
struct TilesOf : Units {
  using Units::unit;
  int row, col, inner, outer, begin, end;  // of the tile; its steps along k

  __device__ __forceinline__ TilesOf(const Extents&, const Schedule& schedule, const Order&)
      : Units(schedule) {}
  __device__ __forceinline__ TilesOf(const Schedule& schedule, UnitQueue& queue) : Units(schedule, queue) {}

  __device__ __forceinline__ bool next(const Extents& e, int rank) {
    if (!Units::next()) return false;
    row = (unit.row * CLUSTER_M + rank % CLUSTER_M) * BM;
    col = (unit.column * CLUSTER_N + rank / CLUSTER_M) * BN;
    outer = BATCHED ? floor_div(unit.batch, e.batch) : 0, inner = BATCHED ? unit.batch - outer * e.batch : 0;
    begin = unit.k_begin, end = unit.k_end + (e.K == 0);  // K = 0: one step of zeros from outside the matrix
    return true;
  }
  __device__ __forceinline__ bool last() const { return true; }  // it may be: the next unit is not known yet
};

// Tiles in bands for the L2: clusters go down RASTER rows, then to the next column. With ALONG_M rows and
// columns change roles.
struct WholeTiles {
  int tiles_m, tiles_n, per_matrix, count, at;
  int row, col, inner, outer, end;
  static constexpr int begin = 0;

  __device__ __forceinline__ WholeTiles(const Extents& e, const Schedule&, const Order& order) {
    tiles_m = ceil_div(e.M, BM * CLUSTER_M);
    tiles_n = ceil_div(e.N, BN * CLUSTER_N);
    per_matrix = tiles_m * tiles_n;
    count = per_matrix * e.batch * e.batches;
    at = blockIdx.x / CLUSTER - gridDim.x / CLUSTER;
    if (CLUSTER == 2) at += order.further[blockIdx.x / CLUSTER];
    end = e.K > 0 ? ceil_div(e.K, BK) : 1;  // K = 0: one step of zeros from outside the matrix
  }
  __device__ __forceinline__ bool next(const Extents& e, int rank) {
    at += gridDim.x / CLUSTER;
    if (at >= count) return false;
    const int matrix = BATCHED ? quotient(at, per_matrix) : 0, tile = at - matrix * per_matrix;
    const int lines = ALONG_M ? tiles_n : tiles_m, of_band = RASTER * (ALONG_M ? tiles_m : tiles_n);
    const int before = quotient(tile, of_band), band = before * RASTER, within = tile - before * of_band;
    const int height = min_of(RASTER, lines - band), step = quotient(within, height),
              line = band + within - step * height;
    int down = ALONG_M ? step : line, across = ALONG_M ? line : step;
#if OWNERS
    if (D_M_MAJOR) across = in_turns(*e.owners, across, BN * CLUSTER_N);
    else down = in_turns(*e.owners, down, BM * CLUSTER_M);
#endif
    row = (down * CLUSTER_M + rank % CLUSTER_M) * BM;
    col = (across * CLUSTER_N + rank / CLUSTER_M) * BN;
    outer = BATCHED ? quotient(matrix, e.batch) : 0, inner = BATCHED ? matrix - outer * e.batch : 0;
    return true;
  }
  __device__ __forceinline__ bool last() const { return at + static_cast<int>(gridDim.x / CLUSTER) >= count; }
  template <int Threads, int Rows, int Count>
  __device__ __forceinline__ bool combine(const Workspace&, void*, Sum (&)[Rows][Count]) const {
    return true;
  }
};

using BlocksTiles = typename Choose<(TRIANGLE > 0), TriangleTiles, WholeTiles>::Type;
using WalkedTiles = typename Choose<(PEERS_IN_CLUSTER > 0), ClusterTiles<PEERS_IN_CLUSTER>,
                                    typename Choose<SCHEDULED, TilesOf<Work>, BlocksTiles>::Type>::Type;
using Tiles = typename Choose<(RAGGED > 0), GroupedTiles, WalkedTiles>::Type;
// Consumers receive their tiles from the producer.
constexpr bool QUEUED = (SCHEDULED && !PEERS_IN_CLUSTER) || RAGGED;

// Where rows and columns of a tile's matrix end, and where its k begins.
template <typename Tiles>
__device__ __forceinline__ int end_of_rows(const Tiles& tiles, const Extents& e) {
  if constexpr (RAGGED == RAGGED_ROWS) return tiles.limit;
  else return e.M;
}
template <typename Tiles>
__device__ __forceinline__ int end_of_cols(const Tiles& tiles, const Extents& e) {
  if constexpr (RAGGED == RAGGED_COLS) return tiles.limit;
  else return e.N;
}
template <typename Tiles>
__device__ __forceinline__ int first_k_of(const Tiles& tiles) {
  if constexpr (RAGGED == RAGGED_K) return tiles.first_k;
  else return 0;
}
// Whether the block stores the tile. Of groups it knows before it multiplies.
template <typename Tiles>
__device__ __forceinline__ bool finishes(const Tiles& tiles) {
  if constexpr (RAGGED > 0) return tiles.finishes();
  else return true;
}
// Where its boxes and patches end, if those are clipped.
template <typename Tiles>
__device__ __forceinline__ int limit_of(const Tiles& tiles) {
  if constexpr (RAGGED > 0) return tiles.limit;
  else return 0;
}

// The reduction among peers in a cluster. A tile's sums are patches of 16 rows x Cols, PerWarp for each warp,
// each of them Pieces of four sums for each lane. Patch p of warp w has number p * Warps + w, and belongs to
// peer number % Peers. The other peers send it theirs, since a peer's memory is written faster than read. Its
// warps add them in the order of the peers.
template <int Peers, int Warps, int PerWarp, int Cols>
struct Exchange {
  static constexpr int SUMS = Cols / 2, PIECES = SUMS / 4, ALL = Warps * PerWarp;
  static constexpr int BYTES = (ALL + Peers - 1) / Peers * Peers * PIECES * 512;
  Piece<Sum>* shared;
  int peer, warp, lane;

  // The place in the owner's memory of a patch that peer `of` sends.
  __device__ __forceinline__ Piece<Sum>* slot(int patch, int of) const {
    return shared + (patch / Peers * Peers + of) * PIECES * 32 + lane;
  }

  __device__ __forceinline__ void send(const Sum* sums) const {
    cluster_barrier();  // all have read their last stage
#pragma unroll
    for (int i = 0; i < PerWarp; ++i, sums += SUMS) {
      const int patch = i * Warps + warp, owner = patch % Peers;
      Piece<Sum>* const place = slot(patch, peer);
      const unsigned there = peer_address(shared_address(place), owner);
#pragma unroll
      for (int piece = 0; piece < PIECES; ++piece) {
        const Piece<Sum> own = {sums[piece * 4], sums[piece * 4 + 1], sums[piece * 4 + 2],
                                sums[piece * 4 + 3]};
        if (owner == peer) place[piece * 32] = own;
        else send_peer(there + piece * 512, own);
      }
    }
    cluster_barrier();
  }

  // take(patch, the warp that computed it, patches taken before, sums)
  template <typename Take>
  __device__ __forceinline__ void each(Take take) const {
    for (int turn = 0, patch = warp * Peers + peer; patch < ALL; ++turn, patch += Warps * Peers) {
      Sum mine[SUMS];
#pragma unroll
      for (int piece = 0; piece < PIECES; ++piece) {
        Piece<Sum> held[Peers];
#pragma unroll
        for (int other = 0; other < Peers; ++other) held[other] = load(slot(patch, other)[piece * 32]);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          mine[piece * 4 + e] = held[0].at[e];
#pragma unroll
          for (int other = 1; other < Peers; ++other) mine[piece * 4 + e] += held[other].at[e];
        }
      }
      take(patch / Warps, patch % Warps, turn, mine);
    }
  }
};
