from __future__ import annotations

import re
import string
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeguard.bundle.anonymise import Anonymiser, Kind, Replacements
from nodeguard.bundle.kernel_words import known_words
from nodeguard.bundle.manifest import Manifest

HOST = "gpu-17.corp.example.com"
UUID = "5c8f1d2e-0a1b-2c3d-4e5f-60718293a4b5"


def anonymiser() -> Anonymiser:
    return Anonymiser(HOST, Replacements(b"key"))


def shape(text: str) -> str:
    """A text with its letters, hexadecimal or not, and digits made alike."""
    return re.sub(r"[a-z0-9]", "x", re.sub(r"[A-Z]", "X", text))


@pytest.mark.parametrize(
    ("text", "original"),
    [
        ("NVRM: GPU at PCI:0000:18:00: GPU-{}", UUID),
        ("MIG-{} MIG-GPU-{}/1/0", UUID),
        ("kubepods-burstable-pod{}.slice", UUID.replace("-", "_")),
        ("machine {}", UUID.replace("-", "")),
        ("node_guid {}", "946d:ae03:004a:1b2c"),
        ("link/ether {} brd", "b8:3f:d2:cc:1d:2e"),
        ("MAC:{}: up", "b8:3f:d2:cc:1d:2e"),
        ("{}", "80:00:02:08:fe:80:00:00:00:00:00:00:94:6d:ae:03:00:4a:1b:2c"),
        ("addr {}%eth0", "fe80::ba3f:d2ff:fecc:1d2e"),
        ("addr {}: unreachable", "fd00:12:34::5"),
        ("NVRM: GPU Board Serial Number: {}", "1650522000123"),
        ("usb 1-1: SerialNumber: {}", "AB12cd34"),
        ("{} login", "gpu-17"),
        ("/mnt/{}/x,{}", "gpu-17"),
        ("{}", HOST),
        ("NFS {}:/export /mnt", "gpu-17"),
    ],
)
def test_an_identity_becomes_another_of_its_shape(text: str, original: str) -> None:
    before = text.replace("{}", original)
    after = anonymiser().text(before)
    assert original not in after
    wanted = re.escape(text).replace(r"\{\}", "(.+)")
    match = re.fullmatch(wanted, after)
    assert match is not None
    assert {shape(group) for group in match.groups()} == {shape(original)}
    assert len(set(match.groups())) == 1


@pytest.mark.parametrize(
    "text",
    [
        "pcieport 0000:15:01.0: AER: Corrected error received: 0000:16:00.0",
        "0000:0000:0000:0000",
        "fe80:0000:0000:0000:0000:0000:0000:0000",
        "ff:ff:ff:ff:ff:ff 00:00:00:00:00:00",
        "127.0.0.1 0.0.0.0 ::1 :: 255.255.255.0",
        "580.95.05 96.00.74.00.01 G525.0230.00.05 28.39.1002",
        "std::vector a:b:c 12:30:59",
        "Serial: 8250/16550 driver, 32 ports",
        "New USB device strings: Mfr=1, Product=2, SerialNumber=3",
        "overlay / overlay rw,lowerdir=/var/lib/x/1/fs:/var/lib/x/2/fs 0 0",
        "1:name=systemd:/init.scope",
        "https://example.org/x",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=<masked>, GPU has fallen off the bus.",
        "mlx5_core 0000:9c:00.0: wait_func:964:(pid 112): ENABLE_HCA(0x104) timeout",
        "gpu-178 other-gpu17 gpu_17",
    ],
)
def test_text_without_identity_does_not_change(text: str) -> None:
    assert anonymiser().text(text) == text


