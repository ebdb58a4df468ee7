// Partial sums in the workspace, and how reduction blocks add those of all peers. A slot is one tile of sums
// in the threads' order: piece i of thread t lies at [i * THREADS + t]. Fragment f has the rows r of a
// thread's sums with r % fragments == f.
#pragma once
#include "common.cuh"
#include "config.cuh"
#include "share/schedule.cuh"

// 16 bytes of sums, which one instruction moves.
template <typename Sum>
struct alignas(16) Piece {
  Sum at[16 / sizeof(Sum)];
};

// One load: the compiler would make four of it where it sees that elements are used one by one.
template <typename Sum>
__device__ __forceinline__ Piece<Sum> load(const Piece<Sum>& from) {
  const uint4 bits = reinterpret_cast<const uint4&>(from);
  return reinterpret_cast<const Piece<Sum>&>(bits);
}

// Call step(16 bytes of the thread's sums, their place in the slot) for all rows that the unit owns.
template <int THREADS, typename Sum, int ROWS, int COLS, typename Owned, typename Step>
__device__ __forceinline__ void each_piece(void* slots, int slot, Sum (&sums)[ROWS][COLS], Owned owned,
                                           Step step) {
  constexpr int EACH = 16 / sizeof(Sum), PIECES = COLS / EACH;
  static_assert(COLS % EACH == 0, "a row is made of whole pieces");
  constexpr int SLOT = ROWS * PIECES * THREADS;
  Piece<Sum>* const start =
      static_cast<Piece<Sum>*>(slots) + static_cast<long long>(slot) * SLOT + thread_now();
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    if (!owned(row)) continue;
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
      Piece<Sum> own;
#pragma unroll
      for (int i = 0; i < EACH; ++i) own.at[i] = sums[row][piece * EACH + i];
      step(own, start[(row * PIECES + piece) * THREADS]);
#pragma unroll
      for (int i = 0; i < EACH; ++i) sums[row][piece * EACH + i] = own.at[i];
    }
  }
}
// Steps for it.
template <typename Sum>
struct AddPiece {
  __device__ __forceinline__ void operator()(Piece<Sum>& own, Piece<Sum>& slot) const {
    const Piece<Sum> other = load(slot);
#pragma unroll
    for (int i = 0; i < 16 / sizeof(Sum); ++i) own.at[i] += other.at[i];
  }
};
template <typename Sum>
struct LeavePiece {
  __device__ __forceinline__ void operator()(Piece<Sum>& own, Piece<Sum>& slot) const { slot = own; }
};

// add_eight adds two pieces of a slot to eight of a thread's sums; leave_eight stores eight sums there. They
// are asm statements to save compile time: in C++ they took a fifth of it in kernels with hundreds of sums a
// thread.
#define EIGHT_SUMS(mode, kind)                                                                        \
  mode kind(sums[0]), mode kind(sums[1]), mode kind(sums[2]), mode kind(sums[3]), mode kind(sums[4]), \
      mode kind(sums[5]), mode kind(sums[6]), mode kind(sums[7])
#define OF_EIGHT_SUMS(type, add, kind)                                                                      \
  template <int THREADS>                                                                                    \
  __device__ __forceinline__ void add_eight(type* sums, const Piece<type>* slot) {                          \
    asm volatile(                                                                                           \
        "{\n.reg .b32 other<8>;\n"                                                                          \
        "ld.global.v4.b32 {other0, other1, other2, other3}, [%8];\n"                                        \
        "ld.global.v4.b32 {other4, other5, other6, other7}, [%8 + %9];\n" add " %0, %0, other0;\n" add      \
        " %1, %1, other1;\n" add " %2, %2, other2;\n" add " %3, %3, other3;\n" add " %4, %4, other4;\n" add \
        " %5, %5, other5;\n" add " %6, %6, other6;\n" add " %7, %7, other7;\n}"                             \
        : EIGHT_SUMS("+", kind)                                                                             \
        : "l"(slot), "n"(THREADS * 16)                                                                      \
        : "memory");                                                                                        \
  }                                                                                                         \
  template <int THREADS>                                                                                    \
  __device__ __forceinline__ void leave_eight(const type* sums, Piece<type>* slot) {                        \
    asm volatile(                                                                                           \
        "st.global.v4.b32 [%8], {%0, %1, %2, %3};\nst.global.v4.b32 [%8 + %9], {%4, %5, %6, %7};" ::        \
            EIGHT_SUMS("", kind),                                                                           \
        "l"(slot), "n"(THREADS * 16)                                                                        \
        : "memory");                                                                                        \
  }
OF_EIGHT_SUMS(float, "add.f32", "f")
OF_EIGHT_SUMS(int, "add.s32", "r")

