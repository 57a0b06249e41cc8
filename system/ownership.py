"""Files that only this user can have written: cached files are believed, and some are executed.

Such a file is a regular file, not a link, belongs to this user, and has a mode that lets no other user write. The same
holds for its directory. Write access to directories further up is the user's responsibility.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class NotPrivate(PermissionError):
    """A file or directory that another user owns or may write to."""


def check(path: Path, about: os.stat_result) -> None:
    """Raise `NotPrivate` if another user owns a path or may write to it; `about` is its status."""
    if not hasattr(os, "geteuid"):  # a system without such owners and modes
        return
    if about.st_uid != os.geteuid():
        raise NotPrivate(None, "it belongs to another user", str(path))
    if about.st_mode & 0o022:
        raise NotPrivate(None, "others may write to it", str(path))


def read(path: Path) -> bytes:
    """Return the contents of a private file. Raises OSError, `NotPrivate` if others could have written it."""
    try:
        file = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPrivate(None, "it is a link", str(path)) from None
        raise
    with open(file, "rb") as opened:
        _check_file(path, os.fstat(file))
        check(path.parent, path.parent.stat())
        return opened.read()


def check_tree(directory: Path) -> None:
    """Raise `NotPrivate` if others could have written anything in a directory tree, or it contains links."""
    check(directory, directory.lstat())
    if not stat.S_ISDIR(directory.lstat().st_mode):
        raise NotPrivate(None, "it is not a directory", str(directory))
    for path in directory.iterdir():
        about = path.lstat()
        if stat.S_ISDIR(about.st_mode):
            check_tree(path)
        else:
            _check_file(path, about)


def _check_file(path: Path, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise NotPrivate(None, "it is not a regular file", str(path))
    check(path, about)


def close_tree(directory: Path) -> None:
    """Remove all rights of other users to a directory of this user and everything below. Raises OSError."""
    directory.chmod(0o700)
    for path in directory.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def prepare(directory: Path) -> None:
    """Create a directory for this user only if it is missing, and remove the right of others to write to it.

    Raises OSError, `NotPrivate` if it belongs to another user or rights cannot be removed."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = directory.stat()
    if about.st_mode & 0o022 and about.st_uid == getattr(os, "geteuid", lambda: about.st_uid)():
        directory.chmod(0o700)
        about = directory.stat()
    check(directory, about)
