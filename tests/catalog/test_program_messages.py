"""Messages of programs, and the file that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeguard.catalog.program_messages import find_program_message, load_program_messages
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.config.errors import ConfigError
from nodeguard.model.catalogue import ProgramMessage

MESSAGES = load_catalogue()[0].program_messages

ROW = """\
- title: a fan stopped
  pattern: {pattern}
  examples: [{example}]
  cause: machine
  first: Look at it.
  checks: [{check}]
"""


def load(folder: Path, *rows: str) -> tuple[ProgramMessage, ...]:
    (folder / "program-messages.yaml").write_text("".join(rows))
    return load_program_messages(folder, ["fan-slow"])


def test_a_row_is_read_without_its_examples(tmp_path: Path) -> None:
    row = ROW.format(pattern="fan (?:stop|halt)", example="Fan stopped", check="fan-slow")
    assert load(tmp_path, row) == (
        ProgramMessage("a fan stopped", "fan (?:stop|halt)", "machine", "Look at it.", ("fan-slow",)),
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pattern": "(fan"}, "2: pattern: is no expression: "),
        ({"example": "pump stopped"}, "3: examples[0]: is not matched by its pattern: correct the pattern"),
        ({"check": "pump-slow"}, "6: checks[0]: 'pump-slow' is no check: see `nodeguard checks`"),
    ],
)
def test_an_invalid_row_is_refused_with_file_and_line(
    tmp_path: Path, fields: dict[str, str], message: str
) -> None:
    row = ROW.format(**{"pattern": "fan", "example": "fan stopped", "check": "fan-slow", **fields})
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, row)
    assert str(caught.value).startswith(f"{tmp_path}/program-messages.yaml:{message}")


def test_a_row_that_never_explains_its_example_is_refused(tmp_path: Path) -> None:
    row = ROW.format(pattern="fan", example="fan stopped", check="fan-slow")
    with pytest.raises(ConfigError, match=r":9: examples\[0\]: is explained by 'a fan stopped': correct"):
        load(tmp_path, row, row.replace("a fan stopped", "a fan stopped again"))


def test_a_cause_that_needs_the_machine_names_its_checks() -> None:
    without = [
        message.title for message in MESSAGES if message.cause in ("machine", "either") and not message.checks
    ]
    # Any check can set a mark.
    assert without == ["a mark of nodeguard keeps new pods away from a node"]


@pytest.mark.parametrize(
    ("text", "cause", "check"),
    [
        # Reports of NCCL that quote the error of CUDA: the error of CUDA decides.
        (
            (
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, unhandled cuda error\n"
                "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
                "Cuda failure 'uncorrectable ECC error\nencountered'"
            ),
            "machine",
            "gpu-ecc-uncorrectable",
        ),
        (
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'out of memory'",
            "program",
            "gpu-memory-reduced",
        ),
        (
            (
                "[E ProcessGroupNCCL.cpp:563] [Rank 5] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=96, OpType=_ALLGATHER_BASE, Timeout(ms)=600000) ran for 600422 milliseconds"
            ),
            "either",
            "port-down",
        ),
        ("nccl TIMEOUT", "either", "port-down"),
        ("NCCL timed out", "either", "port-down"),
        ("the training hangs", "either", "nvlink-down"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "program", "gpu-xid-workload"),
        ("RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed.", "either", "out-of-memory"),
        ("out of memory", "either", "out-of-memory"),
        ("CUDA error 700", "program", "gpu-xid-workload"),
        ("CUDA error: 719", "either", "gpu-xid-fatal"),
        ("NVML_ERROR_GPU_IS_LOST", "machine", "gpu-lost"),
    ],
)
def test_a_text_that_people_paste_is_explained(text: str, cause: str, check: str) -> None:
    message = find_program_message(MESSAGES, text)
    assert message is not None
    assert message.cause == cause
    assert check in message.checks


@pytest.mark.parametrize("text", ["ecc", "memory", "hanging processes of a disk", "timeout"])
def test_words_of_a_search_are_no_message(text: str) -> None:
    assert find_program_message(MESSAGES, text) is None


@pytest.mark.parametrize(
    ("text", "cause", "title"),
    [
        # NCCL names the cause after the error of CUDA.
        (
            (
                "NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 "
                "'the operation cannot be performed in the present state'. This is usually caused by a system or "
                "configuration error in the Fabric Manager or NVSwitches."
            ),
            "machine",
            "the Fabric Manager or the NVLink fabric is not ready",
        ),
        # A time limit of the runtime is none of the pod.
        (
            "Failed to create pod sandbox: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
            "either",
            "the container could not be started on the node",
        ),
        (
            'Readiness probe failed: Get "http://10.0.0.1/": dial tcp 10.0.0.1:80: connect: connection refused',
            "either",
            "a probe of the pod failed",
        ),
        (
            "libnvidia-ml.so.1: cannot open shared object file: No such file or directory",
            "either",
            "the driver's library or program is not installed here",
        ),
    ],
)
def test_the_cause_that_a_text_names_counts(text: str, cause: str, title: str) -> None:
    message = find_program_message(MESSAGES, text)
    assert message is not None
    assert (message.cause, message.title) == (cause, title)


@pytest.mark.parametrize(
    ("text", "cause", "title"),
    [
        (
            "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
            "program",
            "a kernel could not be compiled",
        ),
        (
            "slurmctld: error: Duplicate jobid on nodes gpu-7, set to state DRAIN",
            "configuration",
            "an earlier job with the same number is still on the node",
        ),
        (
            "slurmctld: error: Prolog hook failed",
            "either",
            "a script of Slurm before or after the job failed",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid qos specification",
            "configuration",
            "Slurm cannot fulfil the request",
        ),
        # No node has what the job asks for; before, the node was suspected.
        (
            "srun: error: Unable to allocate resources: Requested node configuration is not available",
            "configuration",
            "Slurm cannot fulfil the request",
        ),
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "either",
            "a daemon of Slurm does not answer",
        ),
        # The loader's error text is also that of a missing library of the program.
        (
            (
                "NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open "
                "shared object file: No such file or directory"
            ),
            "configuration",
            "NCCL found no plug-in and uses its own code",
        ),
        # The refused connection is not that of another rank.
        (
            "transport: Error while dialing: dial unix /run/containerd/containerd.sock: connect: connection refused",
            "either",
            "the container runtime did not answer, or not in time",
        ),
    ],
)
def test_a_line_that_is_no_fault_of_the_hardware_names_its_kind(text: str, cause: str, title: str) -> None:
    message = find_program_message(MESSAGES, text)
    assert message is not None
    assert (message.cause, message.title) == (cause, title)


@pytest.mark.parametrize(
    "text",
    [
        "NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.",
        "NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 - Init COMPLETE",
        "NCCL INFO Connected all rings",
        "ProcessGroupNCCL initialization options: size: 8, global rank: 0, TIMEOUT(ms): 600000",
        "ProcessGroupNCCL initialized with following options: NCCL_ASYNC_ERROR_HANDLING: 1 TIMEOUT(ms): 1800000",
        "[Rank 0] NCCL watchdog thread started!",
        "iteration 100/ 1000 | lm loss: 2.3E+00 | number of skipped iterations: 0 | number of nan iterations: 0 |",
        "Node gpu-7 status is now: NodeHasNoDiskPressure",
        "MemoryPressure False KubeletHasSufficientMemory kubelet has sufficient memory available",
        "DiskPressure   False KubeletHasNoDiskPressure kubelet has no disk pressure",
        "slurmctld: node gpu-7 returned to service",
        "srun: job 1234 queued and waiting for resources",
        "Successfully assigned team-a/train-0 to gpu-7",
        "nvidia-smi: exit code 0",
        "munged: Info: Processed 1 credential",
        "systemd[1]: Started NVIDIA fabric manager service.",
        "EDAC MC0: Giving out device to module skx_edac",
        "MCE: In-kernel MCE decoding enabled.",
        "mce: CPU0: Using only 32 machine check banks out of 33",
        "mce: CPU3: Thermal monitoring handled by SMI",
        "mce: CMCI storm subsided: switching to interrupt mode",
        "x86/mce: Machine check polling timer started.",
        "{3}[Hardware Error]: event severity: info",
        "{3}[Hardware Error]:  Error 0, type: info",
        "GHES: APEI firmware first mode is enabled by APEI bit and WHEA _OSC.",
        "HEST: Table parsing has been initialized.",
        "ERST: Error Record Serialization Table (ERST) support is initialized.",
        "BERT: Boot Error Record Table support is disabled. Enable it by using bert_enable as kernel parameter.",
        "[Firmware Warn]: GHES: Poll interval is 0 for generic hardware error source: 1, disabled.",
        "RAS: Correctable Errors collector initialized.",
        "CIFS: Attempting to mount \\\\srv\\share",
        "CIFS: No dialect specified on mount. Default has changed to a more secure dialect, SMB2.1 or later",
        "Key type cifs.spnego registered",
        "the worker has not responded in 30 seconds. Reconnecting",
        "GPU Recovery Action : None",
        "HW Thermal Slowdown : Not Active",
        "SW Power Cap : Active",
        "Remapping Failure Occurred : No",
        "JobState=COMPLETED Reason=None",
        "Terminating the old replica",
    ],
)
def test_a_line_of_a_healthy_system_is_no_error(text: str) -> None:
    assert find_program_message(MESSAGES, text) is None