def test_ipv4_addresses_become_those_of_documentation() -> None:
    new = anonymiser()
    mounts = "10.0.0.5:/data /mnt nfs4 rw,clientaddr=10.0.0.9,addr=10.0.0.5 0 0"
    assert new.text(mounts) == "192.0.2.1:/data /mnt nfs4 rw,clientaddr=192.0.2.2,addr=192.0.2.1 0 0"
    assert new.text("nfs: server 10.0.0.5 OK.") == "nfs: server 192.0.2.1 OK."
    assert new.text("::ffff:10.0.0.9").endswith(":192.0.2.2")
    many = [new.text(f"10.1.{third}.{fourth}") for third in range(5) for fourth in range(1, 251)]
    assert len(set(many)) == len(many)
    assert {address.rpartition(".")[0] for address in many[:760]} == {"192.0.2", "198.51.100", "203.0.113"}


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("{}:/export /mnt nfs4 rw 0 0", "nfs01"),
        ("//{}/share /mnt cifs rw 0 0", "filer"),
        ("{}:/ /mnt ceph rw 0 0", "mon1,mon2"),
        ("nfs: server {} not responding, still trying", "nfs01"),
        ("nfs: server {} OK", "nfs01.corp.example.com"),
    ],
)
def test_servers_of_file_systems_are_replaced(text: str, server: str) -> None:
    after = anonymiser().text(text.format(server))
    assert server not in after
    assert shape(after) == shape(text.format(server))


def test_name_has_the_same_replacement_everywhere() -> None:
    new = anonymiser()
    name = new.text("gpu-17")
    assert new.text("GPU-17") == name.upper()
    assert new.text(HOST).partition(".")[0] == name
    domain = new.text(HOST).partition(".")[2]
    assert new.text("nfs01.corp.example.com:/x").partition(":")[0].partition(".")[2] == domain
    guid = new.text("946d:ae03:004a:1b2c")
    assert new.text("fe80:0000:0000:0000:946d:ae03:004a:1b2c") == f"fe80:0000:0000:0000:{guid}"
    assert new.text(UUID.upper()) == new.text(UUID).upper()
    assert new.manifest(Manifest(HOST, UUID, 0, 0)) == Manifest(new.text(HOST), new.text(UUID), 0, 0)


def test_serials_of_nvml_are_replaced_in_other_texts() -> None:
    new = anonymiser()
    assert new.text("board 1650522000123") == "board 1650522000123"
    serial = new.nvml("nvmlDeviceGetSerial", "1650522000123")
    assert new.text("board 1650522000123") == f"board {serial}"
    assert shape(serial) == "x" * 13


def test_nvml_results_keep_their_form() -> None:
    new = anonymiser()
    board = new.nvml("nvmlDeviceGetBoardId", 6912)
    assert isinstance(board, int)
    assert 1000 <= board <= 9999 != board
    assert board != 6912
    info = {"ibGuid": [9, 8, 7, 6] * 4, "chassisSerialNumber": "AB12345", "slotNumber": 5, "moduleId": 2}
    replaced = new.nvml("nvmlDeviceGetPlatformInfo", info)
    assert replaced["ibGuid"] != info["ibGuid"]
    assert len(replaced["ibGuid"]) == 16
    assert replaced["chassisSerialNumber"] != "AB12345"
    assert (replaced["slotNumber"], replaced["moduleId"]) == (5, 2)
    assert new.nvml("nvmlDeviceGetGpuFabricInfoV", {"clusterUuid": [0] * 16}) == {"clusterUuid": [0] * 16}
    assert new.nvml("nvmlDeviceGetUUID", f"GPU-{UUID}") == f"GPU-{new.text(UUID)}"
    assert new.nvml("nvmlDeviceGetSerial", {"error": "NVML_ERROR_NOT_SUPPORTED"}) == {
        "error": "NVML_ERROR_NOT_SUPPORTED"
    }
    assert new.nvml("nvmlDeviceGetRemappedRows", [0, 1, 0, 0]) == [0, 1, 0, 0]
    assert new.nvml("nvmlDeviceGetPciInfo", {"busId": "00000000:3B:00.0"}) == {"busId": "00000000:3B:00.0"}


