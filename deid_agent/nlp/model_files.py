"""The two files of a stored model: ``<name>.json`` is a readable manifest, ``<name>.npz`` holds the arrays.

The manifest contains the SHA-256 of the array file. The array file is opened only if its digest matches, and pickled
objects are never loaded from it. The manifests of the shipped models are pinned by ``model_pins``.
"""

import hashlib
import io
import json
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from deid_agent.model import ConfigurationError
from deid_agent.nlp.model_pins import PINS
from deid_agent.rules import data_folder

FORMAT = 1
REINSTALL = "install the package again"
"""What restores the packaged models."""
SEPARATOR = "\x1f"
"""Separates the words of a stored word list. No token contains it: the tokenizer treats it as white space."""
AnyArray = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
Arrays = Mapping[str, AnyArray]
Model = TypeVar("Model")
ModelBuilder = Callable[[Mapping[str, object], Arrays, str], Model]
"""Builds a model from its manifest, its arrays and their SHA-256 (hex).

Raises ``KeyError`` or ``ValueError`` if they do not describe a model of its kind.
"""


def save_model_files(folder: Path, name: str, manifest: Mapping[str, object], arrays: Arrays) -> None:
    """Write both files of the model ``name``. The same model gives the same bytes.

    Raises ``OSError`` if a file cannot be written.
    """
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    data = stream.getvalue()
    whole = {"format": FORMAT, "name": name, "sha256": hashlib.sha256(data).hexdigest(), **manifest}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.npz").write_bytes(data)
    (folder / f"{name}.json").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", "utf-8")


def load_model_files(folder: Path, name: str, build: ModelBuilder[Model], remedy: str = "") -> Model:
    """The model ``name`` of ``folder``, made by ``build``. ``remedy`` replaces the advice to train a missing model.

    Raises ``ConfigurationError`` if a file is missing or unreadable, has another format, or does not match the digest
    in the manifest. The array file is not opened if the digest differs.
    """
    remedy = remedy or f"train the model with deid-agent train {name} --corpus NOTES --out {folder}, or {REINSTALL}"
    manifest = _read_manifest(folder, name, remedy)
    path = folder / f"{name}.npz"
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise ConfigurationError(f"{path}: {fault.strerror}: {remedy}") from None
    digest = hashlib.sha256(data).hexdigest()
    if manifest.get("format") != FORMAT or digest != manifest.get("sha256"):
        raise ConfigurationError(
            f"{path}: does not match the digest in {name}.json: train the model again, or restore both files"
        )
    try:
        return build(manifest, _read_arrays(data), digest)
    except (KeyError, ValueError, BadZipFile, struct.error, zlib.error) as fault:
        raise ConfigurationError(f"{path}: {type(fault).__name__}: not a valid model: train it again") from None


_LOCAL_HEADER = 30
"""The bytes before the name of an entry (PKWARE APPNOTE.TXT, section 4.3.7)."""
_NPY_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<|][biuf]\d)', 'fortran_order': False, 'shape': \(([\d, ]*)\), \} *\n",
    re.DOTALL,
)
"""The header of an array of numbers in the form that numpy writes (NEP 1)."""


def _read_arrays(data: bytes) -> dict[str, AnyArray]:
    """The arrays of an array file whose digest was checked. They cannot be written to.

    ``numpy.load`` takes twice the time: it reads in small pieces, and evaluates each header as Python source.
    """
    with ZipFile(io.BytesIO(data)) as archive:
        return {info.filename.removesuffix(".npy"): _read_array(data, info) for info in archive.infolist()}


def _read_array(data: bytes, info: ZipInfo) -> AnyArray:
    mark, name, extra = struct.unpack_from("<4s22xHH", data, info.header_offset)
    if mark != b"PK\x03\x04" or info.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
        raise BadZipFile(info.filename)
    begin = info.header_offset + _LOCAL_HEADER + name + extra
    stored = data[begin : begin + info.compress_size]
    content = zlib.decompress(stored, -zlib.MAX_WBITS, info.file_size) if info.compress_type else stored
    header = _NPY_HEADER.match(content)
    if header is None:
        found: AnyArray = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        return found
    shape = [int(size) for size in header[2].split(b",") if size.strip()]
    return np.frombuffer(content, header[1].decode(), offset=header.end()).reshape(shape)


def read_strings(manifest: Mapping[str, object], key: str) -> list[str]:
    """The list of strings under ``key``. Raises ``ValueError`` if the value is anything else."""
    found = manifest.get(key)
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise ValueError(key)
    return found


def pack_words(words: Mapping[str, int]) -> AnyArray:
    """The keys of ``words`` in order, as one array of bytes; ``unpack_words`` is the inverse."""
    return np.frombuffer(SEPARATOR.join(words).encode(), np.uint8)


def unpack_words(array: AnyArray, first: int) -> dict[str, int]:
    """The words of a packed array, numbered in order from ``first``."""
    words = array.tobytes().decode("utf-8").split(SEPARATOR) if len(array) else []
    return dict(zip(words, range(first, first + len(words)), strict=True))


_trained: dict[str, str] = {}
"""The digests of manifests that this process wrote into the packaged folder."""


def trust_manifest(folder: Path, name: str) -> None:
    """Let this process load the model ``name``, which it has just trained, although its pin is that of another one."""
    _trained[name] = hashlib.sha256((folder / f"{name}.json").read_bytes()).hexdigest()


def is_packaged(folder: Path) -> bool:
    """Return true for the folder of the shipped models, under any name. Pins apply to it and to no other folder."""
    try:
        return folder.resolve() == data_folder("models", environ={}).resolve()
    except ConfigurationError:
        return False


def _check_pin(path: Path, data: bytes) -> None:
    """Raises ``ConfigurationError`` if a shipped model was replaced: its two files could be replaced together."""
    if is_packaged(path.parent) and hashlib.sha256(data).hexdigest() not in {
        PINS.get(path.stem),
        _trained.get(path.stem),
    }:
        raise ConfigurationError(
            f"{path}: not the model of this version: {REINSTALL}. Keep models of your own in a folder of their own; "
            "after a training of the packaged models run python .ci/pin_models.py"
        )


def _read_manifest(folder: Path, name: str, remedy: str) -> Mapping[str, object]:
    path = folder / f"{name}.json"
    try:
        data = path.read_bytes()
        _check_pin(path, data)
        found = json.loads(data)
    except (OSError, ValueError) as fault:
        raise ConfigurationError(f"{path}: {type(fault).__name__}: {remedy}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: not a JSON object: train the model again")
    return found
