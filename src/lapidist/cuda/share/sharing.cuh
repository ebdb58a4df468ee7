// Reductions of the partial sums of blocks that share a tile. share/schedule.cuh says which blocks share and
// wait.
//
// A slot of the workspace is one tile of accumulators in the threads' order: piece i of thread t lies at
// [i * THREADS + t]. So a warp moves whole lines, and no index depends on the layout of the tile.
//
//        rows of a thread's sums                 slot
//      0 [ piece 0 | piece 1 ]                   [ piece 0 of threads 0 .. THREADS - 1 | piece 1 of ... | ... ]
//      1 [ piece 2 | piece 3 ]
//
// A kernel is compiled for one reduction, by default the turnstile: code for others would take registers and
// a third of the compile time.
//
// A reduction block adds fragment f of the tile: rows r with r % fragments == f.
#pragma once
#include "cluster.cuh"
#include "common.cuh"
#include "config.cuh"
#include "share/partial_sums.cuh"

struct Workspace {
  int* flags;   // zero between launches
  void* slots;  // of one tile of accumulators each
};

// A block's position in its work. It lies in shared memory, as its dozen registers are needed for sums.
struct Cursor {
  Walk walk;
  WorkUnit unit;
  int block;
  bool more;
};

// The units of this block, one after another, and the reduction of their sums.
struct Work {
  const Schedule& schedule;
// Producer and consumers have barriers of their own. Each walks the schedule itself, or receives units
// (share/unit_queue.cuh).
#if SHARERS
  Walk walk = Walk::none();
  WorkUnit unit;
  // One step before the block's own work, with an empty walk. So the code that begins a walk, a twentieth of
  // a kernel, stands once, in the loop.
  int block = static_cast<int>(blockIdx.x / CLUSTER) - static_cast<int>(gridDim.x / CLUSTER);
  __device__ __forceinline__ explicit Work(const Schedule& schedule) : schedule(schedule) {}
  __device__ __forceinline__ bool next() {
#pragma unroll 1
    for (; block < schedule.blocks; walk = schedule.walk(block += gridDim.x / CLUSTER)) {
      if (!schedule.next(walk, unit)) continue;
      unit.slot = unit.slot * CLUSTER + blockIdx.x % CLUSTER,
      unit.flag = unit.flag * CLUSTER + blockIdx.x % CLUSTER;
      return true;
    }
    return false;
  }
#elif SCHEDULED
  Cursor& cursor;
  const WorkUnit& unit;
  __device__ __forceinline__ explicit Work(const Schedule& schedule)
      : schedule(schedule), cursor(shared_cursor()), unit(cursor.unit) {
    if (threadIdx.x == 0) {
      cursor.block = blockIdx.x;
      cursor.walk = schedule.walk(blockIdx.x);
    }
    // Without this the assembler was seen not to reconverge the first thread before the barrier that starts a
    // loop.
    __syncwarp();
  }
  __device__ __forceinline__ static Cursor& shared_cursor() {
    __shared__ Cursor cursor;
    return cursor;
  }
#else
  WorkUnit unit;
  bool done = false;
  __device__ __forceinline__ explicit Work(const Schedule& schedule) : schedule(schedule) {}
#endif

#if !SHARERS
  // The next unit, after all threads are done with the one before. Without a schedule: the tile of
  // blockIdx.x, in bands of BAND rows.
  template <int BAND = 1>
  __device__ __forceinline__ bool next(int tiles_m, int tiles_n, int iterations) {
#if SCHEDULED
    __syncthreads();  // shared memory is free for the next unit
    if (threadIdx.x == 0) {
#pragma unroll 1
      while (!(cursor.more = schedule.next(cursor.walk, cursor.unit))) {
        if ((cursor.block += gridDim.x) >= schedule.blocks)
          break;  // persistent blocks take every gridDim.x-th
        cursor.walk = schedule.walk(cursor.block);
      }
    }
    __syncthreads();
    return cursor.more;
#else
    if (done) return false;
    done = true;
    unit = WorkUnit{0, 0, 0, 0, 0, iterations, 0, 1, -1, -1, -1};
    unit.batch = blockIdx.z * gridDim.y + blockIdx.y;
    if constexpr (TRIANGLE > 0) {
      HalfOfTiles(BAND).place(blockIdx.x, tiles_m, tiles_n, unit.row, unit.column);
      return true;
    }
    const int band = blockIdx.x / (BAND * tiles_n) * BAND, in_band = blockIdx.x % (BAND * tiles_n);
    const int height = BAND < tiles_m - band ? BAND : tiles_m - band;
    unit.row = BAND == 1 ? band : band + in_band % height;
    unit.column = BAND == 1 ? in_band : in_band / height;
    return true;
#endif
  }
#endif

