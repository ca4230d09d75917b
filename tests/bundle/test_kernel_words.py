from __future__ import annotations

import re
from importlib.resources import files

import pytest

from nodeguard.bundle.anonymise import Anonymiser, Replacements
from nodeguard.catalog.tables import example_lines
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.commands.record import known_log_words
from nodeguard.sources.kmsg import KmsgSource
from tests.catalog.test_formats import OneRecord

CATALOGUE, _ = load_catalogue()
VOCABULARY = known_log_words(CATALOGUE)
SOURCE = KmsgSource(CATALOGUE.patterns)
LINES = list(dict.fromkeys(example_lines(files("nodeguard.checks") / "tables")))

# Names stand in «» and may not be in the anonymised line; everything outside stays as it is, apart from identities.
NAMES = """
Out of memory: Killed process 4107 («train_alice») total-vm:20482984kB, anon-rss:15990932kB, file-rss:4kB, UID:«40217» pgtables:31452kB
Memory cgroup out of memory: Killed process 4107 («qwen-sft») total-vm:20482984kB, anon-rss:15990932kB
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=«bob-cell»,mems_allowed=0-1,oom_memcg=/slurm/uid_«40217»/job_«88123»,task=«nemo_run»,pid=9,uid=«40217»
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user.slice/user-«40217».slice,task=«my-job»,pid=9,uid=0
oom_reaper: reaped process 4107 («acme.bin»), now anon-rss:0kB
«jupyter-carol» invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000
INFO: task «llm serve»:4107 blocked for more than 120 seconds.
INFO: task «pt_data_worker»:4107 blocked for more than 241 seconds.
task:«dave-trainer» state:D stack:0 pid:4107
CPU: 68 PID: 4107 Comm: «eve_bench» Tainted: G OE
CPU: 68 PID: 4107 Comm: «secret proj» Not tainted 6.8.0
«falcon40b»[4107]: segfault at 0 ip 00007f7c sp 00007f7d error 4 in libnccl.so.2[7f7c+1000]
traps: «grace_solver»[4107] general protection fault ip:7f7c sp:7f7d error:0 in libtorch_cuda.so[7f7c+1000]
«kube-alpha» invoked oom-killer: gfp_mask=0x0, order=0, oom_score_adj=0
«ray::Worker»: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP)
NVRM: Xid (PCI:0000:9d:00): 31, pid=4107, name=«heidi.py», Ch 00000008, intr 00000000. MMU Fault
NVRM: Xid (PCI:0000:9d:00): 43, pid=4107, name=«two words», Ch 00000008
NVRM: API mismatch: the client '«ivan-smi»' (pid 4107)
EXT4-fs error (device nvme1n1): ext4_lookup:1785: inode #131073: comm «judy»: deleted inode referenced: 12
EXT4-fs error (device nvme1n1): ext4_lookup:1785: inode #131073: block 524: comm «mallory»: path /«projects»/«gemini»/x: bad extended attribute block 1
EXT4-fs (dm-3): mounted filesystem with ordered data mode. Quota mode: none. «zebra-volume»
XFS (dm-0): Mounting V5 Filesystem «falconvol»
BTRFS: device label «olivia-data» devid 1 transid 8 /dev/nvme1n1
BTRFS info (device nvme1n1): using «peggy»
nfs: server «filer17.corp.example.org» not responding, still trying
nfs: server «nas-quark» OK
NFS: «rupert» failed
CIFS: VFS: \\\\«winfiler»\\«sybil$» error -4
LustreError: 11-0: «trentfs»-OST0001-osc-ffff8881: Connection to «trentfs»-OST0001 (at «mds7»@o2ib) was lost; in progress operations
Lustre: «walt»-MDT0000-mdc-ffff8881: Connection restored to «mds7»@tcp (at «mds7»@tcp)
libceph: mon0 (1)«cephmon3»:6789 socket closed (con state OPEN)
ceph: «yolanda» mdsmap
BeeGFS: «zelda» [StorageNode: «beestore4»]
connection1:0: detected conn error (1020) «iscsi-zed»
scsi host7: iSCSI Initiator to iqn.«2001-04.com.example:storage.disk2.sys1»
nvme nvme4: creating 8 I/O queues. nqn.«2014-08.com.acme:nvme:host77»
nvme nvme4: new ctrl: NQN "nqn.«2014-08.org.vault:lab9»", addr 10.0.0.9:4420
device-mapper: table: 253:3: «vg_quantum-lv_home»
md/raid1:md0: active with 2 out of 2 mirrors «mdname»
systemd-journald[1]: «oscar.service» started
systemd[1]: «alpha-beta.service»: Deactivated
cgroup: fork rejected by pids controller in /system.slice/«slurmstepd-7».scope
Process accounting resumed for «ursula»
IPv4: martian source from «ip-10-20-30-40».eu-west.compute.internal
hostname «gpu-17» is gone
link up on «enalice0x»
docker0: port 1(«vethabcdef») entered blocking state
br-«7f00beefcafe»: port 2 entered forwarding state
wlan: associated with «CoffeeShop»
usb 1-1: Product: «Victor Keyboard»
usb 1-1: Manufacturer: «WendyCorp»
usb 1-1: SerialNumber: «XY12Z9QQ»
mlx5_core 0000:4b:00.0: node_guid «94-6d-ae-03-00-4a-1b-2c»
mlx5_core 0000:4b:00.0 eth0: renamed from «rackA12»
IPMI message handler: BMC «bmc-gpu17»
ACPI: «ALICEBIOS» table
Linux version 6.8.0-52-generic («buildd»@«lcy02») (gcc 13.3.0)
Loaded X.509 cert '«Acme Corp Signing»: «0a1b2c3d4e5f60718293a4b5c6d7e8f901234567»'
Key type «acmekey» registered
audit: «xavier» logged in
python3: «user-yara» requested
perf: interrupt took too long («zoe»)
kauditd hold queue overflow «kilo»
overlayfs: lowerdir=/var/lib/docker/overlay2/«lima-layer»
overlayfs: failed to resolve '/«mike»/«november»'
squashfs: /«papa»/«quebec».sif
loop0: detected «romeo.img»
FAT-fs (sda1): «SIERRA» unclean
tmpfs: «tango» full
audit backlog «uniform» exceeded
apparmor="DENIED" profile="«victor-profile»" name="/«whiskey»/«xray»" pid=4107 comm="«yankee»"
SELinux: context «zulu_t»
TCP: request_sock_TCP: Possible SYN flooding on port «[fd00:12:34::5]»:443
nf_conntrack: «table-lab» full
veth«77aa88bb»: left promiscuous mode
IPVS: rr: TCP «10.1.2.3»:80
gpu job «slurm-88123» ended
user «nina» exceeded the limit
uid «40217» exceeded the limit
session «40217» of «otto»
NVRM: GPU at PCI:0000:9d:00: GPU-«5c8f1d2e-0a1b-2c3d-4e5f-60718293a4b5»
NVRM: GPU Board Serial Number: «1650522000123»
NVRM: «quinn» loaded something unknown
nvidia-nvswitch0: «rhea» unknown
mce: [Hardware Error]: PPIN: «a1b2c3d4e5f60718»
{1}[Hardware Error]: fru_text: «SamDimm»
EDAC «tess»: unknown controller
thermal «uma_zone»: critical
watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [«vera-train»:4107]
rcu: INFO: rcu_sched self-detected stall on CPU «wes»
BUG: scheduling while atomic: «xena-irq»/4107/0x00000003
BUG: Bad page map in process «yuri»  pte:8000003d pmd:1d2e
kvm [4107]: «zack-vm» exited
vfio-pci 0000:9d:00.0: «ada.vm» released
megaraid_sas 0000:01:00.0: «bert» enclosure
mpt3sas_cm0: «carl» expander
st 1:0:0:0: «doraTape»
random: «emil» initialised
Spectre: «fred» mitigation
process 4107 («gina») does something
""".strip().split("\n")


