"""What a model says about itself and its parts: names of tools, versions, doc strings, metadata.

Nothing here changes results. It is carried from the model to the written file, for people and other tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Note:
    """Doc string and metadata of one part of a model; false if both are empty."""

    doc: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return bool(self.doc or self.metadata)


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a model: of the file (`model`), its main graph, inputs and outputs, and nodes by name.

    `producer` and `producer_version` name the tool that made the model; `domain` and `model_version` are the model's
    own. `shapes` are those that the model states of its outputs, sizes or names of sizes ("" for any size): they are
    repeated where a run may have another rank, since ONNX requires a statement."""

    producer: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    model: Note = Note()
    graph: Note = Note()
    values: Mapping[str, Note] = field(default_factory=dict)
    nodes: Mapping[str, Note] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