def test_files_that_are_an_identity_are_replaced_whole() -> None:
    new = anonymiser()
    for path in (
        "/sys/class/infiniband/mlx5_0/node_desc",
        "/etc/hostname",
        "/sys/class/dmi/id/product_serial",
    ):
        assert "other" not in new.file(path, "other name\n")
    assert new.file("/sys/class/infiniband/bnxt_re0/fw_ver", "229.2.52.0\n") == "229.2.52.0\n"
    assert new.file("/sys/class/infiniband/mlx5_0/node_desc", "gpu-17 x\n").startswith(
        new.text("gpu-17") + " "
    )


@pytest.mark.parametrize(
    "line",
    [
        "/dev/mapper/rhel_{gpu--node01}-root / xfs rw 0 0",
        "//{login01}/share /mnt cifs rw 0 0",
        "{alice}@{login01}:/home/{alice} /home/{alice}/mnt fuse.sshfs rw 0 0",
        "{mds01}@o2ib:{mds02}@o2ib:/scratch /scratch lustre rw 0 0",
        "{alice}@7d0b7c1e-1111-2222-3333-444455556666.{acmefs}=/ /{models-of-alice} ceph rw 0 0",
        "UUID={7B77-95E7} /boot/efi vfat rw 0 0",
        "/dev/disk/by-id/nvme-SAMSUNG_MZ_{S64HNE0R512345} /data xfs rw 0 0",
        "/dev/disk/by-id/wwn-0x{5000c500a1b2c3d4} /data xfs rw 0 0",
        "/dev/mapper/{3600508b400105e21} /mnt/my\\040{project} xfs ro 0 0",
    ],
)
def test_mount_table_is_anonymised_and_keeps_its_form(line: str) -> None:
    original = line.replace("{", "").replace("}", "")
    after = anonymiser().file("/proc/self/mounts", f"{original}\n")
    for name in re.findall(r"{(.+?)}", line):
        assert name not in after
    assert len(after) == len(original) + 1
    assert after.split()[2:] == original.split()[2:]


def test_a_mount_is_the_same_in_all_tables_and_calls() -> None:
    new = anonymiser()
    path = new.file("/etc/fstab", "/dev/sda1 /srv/alice/a\\040b ext4 rw 0 0").split()[1]
    assert path.startswith("/srv/")
    assert new.file("/proc/1/mounts", "/dev/nvme0n1p2 /srv/alice/a\\040b ext4 ro 0 0").split()[1] == path
    assert new.call("statvfs(/srv/alice/a b)") == f"statvfs({path.replace(chr(92) + '040', ' ')})"
    assert new.call("adjtimex") == "adjtimex"


def test_a_mapped_device_has_the_same_name_in_all_files() -> None:
    new = anonymiser()
    device = new.file("/proc/self/mounts", "/dev/mapper/acme-data /data xfs rw 0 0\n").split()[0]
    assert "acme" not in device
    assert f"/dev/mapper/{new.file('/sys/block/dm-3/dm/name', 'acme-data')}" == device
    swaps = "Filename Type Size Used Priority\n/dev/mapper/acme-data partition 1 0 -2\n"
    assert new.file("/proc/swaps", swaps) == swaps.replace("/dev/mapper/acme-data", device)


@pytest.mark.parametrize("path", ["/", "/boot/efi", "/dev/shm", "/raid", "/var/lib/containerd", "/mnt/data1"])
def test_common_paths_are_not_replaced(path: str) -> None:
    line = f"/dev/nvme0n1p2 {path} ext4 rw 0 0\n"
    assert anonymiser().file("/etc/fstab", line) == line


