"""`/folders`: folders of code that clients send for jobs, instead of `gconsole run start --sync DIR`."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from starlette.requests import Request

from ...config.model import Change
from ...records import Log
from ...text.format import plural
from ..operation import NoParameters, OperationRequest, WebContext, operation, upload
from ..problems import http_problem
from ..uploads import Upload

#: Names of folders: they become the name of the working directory on the nodes.
FOLDER_ID: Final = r"^[0-9a-f]{16}$"
FOLDER_NAME: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"


class SendFolderRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the folder is called."""

    name: str = "code"


class FolderResource(msgspec.Struct):
    """A folder that jobs can be started with: `{"sync": id}`."""

    id: str
    name: str
    files: int
    bytes: int  # of the files
    sha256: str  # of the archive
    expires_in_s: float  # unless it is used


class FolderList(msgspec.Struct):
    """Folders, oldest first."""

    folders: list[FolderResource]


class FolderRemoved(msgspec.Struct):
    """A folder that is not on the server any more."""

    id: str


@upload("/folders", "application/gzip", "application/x-tar", parameters=SendFolderRequest, problems=(408, 413))
async def send_folder(context: WebContext, request: Request, parameters: SendFolderRequest) -> FolderResource:
    """Send a folder as a tar archive, plain or compressed by gzip. Needs --allow-run."""
    context.permit(Change.START_JOB)
    if re.search(FOLDER_NAME, parameters.name) is None:
        raise http_problem(400, "malformed", "the name must have letters, digits, dots, _ and -, at most 64")
    sent = _seen(context, await context.uploads.receive(parameters.name, request.stream()))
    text = f"folder {sent.id} was sent over HTTP: {sent.name}, {plural(sent.files, 'file')}, SHA-256 {sent.sha256}"
    context.hub.publish_own(Log(source="console", text=text))
    return sent


@operation("GET", "/folders", scope="run")
async def get_folders(context: WebContext, request: OperationRequest[NoParameters]) -> FolderList:
    """Folders that were sent and have not expired."""
    return FolderList([_seen(context, upload) for upload in context.uploads.all()])


@operation("DELETE", "/folders/{id}", name_pattern=FOLDER_ID, problems=(409,))
async def remove_folder(context: WebContext, request: OperationRequest[NoParameters]) -> FolderRemoved:
    """Remove a folder from the server; copies on nodes stay."""
    context.uploads.remove(request.name)
    return FolderRemoved(request.name)


def _seen(context: WebContext, upload: Upload) -> FolderResource:
    folder = upload.folder
    return FolderResource(
        upload.id, folder.local.rpartition("/")[2], len(folder.files), folder.bytes, upload.sha256,
        round(context.uploads.left_s(upload), 1),
    )  # fmt: skip
