// The tiles of D that a block of gemm/wgmma.cu multiplies, one after another, and what becomes of the sums of those that it
// shares.
//
//   SCHEDULED 0   whole tiles: the block's own, then every so many-th. The blocks of a cluster take neighbouring ones
//   SCHEDULED 1   what the schedule says: whole tiles, or stretches of k whose sums meet in the workspace (sharing.cuh)
//   PEERS_IN_CLUSTER 1   the peers of a tile are a cluster: each has one stretch, and the sums meet in their shared memory
#pragma once

#include "wgmma_store.cuh"  // first: it brings the element types

#include "packing.cuh"

struct Extents { int M, N, K, batch, batches; };

#if PEERS_IN_CLUSTER
// One stretch of one tile, found without the divisions of a walk: they would come before the first load.
struct Tiles {
  const Schedule& schedule;
  WorkUnit unit;
  int row, col, inner, outer, begin, end;
  bool done = false;

  __device__ __forceinline__ Tiles(const Extents&, const Schedule& schedule) : schedule(schedule) {}

  __device__ __forceinline__ bool next(const Extents& e, int) {
    if (done) return false;
    done = true;
    const int peer = blockIdx.x % PEERS_IN_CLUSTER;
    begin = peer * schedule.normal_iterations + min_of(peer, schedule.big_blocks);
    end = begin + schedule.normal_iterations + (peer < schedule.big_blocks);
    unit = schedule.make(blockIdx.x / PEERS_IN_CLUSTER, begin, end);
    unit.peer = peer;
    row = unit.row * BM, col = unit.column * BN;
    inner = unit.batch % e.batch, outer = unit.batch / e.batch;
    return true;
  }
};
#elif SCHEDULED
struct Tiles : Work {
  int row, col, inner, outer, begin, end;  // of the tile; its steps along k

  __device__ __forceinline__ Tiles(const Extents&, const Schedule& schedule) : Work(schedule) {}

  __device__ __forceinline__ bool next(const Extents& e, int rank) {
    if (!Work::next()) return false;
    row = (unit.row * CLUSTER_M + rank % CLUSTER_M) * BM;
    col = (unit.column * CLUSTER_N + rank / CLUSTER_M) * BN;
    inner = unit.batch % e.batch, outer = unit.batch / e.batch;
    begin = unit.k_begin, end = unit.k_end;
    return true;
  }
};
#else
// Clusters go down a band of RASTER rows, then to the next column: for the L2.
struct Tiles {
  int tiles_m, tiles_n, per_matrix, count, at;
  int row, col, inner, outer, end;
  static constexpr int begin = 0;

  __device__ __forceinline__ Tiles(const Extents& e, const Schedule&) {
    tiles_m = ceil_div(e.M, BM * CLUSTER_M);
    tiles_n = ceil_div(e.N, BN * CLUSTER_N);
    per_matrix = tiles_m * tiles_n;
    count = per_matrix * e.batch * e.batches;
    at = blockIdx.x / CLUSTER - gridDim.x / CLUSTER;
    end = ceil_div(e.K, BK);
  }
  __device__ __forceinline__ bool next(const Extents& e, int rank) {
    at += gridDim.x / CLUSTER;
    if (at >= count) return false;
    const int tile = at % per_matrix, matrix = at / per_matrix;
    const int band = tile / (RASTER * tiles_n) * RASTER, height = min_of(RASTER, tiles_m - band);
    const int within = tile % (RASTER * tiles_n);
    row = ((band + within % height) * CLUSTER_M + rank % CLUSTER_M) * BM;
    col = (within / height * CLUSTER_N + rank / CLUSTER_M) * BN;
    inner = matrix % e.batch, outer = matrix / e.batch;
    return true;
  }
  template <int Threads, int Rows, int Count>
  __device__ __forceinline__ bool combine(const Workspace&, void*, Sum (&)[Rows][Count]) const { return true; }
};
#endif

#if PEERS_IN_CLUSTER
// Pieces of sums as threads hold them: 64 rows x 8 columns of a warpgroup, four sums a thread. Every PEERS_IN_CLUSTER-th one is
// mine: the others send me theirs, since a peer's memory is written faster than read, and I add them in the order of the peers.
template <int Threads, int Rows, int Count> struct Exchange {
  static constexpr int EACH = Count / 4, PIECES = Rows * EACH, MINE = (PIECES + PEERS_IN_CLUSTER - 1) / PEERS_IN_CLUSTER;
  static constexpr int BYTES = MINE * PEERS_IN_CLUSTER * Threads * 16;  // of shared memory
  Piece<Sum> mine[MINE];
  int first;  // of my pieces

  __device__ __forceinline__ Exchange(Piece<Sum>* shared, const Sum (&sums)[Rows][Count], int peer) : first(peer) {
    Piece<Sum>* const from_me = shared + peer * Threads + threadIdx.x;
    unsigned there[PEERS_IN_CLUSTER];
#pragma unroll
    for (int other = 0; other < PEERS_IN_CLUSTER; ++other) there[other] = peer_address(shared_address(from_me), other);
    cluster_barrier();  // all have read their last stage
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
      const Sum* s = &sums[piece / EACH][piece % EACH * 4];
      const int owner = piece % PEERS_IN_CLUSTER, place = piece / PEERS_IN_CLUSTER * PEERS_IN_CLUSTER * Threads;
      const Piece<Sum> own = {s[0], s[1], s[2], s[3]};
      if (owner == peer) from_me[place] = own;
      else send_peer(there[owner] + place * 16, own);
    }
    cluster_barrier();
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      const Piece<Sum>* const sent = shared + i * PEERS_IN_CLUSTER * Threads + threadIdx.x;
      mine[i] = load(sent[0]);
#pragma unroll
      for (int other = 1; other < PEERS_IN_CLUSTER; ++other) {
        const Piece<Sum> held = load(sent[other * Threads]);
#pragma unroll
        for (int e = 0; e < 4; ++e) mine[i].at[e] += held.at[e];
      }
    }
  }
  __device__ __forceinline__ int number(int i) const { return first + i * PEERS_IN_CLUSTER; }

  // take(product of 64 rows, first column of the piece, sums)
  template <typename Take> __device__ __forceinline__ void each(Take take) {
#pragma unroll
    for (int i = 0; i < MINE; ++i)
      if (number(i) < PIECES) take(number(i) / EACH, number(i) % EACH * 8, mine[i].at);
  }
};
#endif
