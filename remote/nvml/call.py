"""Asking one GPU: an answer, or None and the reason, kept once a field."""

#: nvml.h, nvmlReturn_t: the GPU is off the bus; a GPU that was there is not found any more.
LOST = (15, 28)
#: What will be the same the next time: invalid argument, not supported, no permission, no such function, another
#: version of a struct, deprecated. `forget` asks again all the same, now and then: a mode may have been changed.
LASTING = (2, 3, 4, 13, 25, 26)


class Lost(Exception):
    """The driver cannot reach the GPU any more; the text is the driver's."""


class Asker(object):
    """One GPU's handle. `unsupported` is {field: reason} of what it could not say."""

    def __init__(self, nvml, handle):
        self.nvml = nvml
        self.handle = handle
        self.unsupported = {}
        self._given_up = set()
        self._choice = {}  # field: which of several ways was the last one to answer

    def ask(self, fields, name, *arguments):
        """The answer of the function `name` for this GPU, which `fields` (a tuple) are read from; None without one.

        Raises Lost.
        """
        if fields[0] in self._given_up:
            return None
        return self._call(fields, name, arguments)

    def ask_first(self, fields, ways):
        """The first answer of several `ways`, (function name, arguments…) each; the one that answered is remembered."""
        field = fields[0]
        if field in self._given_up:
            return None
        for number in range(self._choice.get(field, 0), len(ways)):
            answer = self._call(fields, ways[number][0], ways[number][1:])
            if answer is not None:
                self._choice[field] = number
                self.supply(fields)
                return answer
            if field not in self._given_up:
                return None  # a failure that may pass: no reason to change the way
            self._given_up.discard(field)
        self._given_up.add(field)
        return None

    def gave_up(self, field):
        return field in self._given_up

    def _call(self, fields, name, arguments):
        function = getattr(self.nvml, name, None)
        if function is None:
            self.refuse(fields, "this binding has no %s" % name)
            return None
        try:
            return function(self.handle, *arguments)
        except self.nvml.NVMLError as error:
            self.fail(fields, getattr(error, "value", None), str(error))
        except (UnicodeDecodeError, ValueError) as error:
            self.fail(fields, None, "an answer that makes no sense: %s" % error)
        return None

    def fail(self, fields, code, text):
        """Note a failure with a return value of NVML. Raises Lost where it means that the GPU is gone."""
        if code in LOST:
            raise Lost(text)
        for field in fields:
            self.unsupported.setdefault(field, text)
        if code in LASTING:
            self._given_up.update(fields)

    def refuse(self, fields, reason):
        """These fields have no source here."""
        for field in fields:
            self.unsupported[field] = reason
        self._given_up.update(fields)

    def supply(self, fields):
        """These fields have got an answer, whatever failed before."""
        for field in fields:
            self.unsupported.pop(field, None)
            self._given_up.discard(field)

    def forget(self):
        """Ask everything anew."""
        self.unsupported = {}
        self._given_up.clear()
        self._choice.clear()
