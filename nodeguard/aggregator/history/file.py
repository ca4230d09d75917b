"""The history file: its SQLite schema and version, and how it is opened."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Meta

# The SQLite application id of a history: "nghi".
APPLICATION_ID = 0x6E676869

VERSION = 1

NAME = "history.sqlite"

# Suffixes of a path that is a file, also if it does not exist yet.
_SUFFIXES = frozenset({".sqlite", ".sqlite3", ".db"})

# Bytes of the journal, and of the page cache.
_JOURNAL = 4 << 20
_CACHE = 2 << 20

# Seconds to wait for a lock of another program.
_BUSY = 5.0

# Inventories, labels and passing checks are equal on many nodes and at many times: equal texts are stored
# once, by hash. The findings of a report have ages at `at`; its texts have the encoding of wire.report.
_TABLES = """
CREATE TABLE shared (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, text TEXT NOT NULL);
CREATE TABLE report (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, uid TEXT NOT NULL, node TEXT NOT NULL, boot TEXT NOT NULL,
    sequence INTEGER NOT NULL, age REAL NOT NULL, digest TEXT NOT NULL, health TEXT NOT NULL,
    data_status TEXT NOT NULL, agent TEXT NOT NULL, catalogue TEXT NOT NULL, leaving INTEGER NOT NULL,
    findings TEXT NOT NULL, unreadable TEXT NOT NULL, passing INTEGER NOT NULL, inventory INTEGER NOT NULL
);
CREATE INDEX report_of ON report (uid, id);
CREATE TABLE node (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, uid TEXT NOT NULL, node TEXT NOT NULL, deleted INTEGER NOT NULL,
    gpus INTEGER NOT NULL, unschedulable INTEGER NOT NULL, labels INTEGER NOT NULL, upgrade TEXT NOT NULL,
    annotations TEXT NOT NULL
);
CREATE INDEX node_of ON node (uid, id);
CREATE VIEW deleted_node AS
    SELECT uid, at FROM node WHERE deleted AND id IN (SELECT max(id) FROM node GROUP BY uid);
CREATE TABLE note (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, node TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX note_of ON note (kind, name, id);
CREATE TABLE clock (alive REAL NOT NULL);
INSERT INTO clock VALUES (0);
"""

# Seconds since the epoch, also of a clock that is far ahead. A larger number has no seconds: a replay of it
# would never end.
RecordedTime = Annotated[float, Meta(ge=0.0, le=1e15)]

# The errors of a row that does not have the types of its columns: SQLite does not enforce these.
DAMAGED_ROW = (msgspec.DecodeError, LookupError, TypeError, ValueError)


# The error of SQLite quotes a damaged definition, and Python may be unable to decode it.
_SCHEMA = "malformed database schema"


class HistoryFileError(Exception):
    """A file cannot be used as a history. The message has the reason and the remedy, not its path."""


class ForeignFileError(HistoryFileError):
    """The file is of another program or of a newer version, and must not be changed."""


class DamagedFileError(HistoryFileError):
    """The file is damaged."""


def is_damaged(error: Exception) -> bool:
    """Return whether an error means that a file is damaged, not only inaccessible."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, DamagedFileError) or (
        code is not None and code & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
    )


def history_path(path: str) -> str:
    """Return the path of a history's file. A path that is a file, or is named as a database, is that file;
    any other is a directory with `history.sqlite` in it, which may be missing.
    """
    if not os.path.isdir(path) and (os.path.exists(path) or Path(path).suffix in _SUFFIXES):
        return path
    return str(Path(path) / NAME)


def open_for_writing(path: str) -> sqlite3.Connection:
    """Open a history for writing. Creates the file, and its directory if only its last part is missing.

    Raises HistoryFileError, OSError, sqlite3.Error.
    """
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        os.mkdir(directory, 0o700)
    # Create it before SQLite does, readable by the owner only.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    _checked_size(path, os.R_OK | os.W_OK)
    connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
    try:
        _prepare(connection)
    except UnicodeDecodeError:
        connection.close()
        raise DamagedFileError(_SCHEMA) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    run = connection.execute
    run(f"PRAGMA cache_size = {-_CACHE // 1024}")
    run("PRAGMA temp_store = MEMORY")
    if not has_history(connection):
        run("PRAGMA auto_vacuum = INCREMENTAL")
        run("PRAGMA journal_mode = WAL")
        # The application id is set last: an interrupted creation leaves an empty file.
        connection.executescript(
            f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {VERSION};"
            f"PRAGMA application_id = {APPLICATION_ID};COMMIT;"
        )
    run("PRAGMA journal_mode = WAL")
    run("PRAGMA synchronous = NORMAL")
    run(f"PRAGMA journal_size_limit = {_JOURNAL}")
    [result] = run("PRAGMA quick_check(1)").fetchone()
    if result != "ok":
        raise DamagedFileError(str(result))


def last_written(connection: sqlite3.Connection) -> float:
    """Return when the history was last written, in seconds since the epoch; 0 for never. Raises
    sqlite3.Error, and DamagedFileError if it has no such time.
    """
    try:
        row = connection.execute("SELECT alive FROM clock").fetchone()
        return msgspec.convert(row, tuple[RecordedTime])[0]
    except msgspec.ValidationError as error:
        raise DamagedFileError(f"table clock: {error}") from None


def open_for_reading(path: str) -> sqlite3.Connection:
    """Open a history for reading, also while it is written. Raises HistoryFileError, OSError."""
    if not _checked_size(path, os.R_OK):
        raise HistoryFileError(_EMPTY)
    name = f"file:{quote(os.path.abspath(path))}?mode=ro"
    try:
        return _read_only(name)
    except sqlite3.OperationalError:
        # If neither the file nor its directory is writable, no process writes: the journal is not needed.
        name += "&immutable=1"
    except (sqlite3.DatabaseError, DamagedFileError) as error:
        raise _no_history(error) from None
    try:
        return _read_only(name)
    except (sqlite3.DatabaseError, DamagedFileError) as error:
        raise _no_history(error) from None


def _checked_size(path: str, access: int) -> int:
    """Return the bytes of a regular file with these rights. SQLite's error does not name the reason.

    Raises OSError. Does not open it: its close would end the locks of SQLite in this process, and another
    program would remove the journal.
    """
    state = os.stat(path)
    if S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    if not os.access(path, access, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return state.st_size


_EMPTY = "it is empty: nothing was recorded yet, or it is another file"


def _no_history(error: Exception) -> HistoryFileError:
    return HistoryFileError(
        f"it is not a history of nodeguard, or damaged ({error}): name the file of aggregator --history"
    )


def _read_only(uri: str) -> sqlite3.Connection:
    """Return a connection with a snapshot of the file."""
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY, isolation_level=None)
    try:
        if not has_history(connection):
            raise HistoryFileError(_EMPTY)  # noqa: TRY301 - the connection is closed as after other errors
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM clock").fetchone()
    except UnicodeDecodeError:
        connection.close()
        raise DamagedFileError(_SCHEMA) from None
    except BaseException:
        connection.close()
        raise
    return connection


def has_history(connection: sqlite3.Connection) -> bool:
    """Return whether a database has a history; an empty database has none. Raises ForeignFileError if it
    is of another program or of a newer version.
    """
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == APPLICATION_ID and version > VERSION:
        raise ForeignFileError(
            f"it was written by a newer version ({version}, this program supports {VERSION}): upgrade, or "
            "name another file"
        )
    if tables and application != APPLICATION_ID:
        raise ForeignFileError("it is a database of another program: name another file")
    return bool(tables)