  // Whether the unit has the tile's last iteration, which may be a short one.
  __device__ __forceinline__ bool ends_tile() const {
    return !SCHEDULED || (unit.last() && unit.k_end == schedule.iterations);
  }

  // Whether the unit stores row `row` of a thread's sums: every row, unless it is one fragment of a
  // reduction.
  __device__ __forceinline__ bool owns_row(int row) const {
    if constexpr (PEERS_IN_CLUSTER) return row % unit.peers == unit.peer;
    return !SEPARATE || !SCHEDULED || unit.fragment < 0 || row % schedule.fragments == unit.fragment;
  }

  // The same for all rows, bit r for row r. A division for each row would take as long as the rest of its
  // epilogue.
  template <int ROWS>
  __device__ __forceinline__ unsigned owned_rows() const {
    static_assert(ROWS < 32, "a bit for each");
    if (!SEPARATE || !SCHEDULED || unit.fragment < 0) return (1u << ROWS) - 1;
    unsigned owned = 0;
#pragma unroll 1
    for (int row = unit.fragment; row < ROWS; row += schedule.fragments) owned |= 1u << row;
    return owned;
  }

  // Hand the sums on to the next peer, or complete them here. Returns whether they are complete and the
  // epilogue follows. All threads of the block call it together. `shared`: unused memory for a tile of sums.
  template <int THREADS, typename Sum, int ROWS, int COLS>
  __device__ __forceinline__ bool combine(const Workspace& workspace, void* shared,
                                          Sum (&sums)[ROWS][COLS]) const {
    if (!SCHEDULED || unit.peers == 1) return true;
    if constexpr (PEERS_IN_CLUSTER) {
      exchange<THREADS>(static_cast<Piece<Sum>*>(shared), sums);
      return true;
    }
    typedef Piece<Sum> Sums;
    const auto owned = [&](int row) { return owns_row(row); };
    int* const flag = workspace.flags + unit.flag;
    const bool finishes = schedule.finishes(unit), adds = finishes || !(unit.first() || SEPARATE);
    wait_for_flag(flag, schedule.arrivals_needed(unit));
    if (finishes) reset_flag(flag);
    if (SEPARATE && finishes) {
#if SHARERS
      if constexpr (SEPARATE)
        reduce_by_rows<THREADS>(schedule, unit, static_cast<const Piece<Sum>*>(workspace.slots), sums);
#else
      reduce<THREADS>(schedule, unit, static_cast<const Piece<Sum>*>(workspace.slots), sums);
#endif
    } else if (ATOMIC && adds && !finishes) {
      each_piece<THREADS>(workspace.slots, unit.slot, sums, owned, [](Sums& own, Sums& slot) {
#pragma unroll
        for (int i = 0; i < 16 / sizeof(Sum); ++i) atomicAdd(&slot.at[i], own.at[i]);
      });
    } else {
      // One loop loads and one stores: each is unrolled over all sums, so a third one would cost compile time.
      if constexpr (SUMS_BY_EIGHTS) {
        const SlotOfEights<THREADS, Sum, ROWS, COLS> slot(workspace.slots, unit.slot);
        if (adds && !SEPARATE) slot.add_to(sums);
        if (!finishes) slot.leave(sums);
      } else {
        if (adds && !SEPARATE) each_piece<THREADS>(workspace.slots, unit.slot, sums, owned, AddPiece<Sum>());
        if (!finishes) each_piece<THREADS>(workspace.slots, unit.slot, sums, owned, LeavePiece<Sum>());
      }
    }
    if (!finishes) raise_flag(flag, SEPARATE ? schedule.fragments : 1);
    return finishes;
  }

  // All peers write their sums to shared memory. Each adds the rows that it owns, in the order of the peers.
  template <int THREADS, typename Sum, int ROWS, int COLS>
  __device__ __forceinline__ void exchange(Piece<Sum>* shared, Sum (&sums)[ROWS][COLS]) const {
    constexpr int EACH = 16 / sizeof(Sum), PIECES = COLS / EACH;
    const int thread = thread_now();
    __syncthreads();  // all threads have read the last tile
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
#pragma unroll
      for (int e = 0; e < COLS; ++e)
        shared[(row * PIECES + e / EACH) * THREADS + thread].at[e % EACH] = sums[row][e];
    cluster_barrier();
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      if (!owns_row(row)) continue;
#pragma unroll
      for (int e = 0; e < COLS; ++e) sums[row][e] = 0;
#pragma unroll 4
      for (int peer = 0; peer < unit.peers; ++peer)
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
          const Piece<Sum> held = read_peer(&shared[(row * PIECES + piece) * THREADS + thread], peer);
#pragma unroll
          for (int i = 0; i < EACH; ++i) sums[row][piece * EACH + i] += held.at[i];
        }
    }
    cluster_barrier();  // no block exits, or writes again, while a peer still reads
  }
};
