"""Anonymiser: replaces the identities of the machine and its components in a recording.

The same identity gets the same replacement in the whole recording. A replacement has the shape of the
original, so that a recording parses the same; only IPv4 addresses may change their length.
"""

from __future__ import annotations

import os
import re
from functools import partial
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from nodeguard.bundle.kernel_words import anonymous_words, mark, mark_names, sub_unmarked, without_marks
from nodeguard.bundle.manifest import Manifest
from nodeguard.bundle.privacy import anonymous_mounts, anonymous_path, anonymous_swaps, is_mount_table

# Characters of a replacement: for a word, letters for letters and digits for digits; for a hexadecimal
# number, any hexadecimal digit; for a decimal number, digits without a leading zero.
Kind = Literal["word", "hex", "number"]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
_HEX = "0123456789abcdef"

# Networks that documentation uses (RFC 5737), and after those the one for benchmarks (RFC 2544).
_IPV4 = ("192.0.2.{}", "198.51.100.{}", "203.0.113.{}", *(f"198.18.{third}.{{}}" for third in range(256)))
_HOSTS = 254


class Replacements:
    """The replacements of one recording.

    key: from which they are derived; random by default, and stored nowhere.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or os.urandom(32)
        self._made: dict[tuple[Kind, str], str] = {}
        self._used: set[tuple[Kind, str]] = set()
        self._ipv4: dict[str, str] = {}

    def like(self, kind: Kind, original: str) -> str:
        """Return the replacement of a name, with the same length, kinds of characters and capitals."""
        plain = original.lower() if original.isascii() else original
        if (kind, plain) not in self._made:
            pseudonym = self._fresh(kind, plain)
            self._made[kind, plain] = pseudonym
            self._used.add((kind, pseudonym))
        pseudonym = self._made[kind, plain]
        if kind != "word":
            # A digit may have become a letter, so that the case applies to the whole.
            return pseudonym.upper() if original.isupper() else pseudonym
        return "".join(
            new.upper() if old.isupper() else new for old, new in zip(original, pseudonym, strict=True)
        )

    def ipv4(self, original: str) -> str:
        """Return the replacement of an IPv4 address: the next unused address."""
        if original not in self._ipv4:
            network, host = divmod(len(self._ipv4), _HOSTS)
            self._ipv4[original] = _IPV4[network % len(_IPV4)].format(host + 1)
        return self._ipv4[original]

    def _fresh(self, kind: Kind, plain: str) -> str:
        pseudonym = plain
        # A name of one digit has only nine replacements, which may all be in use.
        for attempt in range(100):
            noise = self._noise(f"{kind} {attempt} {plain}", len(plain))
            pseudonym = "".join(_character(kind, old, byte) for old, byte in zip(plain, noise, strict=True))
            if kind == "number" and pseudonym.startswith("0"):
                continue
            if pseudonym != plain and (kind, pseudonym) not in self._used:
                break
        return pseudonym

    def _noise(self, text: str, length: int) -> bytes:
        blocks = range(0, length, 64)
        noise = (blake2b(f"{block} {text}".encode(), key=self._key).digest() for block in blocks)
        return b"".join(noise)[:length]


def _character(kind: Kind, old: str, byte: int) -> str:
    if kind == "hex":
        return _HEX[byte % 16] if old in _HEX else old
    if old.isdigit():
        return _DIGITS[byte % 10]
    return _LETTERS[byte % 26] if old.isalpha() else old


_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_GROUPS = r"[0-9A-F]{1,4}(?::[0-9A-F]{1,4})"
_IDENTITIES = rf"""
    (?P<uuid> [0-9A-F]{{8}}(?P<dash>[-_])(?:[0-9A-F]{{4}}(?P=dash)){{3}}[0-9A-F]{{12}}
            | (?<![0-9A-Z])[0-9A-F]{{32}}(?![0-9A-Z]) )
  | (?<![0-9A-Z])(?:
        (?P<guid> (?:[0-9A-F]{{4}}:){{3}}[0-9A-F]{{4}}(?:(?::[0-9A-F]{{4}}){{4}})?(?!:[0-9A-F]) )
      | (?P<mac> [0-9A-F]{{2}}(?::[0-9A-F]{{2}}){{5,}} )
      | (?P<ipv6> {_GROUPS}{{7}} | (?:{_GROUPS}*)?::(?:{_GROUPS}*)? )
    )(?![0-9A-Z]|\.\d)
  | (?<![\w-])(?P<dashed> [0-9A-F]{{2}}(?:-[0-9A-F]{{2}}){{5,}} )(?![\w-])
  | (?<![\w-])ip-(?P<host_of_ip> (?:\d{{1,3}}-){{3}}\d{{1,3}} )(?!\d)
  | (?<![0-9A-Z])en?x(?P<named_by_mac> [0-9A-F]{{12}})(?![0-9A-Z])
  | (?<![\w.])(?P<ipv4> (?:{_OCTET}\.){{3}}{_OCTET} )(?!\.?\w)
  | \bserial(?:[ ]?(?:number|no\.?)[ \t]*[:=][ \t]*(?P<serial> [\w-]{{3,}})
            | [:=][ \t]*(?P<named> [\w-]{{6,}}))
  | (?: (?<!\S)// | \bserver[ ](?=\S+[ ](?:not[ ]responding|OK|is[ ])) )(?P<server> [A-Z][\w.-]* )
  | (?<!\S)(?P<export> [A-Z][\w.,-]* )(?=:/(?!/))
"""

# NVML calls that return an identity, and fields with an identity as bytes (nvml.h).
_IDENTITY_CALL = re.compile(r"nvml\w*(?:Serial|BoardId)(?:_v\d)?(?:\(.*)?")
_IDENTITY_BYTES = frozenset({"ibGuid", "clusterUuid", "rackGuid"})
# Files with an identity as their whole content, and a file with a content that only looks like an address.
_IDENTITY_FILE = re.compile(r".*/(?:node_desc|hostname|serial|serial_number|\w+_serial)")
_VERSION_FILE = "/fw_ver"
# Files and a call that name a make and model: a hostname may be a word of them.
_MODEL_FILE = re.compile(
    r"/sys/.*/(?:product_name|product_family|sys_vendor|board_name|board_vendor|\w+_version)"
)
_MODEL_CALL = "nvmlDeviceGetName"
_ASSET_TAG = "/chassis_asset_tag"
# The name of a device below /dev/mapper, as in mount tables.
_MAPPER_NAME = "/dm/name"
# Tags that all machines of a cloud share; they identify the platform.
_SHARED_TAGS = frozenset(("7783-7084-3265-9085-8269-3286-77", "Amazon EC2", "OracleCloud.com"))

_XID = "NVRM: Xid ("

# Results of a site's probes, and the field with text for people: docs/tasks/add-a-probe.md.
_PROBES = "/run/nodeguard/observations.d/"
_PROBE_MESSAGE = "message"
_MOUNT_TARGET = "fs:"

# Directories with names given by the system; users name the paths of other mounts.
_SYSTEM = frozenset(("sys", "proc", "dev", "run", "etc"))
_CGROUPS, _UNITS = "/sys/fs/cgroup/", "/etc/systemd/system/"
# Units with a name that an administrator or a workload manager chose, unless systemd has it.
_UNIT_KINDS = frozenset(("slice", "scope", "wants"))
_COMMON_UNITS = frozenset(
    f"{name}.slice" for name in ("system", "runtime", "podruntime", "kubelet", "kubepods", "machine", "user")
) | frozenset(
    f"{name}.target.wants"
    for name in (
        "multi-user",
        "graphical",
        "basic",
        "default",
        "sysinit",
        "network-online",
        "timers",
        "sockets",
    )
)

# In the kernel log: addresses of storage, GUIDs and keys; identities of processors.
_LONG_HEX = re.compile(r"(?<![0-9A-Za-z])(0x|(?=\d*[A-Fa-f]))([0-9A-Fa-f]{12,})(?![0-9A-Za-z])")
_PPIN = re.compile(r"(?<=\bPPIN )[0-9a-fA-F]+|(?<=\bPPIN: )[0-9a-fA-F]+|(?<=\bPPIN:)[0-9a-fA-F]+")
# Shorter serials would match unrelated numbers.
_SHORTEST_SERIAL = 6
# Host names that would match addresses, numbers and common kernel messages.
_NO_NAME = re.compile(r"[0-9a-f]{1,4}|\d+|localhost|host|node|gpu|server|linux|kernel|nvidia", re.IGNORECASE)


class Anonymiser:
    """Replaces identities in one recording.

    hostname: the machine's own name; its short name and any domain are replaced too. An ambiguous name is
    replaced only where it is used as the hostname. vocabulary: words that the kernel log keeps; see
    kernel_words.
    """

    def __init__(
        self,
        hostname: str,
        replacements: Replacements | None = None,
        *,
        vocabulary: frozenset[str] = frozenset(),
    ) -> None:
        self._vocabulary = vocabulary
        self._new = replacements or Replacements()
        self._host = re.escape(hostname.partition(".")[0])
        self._serials: set[str] = set()
        self._pattern = self._compiled()
        self._of_kernel = self._compiled(host=False)

    def text(self, text: str) -> str:
        """Return a text with every identity replaced."""
        return self._pattern.sub(self._replaced, text)

    def path(self, path: str) -> str:
        """Return a path with every identity in its names replaced."""
        top = path.lstrip("/").partition("/")[0]
        if top in _SYSTEM:
            return "/".join(self.name(name, path) for name in path.split("/"))
        return self._mount_path(path)

    def target(self, text: str, path: str) -> str:
        """Return the text of a link at a path, identities replaced."""
        return "/".join(self.name(name, path) for name in text.split("/"))

    def name(self, name: str, path: str) -> str:
        """Return one name of a path, replaced. path: the whole path."""
        stem, dot, kind = name.rpartition(".")
        if path.startswith((_CGROUPS, _UNITS)) and kind in _UNIT_KINDS and name not in _COMMON_UNITS:
            return self.words(stem) + dot + kind
        return self._kernel_text(name) if _of_kernel(path) else self.text(name)

    def call(self, call: str) -> str:
        """Return a system call with its arguments replaced."""
        name, opened, path = call.partition("(")
        return f"{name}({self._mount_path(path[:-1])})" if opened else name

    def record(self, record: str) -> str:
        """Return a record of the kernel log: identities, names and unknown words replaced."""
        head, separator, text = record.partition(";")
        text = sub_unmarked(self._pattern, lambda match: mark(self._replaced(match)), without_marks(text))
        if "NVRM" not in text and "[Hardware Error]" not in text:
            text = sub_unmarked(_LONG_HEX, lambda match: mark(match[1] + self._hex(match[2])), text)
        text = sub_unmarked(_PPIN, lambda match: mark(self._new.like("hex", match[0])), text)
        text = mark_names(text, self.words, partial(self._new.like, "number"), self._mount_path)
        if text.startswith(_XID):  # but for the process, only words of the driver
            return head + separator + without_marks(text)
        return head + separator + anonymous_words(text, self._vocabulary, partial(self._new.like, "word"))

    def _probe(self, text: str) -> str:
        """Return the file of a site's probe, its messages without unknown words."""
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return anonymous_words(text, self._vocabulary, partial(self._new.like, "word"))
        return msgspec.json.encode(self._probe_value(value, "")).decode()

    def _probe_value(self, value: Any, field: str) -> Any:
        if isinstance(value, dict):
            return {name: self._probe_value(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._probe_value(item, field) for item in value]
        if isinstance(value, str) and field == _PROBE_MESSAGE:
            return self.record(f";{value}")[1:]
        if isinstance(value, str) and value.startswith(_MOUNT_TARGET):
            return _MOUNT_TARGET + self._mount_path(value.removeprefix(_MOUNT_TARGET))
        return self.text(value) if isinstance(value, str) else value

    def file(self, path: str, text: str) -> str:
        """Return the content of a file of the machine, identities replaced."""
        if path.endswith(_VERSION_FILE) or _MODEL_FILE.fullmatch(path):
            return text
        if path.startswith(_PROBES):
            return self._probe(text)
        if is_mount_table(path):
            return anonymous_mounts(text, self._mounted)
        if path == "/proc/swaps":
            return anonymous_swaps(text, self._mounted)
        if path.endswith(_MAPPER_NAME):
            return self._mount_path(text)
        if path.endswith(_ASSET_TAG):
            return text if text.strip() in _SHARED_TAGS else self.words(text)
        if _IDENTITY_FILE.fullmatch(path):
            return self.words(text)
        return self._kernel_text(text) if _of_kernel(path) else self.text(text)

    def manifest(self, manifest: Manifest) -> Manifest:
        """Return a bundle's manifest, identities replaced."""
        hostname = self.words(manifest.hostname)
        return replace(manifest, hostname=hostname, boot_id=self.boot_id(manifest.boot_id))

    def boot_id(self, boot_id: str) -> str:
        """Return a replaced boot id, in any form."""
        replaced = self.text(boot_id)
        return self.words(boot_id) if replaced == boot_id else replaced

    def nvml(self, call: str, result: Any) -> Any:
        """Return the result of an NVML call, in the form of nvml.json, identities replaced."""
        if call == _MODEL_CALL:
            return result
        is_identity = _IDENTITY_CALL.fullmatch(call) is not None
        if isinstance(result, str):
            return self._serial(result) if is_identity else self.text(result)
        if type(result) is int and is_identity:
            return int(self._new.like("number", str(result)))
        if isinstance(result, list):
            return [self.nvml(call, item) for item in result]
        if isinstance(result, dict) and "error" not in result:
            return {field: self._field(field, value) for field, value in result.items()}
        return result

    def _field(self, field: str, value: Any) -> Any:
        if field in _IDENTITY_BYTES and isinstance(value, list) and all(byte in range(256) for byte in value):
            return list(bytes.fromhex(self._hex(bytes(value).hex())))
        if isinstance(value, str) and "serial" in field.lower():
            return self._serial(value)
        return self.nvml(field, value)

    def _kernel_text(self, text: str) -> str:
        """Replace identities in a text of the kernel: it has no hostname, but words that may equal one."""
        return self._of_kernel.sub(self._replaced, text)

    def _mount_path(self, path: str) -> str:
        return anonymous_path(path, self._mounted)

    def _mounted(self, part: str) -> str:
        """Replace a word of a mount's device or path."""
        return self.text(part) if self._pattern.fullmatch(part) else self.words(part)

    def _compiled(self, *, host: bool = True) -> re.Pattern[str]:
        words = []
        if self._serials:
            words.append(rf"(?P<serials> {'|'.join(map(re.escape, sorted(self._serials)))} )")
        if host and self._host and not _NO_NAME.fullmatch(self._host):
            words.append(rf"(?P<host> {self._host}(?:\.[0-9A-Z-]+)* )")
        # An underscore joins words: mlx5_0 and NVML_ERROR_GPU_IS_LOST are not hostnames.
        names = rf"(?<!\w)(?:{'|'.join(words)})(?!\w) |" if words else ""
        return re.compile(names + _IDENTITIES, re.VERBOSE | re.IGNORECASE | re.ASCII)

    def _replaced(self, match: re.Match[str]) -> str:
        kind = match.lastgroup or ""
        value = match[kind]
        before = match[0].removesuffix(value)
        if kind == "guid":
            # A port's GID ends with its GUID, which also occurs by itself.
            halves = (value[:19], value[19:20], value[20:])
            return "".join(map(self._hex, halves))
        if kind == "named_by_mac":
            return before + self._hex(value)
        if kind == "host_of_ip":
            return before + self._new.ipv4(value.replace("-", ".")).replace(".", "-")
        if kind in ("uuid", "mac", "ipv6", "dashed"):
            return self._hex(value)
        if kind == "ipv4":
            return value if value.startswith(("0.", "127.", "255.")) else self._new.ipv4(value)
        return before + (self.words(value) if kind in ("host", "server", "export") else self._serial(value))

    def _hex(self, value: str) -> str:
        """Replace a hexadecimal identity, except zeros, broadcast, loopback and link-local."""
        if set(value.lower()) <= set("0:-_") or set(value.lower()) <= set("f:-") or value == "::1":
            return value
        return value if value == "fe80:0000:0000:0000" else self._new.like("hex", value)

    def words(self, text: str) -> str:
        """Return a text with every word replaced, and each label of a domain name."""
        return re.sub(r"[^\s.,]+", lambda match: self._new.like("word", match[0]), text)

    def _serial(self, serial: str) -> str:
        if len(serial) >= _SHORTEST_SERIAL and serial not in self._serials:
            self._serials.add(serial)
            self._pattern, self._of_kernel = self._compiled(), self._compiled(host=False)
        return self._new.like("word", serial)


def _of_kernel(path: str) -> bool:
    return path.startswith(("/sys/", "/proc/")) and path != "/proc/sys/kernel/hostname"
