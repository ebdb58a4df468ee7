// Which reduction of shared tiles a kernel is compiled for.
//
// A kernel is compiled for one reduction, by default the turnstile: code for others would take registers and
// a third of the compile time.
#pragma once
#ifndef SEPARATE  // 1: separate reduction blocks
#define SEPARATE 0
#endif
#ifndef WALK_OF_REDUCTION
#define WALK_OF_REDUCTION SEPARATE
#endif
#ifndef ATOMIC  // 1: peers between the first and the last add in any order
#define ATOMIC 0
#endif
// 1: asm statements of eight sums each, which compile faster but change the assembler's choice of registers
#ifndef SUMS_BY_EIGHTS
#define SUMS_BY_EIGHTS 0
#endif
#ifndef CLUSTER  // blocks with neighbouring tiles, which a schedule counts as one
#define CLUSTER 1
#endif
// Not 0: the peers of a tile form a cluster. In gemm/wgmma.cu it is their number.
#ifndef PEERS_IN_CLUSTER
#define PEERS_IN_CLUSTER 0
#endif
