from .config import ConfigError as ConfigError
from .monitor.capture_selection import NothingSelected as NothingSelected
from .runtime.blocking import ConnectedFleet as ConnectedFleet
from .runtime.blocking import connect as connect
from .runtime.live import AsyncFleet as AsyncFleet
from .runtime.live import NoNodeReached as NoNodeReached
from .runtime.live import connect_async as connect_async
from .runtime.recorded import RecordedSession as RecordedSession
from .runtime.recorded import diagnose as diagnose
from .runtime.recorded import open as open
from .runtime.results import JobVerdicts as JobVerdicts
from .runtime.results import StackCapture as StackCapture
from .session.format.layout import SessionError as SessionError
from .session.query.limits import QueryError as QueryError

__version__: str

class GconsoleError(Exception): ...