// All sums of a thread, eight at a time: add those of a slot to them, or leave them there.
template <int THREADS, typename Sum, int ROWS, int COLS>
struct SlotOfEights {
  static constexpr int EIGHTS = ROWS * COLS / 8;
  static_assert(ROWS * COLS == 8 * EIGHTS, "all of a thread's sums are handed on");
  Piece<Sum>* const first;
  __device__ __forceinline__ SlotOfEights(void* slots, int slot)
      : first(static_cast<Piece<Sum>*>(slots) + slot * (2LL * EIGHTS * THREADS) + threadIdx.x) {}
  __device__ __forceinline__ void add_to(Sum (&sums)[ROWS][COLS]) const {
#pragma unroll
    for (int i = 0; i < EIGHTS; ++i) add_eight<THREADS>(&sums[0][0] + i * 8, first + i * 2 * THREADS);
  }
  __device__ __forceinline__ void leave(const Sum (&sums)[ROWS][COLS]) const {
#pragma unroll
    for (int i = 0; i < EIGHTS; ++i) leave_eight<THREADS>(&sums[0][0] + i * 8, first + i * 2 * THREADS);
  }
};

// Replace eight sums by `found` if `so`.
__device__ __forceinline__ void take_eight(float* sums, const float* found, bool so) {
  asm volatile(
      "{\n.reg .pred so;\nsetp.ne.b32 so, %16, 0;\n@so mov.b32 %0, %8;\n@so mov.b32 %1, %9;\n@so mov.b32 %2, "
      "%10;\n"
      "@so mov.b32 %3, %11;\n@so mov.b32 %4, %12;\n@so mov.b32 %5, %13;\n@so mov.b32 %6, %14;\n@so mov.b32 "
      "%7, %15;\n}"
      : EIGHT_SUMS("+", "f")
      : "f"(found[0]), "f"(found[1]), "f"(found[2]), "f"(found[3]), "f"(found[4]), "f"(found[5]),
        "f"(found[6]), "f"(found[7]), "r"(static_cast<int>(so)));
}

// Add all peers' slots, in the order of the peers. Several loads are in flight at once: one by one, each
// would take a microsecond.
template <int THREADS, typename Sum, int ROWS, int COLS>
__device__ __forceinline__ void reduce(const Schedule& schedule, const WorkUnit& unit,
                                       const Piece<Sum>* slots, Sum (&sums)[ROWS][COLS]) {
  constexpr int EACH = 16 / sizeof(Sum), PIECES = COLS / EACH;
  constexpr int GROUP = PIECES % 4 == 0 ? 4 : PIECES % 2 == 0 ? 2 : 1, AT_ONCE = 4;
  const Piece<Sum>* const start = slots + thread_now();
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    if (row % schedule.fragments != unit.fragment) continue;
#pragma unroll
    for (int piece = 0; piece < PIECES; piece += GROUP) {
#pragma unroll 1
      for (int peer = 0; peer < unit.peers; peer += AT_ONCE) {
        Piece<Sum> held[AT_ONCE][GROUP];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
          const long long slot = schedule.peer_slot(unit, peer + i < unit.peers ? peer + i : peer);
#pragma unroll
          for (int g = 0; g < GROUP; ++g)
            held[i][g] = start[slot * (ROWS * PIECES * THREADS) + (row * PIECES + piece + g) * THREADS];
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
          for (int e = 0; e < GROUP * EACH; ++e)
            sums[row][piece * EACH + e] += peer + i < unit.peers ? held[i][e / EACH].at[e % EACH] : Sum(0);
      }
    }
  }
}

// The same, row by row, with code and registers for one row: for kernels whose sums leave few registers.
template <int THREADS, typename Sum, int ROWS, int COLS>
__device__ __forceinline__ void reduce_by_rows(const Schedule& schedule, const WorkUnit& unit,
                                               const Piece<Sum>* slots, Sum (&sums)[ROWS][COLS]) {
  constexpr int EACH = 16 / sizeof(Sum), PIECES = COLS / EACH, AT_ONCE = 4;
  static_assert(COLS == 8, "a row is eight sums");
  const Piece<Sum>* const start = slots + threadIdx.x;
#pragma unroll 1
  for (int row = unit.fragment; row < ROWS; row += schedule.fragments) {
    Sum found[COLS] = {};
#pragma unroll 1
    for (int peer = 0; peer < unit.peers; peer += AT_ONCE) {
      Piece<Sum> held[AT_ONCE][PIECES];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const long long slot = schedule.peer_slot(unit, peer + i < unit.peers ? peer + i : peer);
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece)
          held[i][piece] = start[((slot * ROWS + row) * PIECES + piece) * THREADS];
      }
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i)
        if (peer + i < unit.peers)
#pragma unroll
          for (int e = 0; e < COLS; ++e) found[e] += held[i][e / EACH].at[e % EACH];
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) take_eight(sums[i], found, i == row);  // registers cannot be indexed
  }
}
