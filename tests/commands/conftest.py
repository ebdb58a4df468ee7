"""A computer without a GPU."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import typer
from rich.console import Console

import lapidist
from lapidist.backends.gpu import driver
from lapidist.bench.protocol.cases import CORPUS, LISTS, Part
from lapidist.bench.protocol.record import Record
from lapidist.bench.publish.tables import show_errors
from lapidist.bench.studies import climb
from lapidist.commands import bench, cli, options, works
from lapidist.device import CHIPS
from lapidist.dtypes import MATHS, math_named
from lapidist.errors import DeviceError
from lapidist.kernels.registry import RUNGS
from lapidist.static import hashes
from lapidist.verify import Verdict


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise DeviceError("device: no usable NVIDIA driver")

    monkeypatch.setattr(driver, "gpu_count", lambda: 0)
    monkeypatch.setattr(driver, "load_driver", absent)
