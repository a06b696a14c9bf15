"""Files of parameters from the web: torch.hub without its repositories of programs."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from pullback._help import explain_names as _explain_names

__all__ = ["download_url_to_file", "get_dir", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
READ_DATA_CHUNK = 128 * 1024
_folder: str | None = None


def _get_torch_home() -> str:
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """Return the folder of downloads: that of ``set_dir``, or ``hub`` in torch's cache.

    The cache is ``TORCH_HOME``, else ``torch`` in ``XDG_CACHE_HOME``, else ``~/.cache/torch``.

    >>> import pullback
    >>> pullback.hub.set_dir("/tmp/files")
    >>> pullback.hub.get_dir()
    '/tmp/files'
    """
    return os.path.join(_get_torch_home(), "hub") if _folder is None else _folder


def set_dir(d: str | os.PathLike[str]) -> None:
    """Choose the folder of downloads.

    >>> import pullback
    >>> pullback.hub.set_dir("~/files")
    >>> pullback.hub.get_dir() != "~/files"  # the home folder is put in
    True
    """
    global _folder
    _folder = os.path.expanduser(d)


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Write what a URL holds to a file, which is there only when all of it was read.

    ``hash_prefix`` is the beginning of the SHA-256 checksum in hexadecimal digits.

    Raises: RuntimeError for another checksum; urllib's errors.

    >>> import pathlib, tempfile, pullback
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a").write_bytes(b"123")
    >>> target = folder / "b"
    >>> pullback.hub.download_url_to_file((folder / "a").as_uri(), str(target), "a665a45920")
    >>> target.read_bytes()
    b'123'
    """
    dst = os.path.expanduser(dst)
    digest = hashlib.sha256()
    handle, partial = tempfile.mkstemp(".partial", Path(dst).name + ".", Path(dst).parent)
    try:
        with (
            open(handle, "wb") as file,
            urlopen(Request(url, headers={"User-Agent": "torch.hub"})) as answer,
        ):
            while chunk := answer.read(READ_DATA_CHUNK):
                file.write(chunk)
                digest.update(chunk)
        found = digest.hexdigest()
        if hash_prefix is not None and found[: len(hash_prefix)] != hash_prefix:
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, dst)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> dict[str, Any]:
    """Return ``load`` of a file that is downloaded to ``checkpoints`` in ``get_dir()`` once.

    A zip archive that is not torch's holds one file, which is loaded. ``check_hash`` takes the
    checksum's beginning from a name such as ``name-5c106cde.pth``. The file is read by the
    restricted unpickler unless ``weights_only`` is False, which is torch's default.

    >>> import pathlib, tempfile, pullback
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> pullback.save({"bias": pullback.ones(2)}, folder / "a.pth")
    >>> url = (folder / "a.pth").as_uri()
    >>> pullback.hub.load_state_dict_from_url(url, str(folder / "cache"))
    {'bias': tensor([1., 1.])}
    """
    import pullback

    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(folder, exist_ok=True)
    file_name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, file_name)
    if not os.path.exists(path):
        sys.stdout.flush()
        print(f'Downloading: "{url}" to {path}', file=sys.stderr)
        found = HASH_REGEX.search(file_name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    if zipfile.is_zipfile(path) and not _is_saved(path):
        path = _unpacked(path, folder)
    return pullback.load(path, map_location=map_location, weights_only=weights_only)


def _is_saved(path: str) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/data.pkl") for name in archive.namelist())


def _unpacked(path: str, folder: str) -> str:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) != 1:
            raise RuntimeError("Only one file(not dir) is allowed in the zipfile")
        archive.extractall(folder)
        return os.path.join(folder, members[0].filename)


_explain_names(globals())
