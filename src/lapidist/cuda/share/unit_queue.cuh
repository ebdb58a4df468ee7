// How warps with roles learn of a block's units: the thread that orders copies walks through the schedule,
// and tells the others through shared memory, a few units ahead of them.
//
//   producer    | walk | wait read, write unit, arrive told | order its stages | ...
//   consumers          | wait told, read unit, arrive read  | multiply         | ...
//
// So the walk is compiled once, and who has the sums holds no registers for it.
#pragma once
#include "hopper.cuh"
#include "share/sharing.cuh"

struct Board {
  static constexpr unsigned PLACES = 4;  // units of a step or two each leave no stage empty
  struct alignas(16) Told {
    WorkUnit unit;
    int more;
  } at[PLACES];
  Barrier told[PLACES], read[PLACES];

  __device__ __forceinline__ void init() {
    for (int i = 0; i < static_cast<int>(PLACES); ++i)
      barrier_init(&told[i], 1), barrier_init(&read[i], SHARERS / 32);
  }
};

// Counted on: a register for the place and its parity.
struct Turn {
  unsigned count = 0;
  __device__ __forceinline__ int place() const { return count % Board::PLACES; }
  __device__ __forceinline__ int parity() const { return count / Board::PLACES % 2; }
};

// Who walks tells of each unit, and behind the last one that there is none.
struct TellingWork : Work {
  Board& board;
  Turn turn;
  __device__ __forceinline__ TellingWork(const Schedule& schedule, Board& board)
      : Work(schedule), board(board) {}
  __device__ __forceinline__ bool next() {
    const bool more = Work::next();
    const int place = turn.place();
    barrier_wait(&board.read[place], turn.parity() ^ 1);  // a fresh place counts as read
    board.at[place] = {unit, more};
    barrier_arrive(&board.told[place]);
    ++turn.count;
    return more;
  }
};

// Who multiplies is told.
struct ToldWork : Work {
  Board& board;
  Turn turn;
  __device__ __forceinline__ ToldWork(const Schedule& schedule, Board& board)
      : Work(schedule), board(board) {}
  __device__ __forceinline__ bool next() {
    const int place = turn.place();
    barrier_wait(&board.told[place], turn.parity());
    unit = board.at[place].unit;
    const bool more = board.at[place].more;
    __syncwarp();  // all lanes have read it
    if (threadIdx.x % 32 == 0) barrier_arrive(&board.read[place]);
    ++turn.count;
    return more;
  }
};
