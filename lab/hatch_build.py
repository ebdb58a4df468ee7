"""How lapidist-lab is built: in the checkout that this folder lies in, or from its own source archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class Dependencies(MetadataHookInterface):
    """The lapidist of the same version, beside what the lab alone needs."""

    def update(self, metadata: dict[str, Any]) -> None:
        metadata["dependencies"] = [f"lapidist=={metadata['version']}", *self.config["dependencies"]]


class Sources(BuildHookInterface):
    """A source archive holds src; in a checkout it lies beside this folder."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard" and not (Path(self.root) / "src").is_dir():
            build_data["force_include"]["../src/lapidist_lab"] = "lapidist_lab"
