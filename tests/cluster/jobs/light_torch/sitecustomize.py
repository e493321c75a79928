"""Makes `import torch` faster in the jobs: only what process groups need is loaded.

The rest (meta kernels, torch.fx, torch.export, quantization, numpy, …) is three fifths of the import's CPU time (1.7 of
2.9 s with torch 2.13), and each rank and each launcher of a test imports torch. Modules in `LAZY` are executed when
an attribute is first used; those in `STUBS` contain only the names that `import torch` imports from them. torchrun
never needs them. Ranks are unmodified if LIGHT_TORCH is `launchers` (a DataLoader's workers need more, for
example). accelerate needs everything except the meta kernels.
"""

import importlib.machinery
import os
import sys
import types
import warnings
from collections.abc import Sequence
from typing import Any

#: Modules and packages that `import torch` imports without using them.
LAZY = tuple(
    f"torch.{name}"
    for name in (
        "_decomp", "_export", "_functorch.apis", "_guards", "_inductor", "_native", "_prims_common", "_refs",
        "_size_docs", "_storage_docs", "_subclasses", "_tensor_docs", "ao", "compiler", "cpu", "distributions",
        "export", "fx", "hub", "masked", "mps", "mtia", "nested", "nn.intrinsic", "nn.qat", "nn.quantizable",
        "nn.quantized", "optim", "profiler", "quantization", "quasirandom", "sparse", "utils._debug_mode",
        "utils._sympy", "utils.data", "xpu",
    )
)  # fmt: skip
META_KERNELS = "torch._meta_registrations"
#: Modules that are never loaded, and the classes and functions that `import torch` and collectives import from them.
STUBS = {
    META_KERNELS: (),
    "torch._higher_order_ops": ("cond", "while_loop"),
    "torch._subclasses.functional_tensor": ("FunctionalTensor", "FunctionalTensorMode"),
    "torch._subclasses.schema_check_mode": ("SchemaCheckMode",),
    "torch.func": ("vmap",),
    "torch.fx.experimental.proxy_tensor": ("ProxyTorchDispatchMode",),
    "torch.fx.experimental.sym_node": ("DynamicInt",),
}


class LazyModule(types.ModuleType):
    """A module whose code runs when a missing attribute is first accessed."""

    def __getattr__(self, name: str) -> Any:
        loader = None if name in ("__path__", "__file__") else self.__dict__.pop("_loader_of_code", None)
        if loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = types.ModuleType
        loader.exec_module(self)
        return getattr(self, name)


class LazyLoader:
    """Creates a `LazyModule`; delegates everything else to the original loader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return LazyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["_loader_of_code"] = self._loader


class LazyFinder:
    """Finds the modules in `LAZY` and their submodules."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not any(name == lazy or name.startswith(f"{lazy}.") for lazy in LAZY):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = LazyLoader(spec.loader)  # type: ignore[assignment]
        return spec


def lighten() -> None:
    """Install the finder and the stubs; call before torch is imported."""
    sys.meta_path.insert(0, LazyFinder)  # type: ignore[arg-type]
    sys.modules["numpy"] = None  # type: ignore[assignment]
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")
    for name, members in STUBS.items():
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = []
        module.__dict__.update({member: type(member, (), {}) for member in members})
    # Called for tracebacks in a log and by init_process_group.
    compiler = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
    compiler.config = types.SimpleNamespace(verbose=True)
    compiler.trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)


if "accelerate.commands.launch" in sys.orig_argv:
    sys.modules[META_KERNELS] = types.ModuleType(META_KERNELS)
elif "torch.distributed.run" in sys.orig_argv or os.environ.get("LIGHT_TORCH") == "ranks":
    lighten()
