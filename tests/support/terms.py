"""Terms of the glossary that a reader may not know, and where a page uses each for the first time."""

from __future__ import annotations

import re

# anchor in the glossary: how pages write the term
TERMS = {
    "accumulator": r"accumulators?",
    "arithmetic-intensity": r"arithmetic intensity",
    "bank-conflict": r"bank conflicts?",
    "cluster": r"clusters?",
    "coalesced": r"coalesced",
    "cuda-core": r"CUDA cores?",
    "data-parallel": r"data-parallel",
    "dram": r"DRAM",
    "epilogue": r"epilogues?",
    "gpc": r"GPCs?",
    "k-major": r"K-major",
    "mbarrier": r"mbarriers?",
    "multicast": r"multicast",
    "mutant": r"mutants?",
    "n-major": r"[NM]-major",
    "nvrtc": r"NVRTC",
    "occupancy": r"occupancy",
    "packed": r"packed",
    "partial-sum": r"partial sums?",
    "patch": r"patch(?:es)?",
    "peer": r"peers?",
    "persistent": r"persistent",
    "ping-pong": r"ping-pong",
    "promoted": r"promoted?",
    "proxy-fence": r"proxy fences?",
    "ptx": r"PTX",
    "rung": r"rungs?",
    "sector": r"sectors?",
    "shared-memory": r"shared memory",
    "sm": r"SMs?",
    "split-k": r"split-K",
    "stage": r"stages?",
    "stream-k": r"Stream-K",
    "swizzle": r"swizzles?",
    "tensor-core": r"tensor cores?",
    "tensor-map": r"tensor maps?",
    "tf32": r"tf32",
    "tile": r"tiles?",
    "tma": r"TMA",
    "turnstile": r"turnstiles?",
    "warp": r"warps?",
    "warpgroup": r"warpgroups?",
    "wave": r"waves?",
    "workspace": r"workspaces?",
}
# what is no prose: generated blocks, code, what is folded, comments, headings, tables
NO_PROSE = re.compile(
    r"<!-- (\S+):begin -->.*?<!-- \1:end -->|<!-- (rung|kernel):\w+ -->.*?<!-- \2:end -->"
    r"|^```.*?^```|^<details.*?^</details>|<!--.*?-->"
    r"|`[^`\n]+`|^(?:#|\||    ).*?$|<[^>\n]+>",
    re.S | re.M,
)
LINK = re.compile(r"\[[^]\n]*\]\([^)\s]*\)")


def blanked(text: str, pattern: re.Pattern[str]) -> str:
    """The same text with spaces in the place of what matches."""
    return pattern.sub(lambda found: re.sub(r"\S", " ", found[0]), text)


def first_use(text: str, term: str) -> re.Match[str] | None:
    """In prose, linked or not."""
    whole = rf"(?<![\w-]){TERMS[term]}(?![\w-])"
    return re.search(whole, blanked(text, NO_PROSE), re.I if TERMS[term].islower() else 0)


def unlinked(text: str) -> list[str]:
    """Terms whose first use is no link."""
    links = [found.span() for found in LINK.finditer(text)]
    uses = {term: first_use(text, term) for term in TERMS}
    return [
        term
        for term, use in uses.items()
        if use and not any(start <= use.start() < end for start, end in links)
    ]
