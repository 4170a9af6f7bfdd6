"""metaxlm: turn a strong monolingual encoder into a cross-lingual one, and prove what it gained."""

from importlib.metadata import PackageNotFoundError, version

from metaxlm.errors import MetaXLMError

try:
    __version__ = version("metaxlm")
except PackageNotFoundError:  # a checkout on the path, not installed
    __version__ = "0+checkout"

__all__ = ["MetaXLMError", "__version__"]
