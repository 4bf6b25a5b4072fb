"""The interactive page: browse, look, intervene, paint, compare. The logic needs no browser: :class:`Session`."""

from foveate.app.guard import read_upload
from foveate.app.state import Change, Session, Shown

__all__ = ["Change", "Session", "Shown", "read_upload"]
