"""What each rung's lesson is about: the moment that shows it, its picture, and a question with its answer.

`moment` picks it: a kind, then what is done, then the matrix, as far as they matter ("shared load B"); of
several the dearest. `before` picks that of the rung before, where it differs. `picture` is one of PICTURES,
for `counts` with the row of counts that it shows. `needs` are the rungs to have seen."""

from __future__ import annotations

from typing import NamedTuple

PICTURES = ("request", "counts", "timeline", "tile", "ring", "rounds", "shares", "registers", "cluster")


class Idea(NamedTuple):
    moment: str
    picture: str
    words: str
    question: str
    answer: str
    needs: tuple[int, ...] = ()
    before: str = ""
    row: str = ""


IDEAS = {
    "uncoalesced": Idea(
        "global load A",
        "request",
        "Neighbouring lanes ask for elements of A that lie a whole row apart. Memory moves"
        " sectors of 32 bytes, so each lane costs a sector of its own and uses four bytes of it.",
        "Why is the load of B cheap, though all lanes ask for it at once?",
        "All lanes want the same element of B: one sector serves them all.",
    ),
    "coalesced": Idea(
        "global load",
        "request",
        "Lanes lie along a row of C now. The load that took 32 sectors takes four, since 32"
        " neighbours of 4 bytes fill four sectors.",
        "What would a warp's load of B take if elements had 8 bytes?",
        "Eight sectors: 32 neighbours of 8 bytes are 256 bytes, all of them used.",
        (1,),
    ),
    "hoisted_indices": Idea(
        "global load",
        "counts",
        "The loads stay as they were. Only the arithmetic of addresses between them changes: two"
        " pointers are moved on by a constant.",
        "Fewer instructions run. Why is the rung hardly faster?",
        "The limit is the rate of loads, two for each fma, and there are as many as before.",
        (2,),
        row="warp instructions",
    ),
    "shared_tile": Idea(
        "shared load B",
        "counts",
        "Each element of a tile comes from global memory once for the whole block, then from"
        " shared memory 32 times. But the lanes read a column of Bs, and a column lies in one"
        " bank.",
        "A block of 32 x 32 threads reads how many bytes of global memory for an fma, beside rung 03?",
        "A 32nd: each element of a tile serves 32 results.",
        (2,),
        row="bytes from global memory",
    ),
    "padded_tile": Idea(
        "shared load B",
        "request",
        "The same load of Bs, before and now. Rows of 32 words put a column into one bank, which"
        " gives one word a turn. One unused word a row shifts each row by a bank.",
        "Would two unused words a row do as well?",
        "No: rows would shift by two banks, so 32 lanes would meet in 16 banks, two turns.",
        (4,),
    ),
    "thread_column": Idea(
        "shared load",
        "counts",
        "A thread has four results in one column, so the element of Bs that it reads serves four fmas.",
        "How many elements are read for an fma, and how many before?",
        "One of Bs and four of As for four fmas: 5/4 in place of 2.",
        (5,),
        row="turns of shared memory",
    ),
    "vector_loads": Idea(
        "global load",
        "timeline",
        "The next tile is loaded into registers before this one is multiplied. The wait for"
        " global memory, red in the row above, goes behind the work.",
        "What does the early load cost?",
        "Registers: the tile under way must be kept somewhere until shared memory is free.",
        (6,),
    ),
    "thread_tile": Idea(
        "shared load",
        "counts",
        "A thread's 4 x 4 results need a column of four and a row of four: eight elements for 16 fmas.",
        "And a thread with 8 x 8 results?",
        "16 elements for 64 fmas, a quarter each: half of what 4 x 4 needs.",
        (6,),
        row="turns of shared memory",
    ),
    "large_tile": Idea(
        "shared load B",
        "counts",
        "Twice the side of a thread's tile: 16 elements serve 64 fmas, in place of 8 for 16."
        " Bank conflicts take a part of the gain.",
        "Why is a load of Bs dearer than in rung 08?",
        "Neighbouring lanes read Fours that lie 32 bytes apart: half of the banks idle.",
        (8,),
        row="turns of shared memory",
    ),
    "transposed_a": Idea(
        "shared load B",
        "request",
        "The columns of a thread are two Fours, far apart. So neighbouring lanes read"
        " neighbouring Fours, and no bank is asked twice in a turn.",
        "Why may a load of 16 bytes a lane take more than one turn without a conflict?",
        "32 lanes of 16 bytes are 512 bytes; all banks together give 128 in a turn. Lanes that"
        " share a word save turns.",
        (9, 5),
    ),
    "warp_tile": Idea(
        "shared load A",
        "counts",
        "A warp computes 32 x 64 of C in place of 16 x 128. A squarer part needs fewer rows and"
        " columns for as many results.",
        "Rows and columns together: how many elements does a warp read at a step of k, and before?",
        "96 in place of 144, for 2048 results each.",
        (10,),
        row="turns of shared memory",
    ),
    "double_buffer": Idea(
        "wait barrier",
        "counts",
        "Two buffers by turns: a warp may write the next tile while another still reads this one."
        " One barrier a step is enough.",
        "What does the barrier that is left prevent?",
        "A warp that runs ahead would come round to the buffer that a slow warp still reads.",
        (10,),
        row="barriers",
    ),
    "fragment_prefetch": Idea(
        "shared load A",
        "timeline",
        "Operands of the next step of k are asked for before those of this one are multiplied,"
        " across the barrier too. This picture has no latency of shared memory, some 30 cycles; on"
        " a card that is what is hidden.",
        "Why must the program say so, when the compiler moves loads up by itself?",
        "It never moves a load across a barrier, and there all warps wait with fmas at hand.",
        (12,),
    ),
    "async_pipeline": Idea(
        "wait cp.async",
        "timeline",
        "cp.async copies to shared memory without a register, several tiles ahead. The warp waits"
        " for the oldest copies alone; younger ones stay under way.",
        "How many tiles are under way or ready beside the one in use?",
        "As many as there are stages, less one.",
        (13,),
    ),
    "wide_copies": Idea(
        "shared load A",
        "counts",
        "Each cp.async moves 16 bytes in place of 4: a copy costs an instruction, however narrow it is.",
        "What had forced narrow copies of A in rung 14?",
        "A was transposed on its way, so neighbours of a row went to different rows of As.",
        (14,),
        row="warp instructions",
    ),
    "tma_tiles": Idea(
        "copy",
        "tile",
        "One thread orders a whole box. TMA cannot pad rows, so it swizzles: piece p of row r"
        " goes to place p ^ r % 8.",
        "Four lanes read piece 0 of rows 0 to 3. Why do they not meet in a bank?",
        "The pieces lie at places 0, 1, 2 and 3: four banks each, none twice.",
        (15, 5),
    ),
    "tall_tile": Idea(
        "shared load A",
        "counts",
        "16 x 8 results a thread need 24 elements for 128 fmas. It has all the registers that a"
        " thread can have.",
        "What is lost, with one block of eight warps on an SM?",
        "When its warps meet at the end of a step, no other block has work for the SM.",
        (16, 8),
        row="turns of shared memory",
    ),
    "bank_order": Idea(
        "shared load A",
        "registers",
        "A register file has two banks, of even and of odd registers, and gives one register of"
        " each in a cycle. An fma wants three. One stays from the fma before; the others must be"
        " even and odd. A bank may fall one register behind: a single pair of one bank costs nothing.",
        "An fma reads R4, R6 and R8, and none stays from before. How long does it take to fetch them?",
        "Three cycles: all are even, so all come from one bank.",
        (17,),
    ),
    "producer_warp": Idea(
        "wait mbarrier",
        "ring",
        "A producer fills stages, consumers empty them. Two mbarriers a stage say so: full, when"
        " its bytes are there, and empty, when all consumers have read it. The warps that multiply"
        " never meet.",
        "When does the producer wait?",
        "When the stage that is next is not empty yet: it is as far ahead as there are stages.",
        (16,),
    ),
    "tma_streamk": Idea(
        "shared load A",
        "shares",
        "Six tiles for four blocks take two rounds, and half of the second is idle. Blocks that"
        " share the last tiles along k end together.",
        "Who stores a tile that two blocks have summed?",
        "The block that ends it: it adds the sum that the other left in the workspace.",
        (19,),
    ),
    "wmma_simple": Idea(
        "global load A",
        "counts",
        "One instruction of a warp multiplies 16 x 16 by 16 x 16 on the tensor core. That is 128"
        " fmas of the warp.",
        "Why is it far below the tensor core's limit?",
        "Every fragment comes from global memory by way of the L1, and each is used once.",
        (8,),
        row="warp instructions",
    ),
    "wmma_shared": Idea(
        "shared load A",
        "counts",
        "The block stages a tile in shared memory and all its warps reuse it, as in rung 04.",
        "What are the unused halves at the end of each row for?",
        "They shift the rows through the banks, as in rung 05: eight rows that one read takes lie"
        " in all banks once.",
        (21, 5),
        row="bytes from global memory",
    ),
    "mma_swizzled": Idea(
        "shared load A",
        "request",
        "ldmatrix reads four matrices of 8 x 8 at once: each lane gives the address of one row of"
        " 16 bytes. The swizzle puts eight such rows into different banks.",
        "Four turns for a load: is that a conflict?",
        "No: 32 rows of 16 bytes are 512 bytes, and a turn gives 128.",
        (22,),
    ),
    "mma_multistage": Idea(
        "wait cp.async",
        "timeline",
        "Copies run several steps ahead, so products no longer wait for a tile.",
        "Which limit is left when nothing waits?",
        "That of mma.sync itself: some 60 % of what wgmma can do.",
        (23, 14),
    ),
    "mma_tma": Idea(
        "copy",
        "tile",
        "TMA writes the very swizzle that ldmatrix reads. So the copies' instructions and"
        " addresses are gone from the warps that multiply.",
        "What do the mbarriers count?",
        "Bytes: a stage is full when all of its boxes have landed.",
        (24, 16),
    ),
    "wgmma_tma": Idea(
        "product",
        "tile",
        "wgmma reads both tiles from shared memory, where TMA put them. Four warps multiply 64"
        " rows by all columns; the outlined pieces are what one instruction reads here.",
        "Why can the tensor core read a column of pieces without a conflict?",
        "In eight rows a piece lies at eight different places, so in all 32 banks once.",
        (25,),
    ),
    "wgmma_specialised": Idea(
        "product",
        "ring",
        "The ring of stages: the producer fills one while consumers read another. A consumer"
        " gives a stage back when the products that read it are complete, one step later.",
        "Why one step later?",
        "The products of this step are queued before those of the step before are waited for, so"
        " the tensor core always has work.",
        (26, 19),
    ),
    "wgmma_rounds": Idea(
        "product",
        "rounds",
        "A block stays for several tiles. Its producer already orders the next tile's operands"
        " while the consumers store this one.",
        "Tiles are visited in bands. What for?",
        "Blocks at work then share rows of A and columns of B, which the L2 still has.",
        (27,),
    ),
    "wgmma_patches": Idea(
        "shared store C",
        "request",
        "Before, lanes stored pairs of sums to rows of D, a quarter of each sector. Now a warp"
        " lays 16 rows into a swizzled patch of shared memory, and TMA sends it off.",
        "Why two patches a warp?",
        "It lays one while TMA still reads the other.",
        (28,),
        before="global store C",
    ),
    "wgmma_clusters": Idea(
        "copy",
        "cluster",
        "Two blocks below each other need the same columns of B. Each loads half of them, and TMA"
        " writes that half into the shared memory of both.",
        "When may a stage be filled again?",
        "When the consumers of both blocks have read it, since each block writes into the other's.",
        (29,),
    ),
    "wgmma_streamk": Idea(
        "product",
        "shares",
        "Whole tiles in full rounds, then even stretches of k of what is left over. All blocks end together.",
        "What does a split tile cost?",
        "Its sums go through the workspace in the L2, and the block that ends the tile waits for them.",
        (30, 20),
    ),
}

# The index: parts of the climb, in the order of reading; the short way is enough to follow the next part.
PARTS = (
    ("Memory and its banks", 1, 5),
    ("Registers: reuse", 6, 13),
    ("Copies ahead", 14, 20),
    ("Tensor cores by mma.sync", 21, 25),
    ("Tensor cores by wgmma", 26, 31),
)
SHORT_WAY = (1, 2, 4, 5, 8, 10, 14, 16, 19, 22, 23, 26, 27, 28, 30, 31)