@pytest.mark.parametrize(
    "text",
    [
        "mpt3sas_cm0: host_add: sas_addr(0x{500605b00d1c2d50}), phys(8)",
        "infiniband mlx5_0: node guid 0x{98039b03009a1b2c}",
        "integrity: Loaded X.509 cert 'Secure Boot: {9b3c0f7e1d2a4b5c6d7e8f900a1b2c3d4e5f6071}'",
        r"CIFS: VFS: \x5c\x5c{fileserver01}\x5cprojects has not responded in 180 seconds",
        "Linux version 5.15.0 ({alice}@{build-07}) (gcc 12)",
        "oom-kill:constraint=NONE,task_memcg=/slurm/uid_{71234}/job_5,task=x,pid=1883,uid={71234}",
        "mlx5_core 0000:3b:00.0 enx{0c42a1b2c3d4}: Link up",
        "NFS: nfs4_reclaim_open_state: server {storage01} Lock reclaim failed!",
        "Lustre: Connection to scratch-OST0001 (at {oss07}@o2ib) was lost",
        "python3[1]: /home/{alice}/x: error",
        "mce: [Hardware Error]: PROCESSOR 0:50657 PPIN: {1234abcd5678ef00}",
    ],
)
def test_kernel_log_records_are_anonymised(text: str) -> None:
    original = text.replace("{", "").replace("}", "")
    after = anonymiser().record(f"3,17,123456789012,-;{original}")
    for name in re.findall(r"{(.+?)}", text):
        assert name not in after
    assert after.startswith("3,17,123456789012,-;")
    assert shape(after).replace("X", "x")[-5:] == shape(original).replace("X", "x")[-5:]


@pytest.mark.parametrize(
    "text",
    [
        "mce: [Hardware Error]: CPU 24: Machine Check: 0 Bank 7: 8c00004000010093",
        "NVRM: Xid (PCI:0000:3b:00): 74, pid=1, NVLink: fatal error 0x00000000deadbeef1234",
        "EXT4-fs: total 123456789012345 blocks",
    ],
)
def test_technical_numbers_are_not_replaced(text: str) -> None:
    new = Anonymiser(HOST, Replacements(b"key"), vocabulary=known_words([text]))
    assert new.record(f"3,1,1,-;{text}") == f"3,1,1,-;{text}"


@pytest.mark.parametrize("host", ["h100", "dgx", "live", "mlx5"])
def test_hostname_that_equals_a_model_does_not_change_models(host: str) -> None:
    new = Anonymiser(host)
    for path, text in (
        ("/sys/class/dmi/id/product_name", "DGX H100"),
        ("/sys/module/nvidia/initstate", "live"),
        ("/proc/driver/nvidia/gpus/0000:1b:00.0/information", "Model: NVIDIA H100 80GB HBM3"),
    ):
        assert new.file(path, text) == text
        assert new.path(path) == path
    assert new.nvml("nvmlDeviceGetName", "NVIDIA H100 80GB HBM3") == "NVIDIA H100 80GB HBM3"


def test_asset_tag_shared_by_a_cloud_is_not_replaced() -> None:
    path, azure = "/sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n"
    assert anonymiser().file(path, azure) == azure
    assert "ACME" not in anonymiser().file(path, "ACME-ASSET-004711\n")


def test_slice_with_a_custom_name_is_renamed() -> None:
    new = anonymiser()
    assert new.path("/sys/fs/cgroup/system.slice/kubelet.service").endswith("system.slice/kubelet.service")
    renamed = new.path("/sys/fs/cgroup/acme.slice/kubelet.service")
    assert "acme" not in renamed
    assert renamed.endswith(".slice/kubelet.service")


def test_two_recordings_share_no_replacement() -> None:
    assert Anonymiser(HOST).text(UUID) != Anonymiser(HOST).text(UUID)


@pytest.mark.parametrize("hostname", ["localhost", "ab", "17", "gpu", "node.example.com"])
def test_ambiguous_name_is_replaced_only_as_the_hostname(hostname: str) -> None:
    new = Anonymiser(hostname)
    text = "3,17,17,-;NVRM: GPU 0000:ab:00.0: node localhost GPU has fallen off the bus."
    assert new.text(text) == text
    assert new.manifest(Manifest(hostname, UUID, 0, 0)).hostname != hostname


