"""Frame classes, and the built-in models of training frameworks that map calls to them; users can add models."""

from __future__ import annotations

import re
from typing import Final, Literal, cast, get_args

import msgspec

FrameClass = Literal[
    "collective", "p2p", "store_wait", "group_setup", "teardown", "dataloader", "checkpoint_io", "file_io",
    "network_io", "python_lock", "gil_held", "compute", "compile", "gc", "sleep", "import", "subprocess", "debugger",
    "input", "device_wait", "stopped", "uninterruptible", "dead", "missing", "unknown",
]  # fmt: skip


class Model(msgspec.Struct, frozen=True):
    """Maps calls to a class: `file` is searched in the file's path, `function` must match the whole bare name.

    The match nearest to the leaf wins; `weak` models apply only without another match. With `waits` the class holds
    only while no thread of the process runs; else it is `compute`.
    """

    cls: FrameClass
    file: str
    function: str = ".*"
    weak: bool = False
    waits: bool = False


_C10D = r"(^|/)torch/distributed/distributed_c10d\.py$"

MODELS: Final[tuple[Model, ...]] = (
    Model("teardown", _C10D, r"destroy_process_group|_shutdown_backend|_abort_process_group"),
    Model("group_setup", _C10D,
          r"init_process_group|_new_process_group_helper|new_group|_new_group_with_tag|split_group"
          r"|new_subgroups.*|_store_based_barrier"),
    Model("p2p", _C10D, r"i?send|i?recv|batch_isend_irecv|(send|recv)_object_list"),
    Model("collective", _C10D, r"(all_)?reduce|reduce_scatter\w*|all_gather\w*|_all_gather_base|_reduce_scatter_base"
          r"|broadcast(_object_list)?|(all_)?gather(_object)?|scatter(_object_list)?|all_to_all\w*|(monitored_)?barrier"
          r"|all_reduce_coalesced|all_gather_coalesced"),
    Model("collective", r"(^|/)torch/distributed/_functional_collectives\.py$",
          r"wait_tensor|all_\w+|reduce_scatter\w*"),
    Model("collective", r"(^|/)torch/autograd/graph\.py$", r"_engine_run_backward", waits=True),
    Model("collective", r"(^|/)torch/distributed/utils\.py$",
          r"_verify_param_shape_across_processes|_sync_module_states"),
    Model("collective", r"(^|/)torch/distributed/fsdp/",
          r"foreach_(all_gather|reduce)\w*|wait_for_unshard|_wait_for_\w+"
          r"|unshard|_unshard"),
    Model("collective", r"(^|/)megatron/core/distributed/param_and_grad_buffer\.py$",
          r"(start|finish)_(grad|param)_sync"),
    Model("collective", r"(^|/)megatron/core/tensor_parallel/mappings\.py$",
          r"_reduce\w*|_gather_along\w*|_all_to_all"),
    Model("p2p", r"(^|/)megatron/core/pipeline_parallel/p2p_communication\.py$",
          r"_communicate|_p2p_ops|(recv|send)_\w+"),
    Model("p2p", r"(^|/)deepspeed/runtime/pipe/p2p\.py$"),
    Model("collective", r"(^|/)deepspeed/comm/(comm|torch)\.py$",
          r"all_\w+|reduce\w*|broadcast\w*|barrier|gather|scatter"),
    Model("collective", r"(^|/)horovod/torch/mpi_ops\.py$", r"synchronize|poll|wait"),
    Model("collective", r"(^|/)jax/experimental/multihost_utils\.py$"),
    Model("group_setup", r"(^|/)horovod/common/basics\.py$", r"init"),
    Model("group_setup", r"(^|/)jax/_src/distributed\.py$", r"initialize"),
    Model("group_setup", r"(^|/)torch/distributed/rendezvous\.py$"),
    Model("group_setup", r"(^|/)torch/distributed/elastic/rendezvous/"),
    Model("store_wait", r"(^|/)torch/distributed/elastic/utils/store\.py$"),
    Model("device_wait", r"(^|/)torch/cuda/(__init__|streams)\.py$", r"synchronize|wait"),
    Model("device_wait", r"(^|/)jax/_src/array\.py$", r"block_until_ready|_value"),
    Model("dataloader", r"(^|/)torch/utils/data/dataloader\.py$"),
    Model("dataloader", r"(^|/)torch/utils/data/_utils/(worker|fetch|pin_memory)\.py$"),
    Model("checkpoint_io", r"(^|/)torch/serialization\.py$"),
    Model("checkpoint_io", r"(^|/)torch/distributed/checkpoint/"),
    Model("checkpoint_io",
          r"(^|/)(megatron/(training/checkpointing\.py|core/dist_checkpointing/)|safetensors/|orbax/)"),
    Model("compile", r"(^|/)(torch/(_dynamo|_inductor)/|triton/compiler/|torch/utils/(cpp_extension|file_baton)\.py$)"),
    Model("compile", r"(^|/)(torch/fx/experimental/symbolic_shapes|jax/_src/compiler)\.py$"),
    Model("debugger", r"(^|/)(pdb|bdb)\.py$|(^|/)(debugpy|pydevd|ipdb)/"),
    Model("import", r"^<frozen importlib\._bootstrap(_external)?>$"),
    Model("subprocess", r"(^|/)subprocess\.py$", weak=True),
    Model("python_lock", r"(^|/)threading\.py$",
          r"wait|wait_for|acquire|join|_wait_for_tstate_lock|__enter__", weak=True),
    Model("python_lock", r"(^|/)(queue|concurrent/futures/_base)\.py$", r"get|put|join|result|exception", weak=True),
    Model("python_lock", r"(^|/)(threading|concurrent/futures/thread)\.py$", r"_shutdown|_python_exit", weak=True),
    Model("python_lock", r"(^|/)multiprocessing/\w+\.py$", r"get|put|acquire|wait|join|recv\w*|_?poll", weak=True),
    Model("network_io",
          r"(^|/)(socket|ssl|http/client)\.py$|(^|/)(urllib3?|requests|botocore|aiohttp|s3fs)/", weak=True),
    Model("sleep", r"(^|/)asyncio/tasks\.py$", r"sleep|__sleep0", weak=True),
    Model("python_lock", r"(^|/)asyncio/(locks|queues|tasks|taskgroups|timeouts|threads)\.py$", weak=True),
    Model("subprocess", r"(^|/)asyncio/subprocess\.py$", r"wait|communicate", weak=True),
    Model("network_io", r"(^|/)(selectors\.py$|asyncio/|grpc/)", weak=True),
    Model("file_io", r"(^|/)pathlib\.py$", r"open|(read|write)_(bytes|text)|i?glob|iterdir|stat|exists", weak=True),
    Model("file_io", r"(^|/)(shutil|tarfile|zipfile|tempfile|gzip|lzma|bz2)\b|(^|/)fsspec/", weak=True),
)  # fmt: skip


class BadModel(ValueError):
    """Invalid frame model."""


def parse_model(text: str) -> Model:
    """`CLASS FUNCTION [FILE]`, the latter two regular expressions, as [hang] models has them. Raises BadModel."""
    cls, _, rest = text.partition(" ")
    function, _, file = rest.partition(" ")
    if cls not in get_args(FrameClass):
        raise BadModel(f"{cls!r} is not a frame class; use one of {', '.join(get_args(FrameClass))}")
    for pattern in (function, file):
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadModel(f"{pattern!r} is not a valid regular expression: {error}") from error
    return Model(cast(FrameClass, cls), file, function)
