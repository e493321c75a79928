"""GPUs that the kernel lists, compared with those that the driver has."""

import os

from ..proc.procfs import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection

    from ..samplers.base import Context, Fields, Unavailable

_NVIDIA = "0x10de"
#: PCI classes of display controllers: VGA, 3D.
_CLASSES = ("0x0300", "0x0302")
#: Faults of the driver whose cause may be that the node has no GPU, or a container without one.
_MAY_BE_ABSENT = ("gpu_driver_not_loaded", "gpu_none")
#: The fault that is none: a node without NVIDIA's driver.
_NO_FAULT = "gpu_no_driver"


class ListedGpu(object):
    """One GPU in sysfs: its PCI address, product id, and the kernel driver that is bound to it, or None."""

    __slots__ = ("address", "driver", "product")

    def __init__(self, address: str, product: "str | None", driver: "str | None") -> None:
        self.address, self.product, self.driver = address, product, driver


def listed_gpus(context: "Context") -> "list[ListedGpu] | None":
    """NVIDIA GPUs in sysfs that no other driver (vfio-pci, nouveau) has; None if sysfs is not readable."""
    root = context.sys + "/bus/pci/devices"
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return None
    gpus = []
    for name in names:
        folder = "%s/%s" % (root, name)
        if os.path.lexists(folder + "/physfn"):
            continue  # a virtual function of a GPU that is shared by virtual machines
        if read_text(folder + "/vendor") == _NVIDIA and (read_text(folder + "/class") or "")[:6] in _CLASSES:
            driver = None
            if os.path.lexists(folder + "/driver"):
                driver = os.path.basename(os.path.realpath(folder + "/driver"))
            if driver in (None, "nvidia"):
                gpus.append(ListedGpu(name, read_text(folder + "/device"), driver))
    return gpus


def missing_gpus(context: "Context", present: "Collection[str | None]") -> "tuple[int | None, list[str]]":
    """(number of GPUs in sysfs or None, addresses of those that the driver should have and lacks).

    `present`: addresses of the driver's GPUs. A container lists the GPUs of its whole machine: one that the driver has
    bound counts only if this process may open its device file. One without a driver counts if it is of the same
    product as a GPU of the driver; an older product may need another driver.
    """
    gpus = listed_gpus(context)
    if gpus is None:
        return None, []
    if None in present:
        return len(gpus), []  # not comparable
    products = {gpu.product for gpu in gpus if gpu.address in present}
    missing = []
    for gpu in gpus:
        if gpu.address in present:
            continue
        if _is_accessible(context, gpu.address) if gpu.driver else not products or gpu.product in products:
            missing.append(gpu.address)
    return len(missing) + len(present), missing


def _is_accessible(context: "Context", address: str) -> bool:
    """Whether this process may open the device file of a GPU, whose number the driver reports in /proc."""
    root = context.proc + "/driver/nvidia/gpus"
    if not os.path.isdir(root):
        return True  # an old driver; no sign of a container
    for line in (read_text("%s/%s/information" % (root, address)) or "").splitlines():
        field, _, value = line.partition(":")
        if field == "Device Minor":
            return os.access("%s/nvidia%s" % (context.dev, value.strip()), os.R_OK | os.W_OK)
    return False


def absence(context: "Context", error: "Unavailable") -> "Fields":
    """`inventory` fields of a node whose GPUs cannot be read."""
    installed, missing = missing_gpus(context, ())
    fields: "Fields" = {"of": "gpu", "installed": installed, "missing": missing, "text": error.text, "try_": error.try_}
    is_absent = error.name in _MAY_BE_ABSENT and (not missing or _is_driver_loaded(context, error))
    if is_absent or error.name == _NO_FAULT:
        return {"of": "gpu", "count": 0, "installed": installed}
    if error.name == "gpu_none":
        return {"of": "gpu", "count": 0, "installed": installed, "missing": missing}
    return dict(fields, fault=error.name)


def _is_driver_loaded(context: "Context", error: "Unavailable") -> bool:
    """Whether "not loaded" means that this container has none of its machine's GPUs."""
    return error.name == "gpu_driver_not_loaded" and os.path.exists(context.proc + "/driver/nvidia/version")