hexes = st.text("0123456789abcdef", min_size=4, max_size=4)
uuids = st.uuids().map(str)
guids = st.tuples(hexes, hexes, hexes, hexes).map(":".join)
macs = st.lists(st.integers(1, 254).map(lambda byte: f"{byte:02x}"), min_size=6, max_size=6).map(":".join)
addresses = st.tuples(*[st.integers(1, 254)] * 3).map(lambda parts: "10." + ".".join(map(str, parts)))
words = st.text(string.ascii_lowercase, min_size=6, max_size=12).filter(
    lambda name: name not in ("serial", "number")
)
hosts = st.tuples(words, st.integers(10, 99)).map(lambda parts: f"{parts[0]}-{parts[1]}")
identities = uuids | guids.filter(lambda guid: len(set(guid)) > 4) | macs | addresses


@settings(deadline=None)
@given(hosts, st.lists(st.tuples(st.sampled_from(["GPU-", "x ", "(", "=", ""]), identities)))
def test_anonymised_text_is_consistent_and_has_no_identity(host: str, match: list[tuple[str, str]]) -> None:
    new = Anonymiser(host)
    text = " ".join([host, *(before + identity for before, identity in match), host])
    after = new.text(text)
    for original in (host, *(identity for _, identity in match)):
        assert not re.search(rf"(?<!\w){re.escape(original)}(?!\w)", after)
    assert new.text(text) == after
    assert all(new.text(identity) in after for _, identity in match)


@settings(deadline=None)
@given(
    st.sampled_from(get_args(Kind)),
    st.lists(st.text("abcdef0123456789", min_size=8), min_size=2, unique=True),
)
def test_different_names_stay_different(kind: Kind, originals: list[str]) -> None:
    new = Replacements()
    replaced = [new.like(kind, original) for original in originals]
    assert len(set(replaced)) == len(originals)
    assert [len(name) for name in replaced] == [len(name) for name in originals]


@pytest.mark.parametrize(
    ("path", "original", "suffix"),
    [
        ("/sys/fs/cgroup/system.slice/slurmstepd-7.scope", "slurmstepd-7", ".scope"),
        ("/sys/fs/cgroup/acme.slice", "acme", ".slice"),
        ("/etc/systemd/system/acme-jobs.target.wants", "acme-jobs", ".wants"),
        ("/etc/systemd/system/multi-user.target.wants", "", "multi-user.target.wants"),
        ("/sys/fs/cgroup/kubepods.slice", "", "kubepods.slice"),
    ],
)
def test_units_of_a_site_are_replaced_and_those_of_systemd_stay(
    path: str, original: str, suffix: str
) -> None:
    after = anonymiser().path(path)
    assert after.endswith(suffix)
    assert not original or original not in after


@pytest.mark.parametrize(
    ("text", "original", "after"),
    [
        ("host ip-10-20-30-40 is up", "10-20-30-40", "host ip-192-0-2-1 is up"),
        ("from ip-10-20-30-40.eu-west-1.compute.internal", "10-20-30-40", "from ip-192-0-2-1."),
    ],
)
def test_addresses_in_names_of_hosts_are_replaced(text: str, original: str, after: str) -> None:
    replaced = anonymiser().text(text)
    assert original not in replaced
    assert replaced.startswith(after)


def test_a_guid_with_dashes_is_replaced() -> None:
    replaced = anonymiser().text("guid 94-6d-ae-03-00-4a-1b-2c end")
    assert re.fullmatch(r"guid (?!94-6d)[0-9a-f]{2}(-[0-9a-f]{2}){7} end", replaced)


def test_a_message_of_a_probe_keeps_no_unknown_word() -> None:
    text = (
        '{"observations":[{"name":"nccl","target":"node","message":"alice saw 12 errors on project zephyr"}]}'
    )
    after = anonymiser().file("/run/nodeguard/observations.d/nccl.json", text)
    assert '"name":"nccl","target":"node"' in after
    assert not re.search("alice|zephyr|saw", after)
    assert " 12 " in after
    broken = anonymiser().file("/run/nodeguard/observations.d/nccl.json", '{"message": "alice')
    assert "alice" not in broken
