"""How many operands an opcode takes, where that is the same for all its types; the emitters of the others
count themselves.
"""

from __future__ import annotations

COUNTS = {
    (0, 0): "ret exit trap brkpt griddepcontrol",
    (1, 1): "bra activemask",
    (2, 2): (
        "neg abs not cnot cvta mov rcp sqrt rsqrt ex2 lg2 sin cos tanh popc clz brev bfind testp isspacep brx"
        " movmatrix"
    ),
    (2, 3): "ld ldu st cvt vote ldmatrix stmatrix elect",
    (2, 4): "red",
    (3, 3): "bmsk szext mapa add sub mul div rem and or xor min max copysign shl shr match redux set mul24",
    (3, 4): "setp",
    (3, 5): "atom",
    (5, 6): "lop3",
    (4, 4): "fns mad fma sad shf bfe selp slct prmt dp2a dp4a mad24 addc subc",
    (4, 5): "shfl",
    (5, 5): "bfi madc",
}
ARITY = {name: count for count, names in COUNTS.items() for name in names.split()}
