"""The first code of the bundle that runs on a node: makes the bundle importable and starts the agent.

The one-liner on the command line (gconsole.fleet.deploy.agent_payload.STAGE0) has read and verified the preamble; it
executes this source and calls `boot` with the rest, which contains the modules that open the cache folder. All others
come from there, or are requested from the console (see start_agent.py). Modules are imported from memory; compiled code
is kept in the cache folder, because compiling at every start costs time and memory.
"""

import importlib.machinery
import importlib.util
import json
import marshal
import os
import sys
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedReader
    from typing import Any

#: {module: shared library}: modules that are costly to compile and needed only where the library can be loaded.
SELDOM = {"pynvml": "libnvidia-ml.so.1"}


class BundleImporter(object):
    """Imports the bundle's modules from memory; compiled code is cached in `code_dir` where one is set.

    `modules` maps a module's name to [digest of its source, its zlib'd source, is it a package].
    One of SELDOM has a fourth element, the names that are used of it, which are part of its digest.
    """

    def __init__(self, modules: "dict[str, Any] | None" = None) -> None:
        self.modules: dict[str, Any] = modules or {}
        self._dictionaries: dict[str, bytes] = {}  # by module: zlib's preset dictionary of its archive
        self.code_dir: str | None = None
        self._compiling: int | None = None  # pid of the child that compiles SELDOM modules

    def add(self, archive: bytes) -> None:
        """Make the modules of an archive importable (see agent_payload.archive)."""
        length, _, rest = archive.partition(b"\n")
        start = int(length)
        index = json.loads(zlib.decompress(rest[:start]).decode("ascii"))
        dictionary = zlib.decompress(rest[start : start + index["dictionary"]])
        start += index["dictionary"]
        for name, digest, size, is_package, names in index["modules"]:
            self.modules[name] = [digest, rest[start : start + size], is_package, names]
            self._dictionaries[name] = dictionary
            start += size

    def use_code_dir(self, folder: "str | None") -> None:
        """Keep compiled code in `folder` (None: nowhere), and compile what it lacks.

        A child process compiles, so that the 6 MB of memory that this takes are released.
        """
        self.code_dir = folder
        lacking = [name for name in self.modules if name not in SELDOM and self._lacks(name)]
        child = self._compile_in_child(lacking) if lacking else None
        if child is not None:
            os.waitpid(child, 0)

    def compile_aside(self, name: str) -> None:
        """Start compiling a module of SELDOM in a child. Call it before threads start."""
        if name in self.modules and self._lacks(name):
            self._compiling = self._compile_in_child([name])

    def wait_compiled(self) -> None:
        """Wait until the child of `compile_aside` is done."""
        child, self._compiling = self._compiling, None
        if child is not None:
            os.waitpid(child, 0)

    def _lacks(self, name: str) -> bool:
        return bool(self.code_dir) and not os.path.exists(self._path(self.modules[name][0]))

    def _compile_in_child(self, names: "list[str]") -> "int | None":
        """The child's pid; None where no more processes are allowed: then this one compiles, module by module."""
        try:
            child = os.fork()
        except OSError:
            return None
        if child:
            return child
        try:
            os.nice(10)
            for name in names:
                if name in SELDOM and not _can_load(SELDOM[name]):
                    continue
                code = self._pruned(name) if name in SELDOM else None
                self._keep(self.modules[name][0], code or self._compiled(name))
        finally:
            os._exit(0)  # after any failure the parent compiles what is missing

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "importlib.machinery.ModuleSpec | None":
        """importlib: the spec of a module of the bundle, or None."""
        if name not in self.modules:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin="gconsole bundle", is_package=self.modules[name][2])  # type: ignore[arg-type]

    def create_module(self, spec: "importlib.machinery.ModuleSpec") -> None:
        """importlib: the default module object."""
        return

    def exec_module(self, module: "Any") -> None:
        """importlib: execute a module, from its cached code if there is any."""
        name = module.__spec__.name
        digest = self.modules[name][0]
        code = self._cached(digest)
        if code is None:
            code = self._compiled(name)
            self._keep(digest, code)
        exec(code, module.__dict__)

    def get_source(self, name: str) -> str:
        """importlib: the source of a module."""
        return self._source(name).decode("utf-8")

    def _source(self, name: str) -> bytes:
        unpacker = zlib.decompressobj(zdict=self._dictionaries.get(name, b""))
        source: bytes = unpacker.decompress(self.modules[name][1]) + unpacker.flush()
        return source

    def _compiled(self, name: str, tree: "Any" = None) -> "Any":
        file = "gconsole:" + name.replace(".", "/") + ".py"
        source = self._source(name) if tree is None else tree
        return compile(source, file, "exec", dont_inherit=True, optimize=2)  # without docstrings and asserts

    def _pruned(self, name: str) -> "Any":
        """The code of a module reduced to what is used of it; None if that does not run.

        Only for a child: a syntax tree of pynvml takes more memory than the whole agent.
        """
        from gconsole_remote.agent import trim_module

        try:
            code = self._compiled(name, trim_module.prune(self._source(name), self.modules[name][3]))
            module = sys.modules[name] = type(sys)(name)  # its code accesses itself there
            exec(code, module.__dict__)
        except Exception:  # noqa: BLE001 - whatever a module of another version does: the whole one is as good as ever
            return None
        return code

    def _path(self, digest: str) -> str:
        version = "%s-%s" % (sys.implementation.cache_tag, importlib.util.MAGIC_NUMBER.hex())
        return os.path.join(self.code_dir or "", "%s.%s" % (digest[:32], version))

    def _cached(self, digest: str) -> "Any":
        if not self.code_dir:
            return None
        try:
            with open(self._path(digest), "rb") as f:
                checksum, data = f.read(4), f.read()
            return marshal.loads(data) if checksum == _checksum(data) else None
        except (OSError, ValueError, EOFError, TypeError):
            return None  # missing or incomplete: compile again

    def _keep(self, digest: str, code: "Any") -> None:
        if not self.code_dir:
            return
        path = self._path(digest)
        draft = "%s.%s" % (path, os.urandom(6).hex())  # not the pid: containers reuse it
        data = marshal.dumps(code)
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
                f.write(_checksum(data) + data)
            os.rename(draft, path)
        except OSError:
            self.code_dir = None  # a full disk only costs compile time
            _remove(draft)


def _checksum(data: bytes) -> bytes:
    """CRC-32, four bytes: unmarshalling an incomplete module can crash the interpreter."""
    return zlib.crc32(data).to_bytes(4, "big")


def _can_load(library: str) -> bool:
    import ctypes  # only imported in the child

    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # never created, or the folder is gone


def boot(stdin: "BufferedReader", payload: bytes) -> None:
    """Install the importer, read the start frame (one line of JSON on `stdin`), run the agent. Does not return."""
    rest, _, first = payload.partition(b"\n")
    digest, size = rest.decode("ascii").split()
    importer = BundleImporter()
    importer.add(first)
    sys.meta_path.insert(0, importer)
    from gconsole_remote.agent import start_agent

    start = json.loads(stdin.readline().decode("utf-8"))["start"]
    start_agent.launch(stdin, start, importer, digest, int(size))