ANONYMISER = Anonymiser("gpu-17.corp.example.com", Replacements(b"key"), vocabulary=VOCABULARY)


def anonymous(line: str) -> str:
    return ANONYMISER.record(f"3,1,0,-;{line}").partition(";")[2]


def test_there_are_a_hundred_lines_with_names() -> None:
    assert len(NAMES) >= 100


@pytest.mark.parametrize("line", NAMES)
def test_no_name_stays_in_a_line(line: str) -> None:
    names = re.findall("«(.*?)»", line)
    assert names
    after = anonymous(line.replace("«", "").replace("»", ""))
    assert [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", after)] == []
    # A common word of the kernel says nothing by itself, such as `service` of `alice.service`.
    parts = [part for name in names for part in re.findall(r"[^\W\d_]{4,}", name) if part not in VOCABULARY]
    assert [part for part in parts if re.search(rf"(?<![^\W_]){part}(?![^\W_])", after)] == []


def events(line: str) -> list[tuple[str, str, int]]:
    return [
        (event.signal, observation.target, event.count)
        for observation in SOURCE.read(OneRecord(line))
        for event in observation.events
    ]


def test_a_xid_keeps_the_words_of_the_driver() -> None:
    line = "NVRM: Xid (PCI:0000:9d:00): 31, pid=9, name={}, MMU Fault: ENGINE GRAPHICS. Fault is of type FAULT_NEW"
    assert re.fullmatch(re.escape(line).replace(r"\{\}", r"(?!alice)\w{5}"), anonymous(line.format("alice")))


@pytest.mark.slow
def test_each_line_of_a_known_format_stays_the_same_event() -> None:
    of_line = {line: events(line) for line in LINES}
    changed = {line: anonymous(line) for line in LINES if events(anonymous(line)) != of_line[line]}
    assert changed == {}
    assert sum(map(bool, of_line.values())) > 500
