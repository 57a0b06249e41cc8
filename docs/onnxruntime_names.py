"""Write the table of names in `onnxruntime.md` from the installed ONNX Runtime; `--check` only compares.

A name of ONNX Runtime that is neither here nor among the reasons below is listed as unknown, and the script fails."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
from rewrite import ort
from rewrite.ort import options

PAGE = Path(__file__).parent / "onnxruntime.md"
BEGIN, END = "<!-- begin: names, made by onnxruntime_names.py -->", "<!-- end: names -->"
CLASSES = (
    "InferenceSession",
    "SessionOptions",
    "RunOptions",
    "OrtValue",
    "IOBinding",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
)

WITHOUT_EFFECT = {
    *(f"SessionOptions.{name}" for name in options.IGNORED),
    *(f"RunOptions.{name}" for name in vars(ort.RunOptions()) if not name.startswith("_")),
    *(f"IOBinding.synchronize_{what}" for what in ("inputs", "outputs")),
    "InferenceSession.disable_fallback",
    "InferenceSession.enable_fallback",
    "InferenceSession.set_providers",
    "RunOptions.add_run_config_entry",
    "RunOptions.get_run_config_entry",
    "SessionOptions.add_free_dimension_override_by_denotation",
    "SessionOptions.add_provider",
    "SessionOptions.use_deterministic_compute",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
}
"""Names that are accepted and have no effect."""

DEVICES = "the CPU is the only device, with one memory"
PLUGINS = "execution providers are not loaded"
PACKAGES = "models are files or bundles; ONNX Runtime's packages of models are not read"
CONTEXTS = "compiled models are bundles, and the cache"
ABSENT = {
    "AdapterFormat": "no adapters of weights",
    "InferenceSession._": "private",
    "InferenceSession.create_ortvalue_from_shape_and_type": DEVICES,
    "InferenceSession.get_input_epdevices": DEVICES,
    "InferenceSession.get_input_memory_infos": DEVICES,
    "InferenceSession.get_output_memory_infos": DEVICES,
    "InferenceSession.get_provider_graph_assignment_info": PLUGINS,
    "InferenceSession.get_tuning_results": PLUGINS,
    "InferenceSession.release_captured_graph": DEVICES,
    "InferenceSession.run_with_ortvaluevector": "for training, which is out of scope",
    "InferenceSession.set_ep_dynamic_options": PLUGINS,
    "InferenceSession.set_tuning_results": PLUGINS,
    "LoraAdapter": "no adapters of weights",
    "ModelCompiler": CONTEXTS,
    "ModelPackage": PACKAGES,
    "OrtAllocatorType": DEVICES,
    "OrtArenaCfg": DEVICES,
    "OrtCompileApiFlags": CONTEXTS,
    "OrtDevice.device_mem_type": DEVICES,
    "OrtDevice.device_vendor_id": DEVICES,
    "OrtDeviceMemoryType": DEVICES,
    "OrtDeviceVendorId": DEVICES,
    "OrtEp": PLUGINS,
    "OrtExecutionProviderDevicePolicy": PLUGINS,
    "OrtExternalInitializerInfo": CONTEXTS,
    "OrtHardwareDevice": DEVICES,
    "OrtMemType": DEVICES,
    "OrtMemoryInfo": DEVICES,
    "OrtSparseFormat": "no sparse tensors",
    "OrtSyncStream": DEVICES,
    "OrtValue.as_sparse_tensor": "no sparse tensors",
    "OrtValue.ort_value_from_sparse_tensor": "no sparse tensors",
    "RunOptions.add_active_adapter": "no adapters of weights",
    "SessionOptions.add_external_initializers_from_files_in_memory": "models as bytes have no files beside them",
    "SessionOptions.add_provider_for_devices": PLUGINS,
    "SessionOptions.clear_ep_context_data_read_func": CONTEXTS,
    "SessionOptions.set_ep_context_data_read_func": CONTEXTS,
    "SessionOptions.set_load_cancellation_flag": "Ctrl-C ends a compilation",
    "SessionOptions.set_provider_selection_policy": PLUGINS,
    "SparseTensor": "no sparse tensors",
    "copy_tensors": DEVICES,
    "create_and_register_allocator": DEVICES,
    "cuda_version": DEVICES,
    "get_ep_devices": PLUGINS,
    "has_collective_ops": DEVICES,
    "preload_dlls": DEVICES,
    "register_execution_provider_library": PLUGINS,
    "set_default_logger_callback": "messages go to the logger `rewrite.ort`",
    "unregister_execution_provider_library": PLUGINS,
}
"""Names, or beginnings of names, that are not here, and why."""
REFUSED = {"SessionOptions.register_custom_ops_library": "raises NotImplemented: operators are defined in rule files"}
_MODULES = {
    "capi",
    "contextlib",
    "import_capi_exception",
    "onnxruntime_validation",
    "package_name",
    "print_debug_info",
    "version",
}


def names() -> Iterator[tuple[str, bool]]:
    """Iterate over the public names of ONNX Runtime, members of its classes included, and whether they are here."""
    for name in sorted(vars(onnxruntime)):
        if not name.startswith("_") and name not in _MODULES:
            yield name, hasattr(ort, name)
    for kind in CLASSES:
        theirs, ours = getattr(onnxruntime, kind), getattr(ort, kind)
        here = {*dir(ours), *_attributes(ours)}
        for name in sorted(dir(theirs)):
            if not name.startswith("_"):
                yield f"{kind}.{name}", name in here


def _attributes(kind: Any) -> set[str]:
    """The attributes that instances have."""
    found = set(getattr(kind, "__dataclass_fields__", ()))
    if all(p.default is not inspect.Parameter.empty for p in list(inspect.signature(kind).parameters.values())):
        found |= set(vars(kind())) if hasattr(kind(), "__dict__") else set()
    return found


def table() -> str:
    """The table as Markdown. Raises SystemExit for names without a line."""
    same, ignored, absent, unknown = [], [], dict[str, list[str]](), []
    for name, here in names():
        reason = next((why for start, why in ABSENT.items() if name.startswith(start)), None)
        if name in REFUSED:
            absent.setdefault(REFUSED[name], []).append(name)
        elif here:
            (ignored if name in WITHOUT_EFFECT else same).append(name)
        elif reason is not None:
            absent.setdefault(reason, []).append(name)
        else:
            unknown.append(name)
    if unknown:
        sys.exit(f"neither here nor explained: {', '.join(unknown)}")

    def listed(found: list[str]) -> str:
        return ", ".join(f"`{name}`" for name in found)

    rows = [("same", listed(same)), ("accepted, without effect", listed(ignored))]
    rows += [(f"absent: {why}", listed(found)) for why, found in sorted(absent.items())]
    lines = [f"| {what} | {found} |" for what, found in rows]
    head = (
        f"Public names of ONNX Runtime {onnxruntime.__version__}: {len(same)} are the same, {len(ignored)} are accepted"
    )
    count = sum(map(len, absent.values()))
    return "\n".join([f"{head} without effect, {count} are absent.", "", "| here | names |", "|---|---|", *lines])


def page() -> str:
    """The page with a fresh table."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    fresh = page()
    if "--check" in sys.argv[1:]:
        sys.exit("docs/onnxruntime.md is out of date" if fresh != PAGE.read_text(encoding="utf-8") else 0)
    PAGE.write_text(fresh, encoding="utf-8")
