import lapidist.epilogues as epilogues  # noqa: F401 - a name of the package, of which only some are listed
import lapidist.quantised as quantised  # noqa: F401
import lapidist.verify as verify  # noqa: F401
from lapidist.api import gemm, gemm_lists, matmul
from lapidist.calls.executable import Gemm
from lapidist.calls.grouped import grouped
from lapidist.calls.invariance import invariant
from lapidist.calls.lists import ArrayGemm
from lapidist.calls.planned_call import plan
from lapidist.calls.prepared_weights import PreparedWeight
from lapidist.calls.symmetric import gram
from lapidist.config import Config
from lapidist.contractions.einsum import einsum, tensordot
from lapidist.device import CHIPS, Device
from lapidist.dtypes import Accuracy
from lapidist.epilogues.expressions import Column, Row, Scalar, Tile
from lapidist.epilogues.functions import (
    absolute,
    cast,
    ceil,
    clamp,
    dropout,
    erf,
    exp,
    floor,
    gelu,
    gelu_slope,
    log,
    maximum,
    minimum,
    relu,
    rint,
    rsqrt,
    sigmoid,
    silu,
    sqrt,
    tanh,
    trunc,
    where,
)
from lapidist.epilogues.reductions import (
    all_max,
    all_sum,
    amax,
    column_amax,
    column_max,
    column_sum,
    row_amax,
    row_max,
    row_sum,
)
from lapidist.epilogues.results import Output, Pair, Quantised
from lapidist.epilogues.tracing import epilogue
from lapidist.errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    DTypeError,
    LapidistError,
    LaunchError,
    RefusalError,
    ShapeError,
    StrideError,
)
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.planning.sum_orders import SumOrder
from lapidist.problems.pointers import Pointers

__all__ = [
    "CHIPS",
    "KERNELS",
    "Accuracy",
    "ArgumentError",
    "ArrayGemm",
    "Column",
    "CompileError",
    "Config",
    "DTypeError",
    "Device",
    "DeviceError",
    "Gemm",
    "LapidistError",
    "LaunchError",
    "Output",
    "Pair",
    "Pointers",
    "PreparedWeight",
    "Quantised",
    "RefusalError",
    "Row",
    "Scalar",
    "ShapeError",
    "StrideError",
    "SumOrder",
    "Tile",
    "absolute",
    "all_max",
    "all_sum",
    "amax",
    "cast",
    "ceil",
    "clamp",
    "column_amax",
    "column_max",
    "column_sum",
    "dropout",
    "einsum",
    "epilogue",
    "erf",
    "exp",
    "floor",
    "gelu",
    "gelu_slope",
    "gemm",
    "gemm_lists",
    "gram",
    "grouped",
    "invariant",
    "kernel_named",
    "log",
    "matmul",
    "maximum",
    "minimum",
    "plan",
    "relu",
    "rint",
    "row_amax",
    "row_max",
    "row_sum",
    "rsqrt",
    "sigmoid",
    "silu",
    "sqrt",
    "tanh",
    "tensordot",
    "trunc",
    "where",
]

__version__: str
