"""RDMA counters: file, meaning and width of each, and how their directories are read."""

from __future__ import annotations

import errno
from collections.abc import Callable

from nodeguard.model.signal import Signal
from nodeguard.sources import max_rates
from nodeguard.sources.readings import (
    ObservationDraft,
    errno_name,
    failure_reason,
    parse_counter,
    parse_narrow_counter,
    read_text,
)

# Errors with which a restricted function (virtual, or managed by a DPU) refuses to return a counter.
_REFUSALS = frozenset((errno.EINVAL, errno.EIO, errno.EACCES, errno.EPERM, errno.EOPNOTSUPP))

# File in ports/N/counters → width in bits, meaning. Widths: InfiniBand PortCounters attribute, as in Linux
# drivers/infiniband/core/sysfs.c; 0 if adapters with the extended counters have 64 bits.
_PMA = {
    "symbol_error": (16, "minor errors on a lane"),
    "link_error_recovery": (8, "times that the link recovered from errors by itself"),
    "link_downed": (8, "times that recovery failed and the link went down"),
    "port_rcv_errors": (16, "packets received with an error"),
    "port_rcv_remote_physical_errors": (16, "packets received that an earlier hop had marked as bad"),
    "port_rcv_switch_relay_errors": (16, "packets that a switch could not pass on"),
    "port_xmit_discards": (16, "outgoing packets dropped because the port was down or congested"),
    "port_xmit_constraint_errors": (8, "outgoing packets that partition rules forbade"),
    "port_rcv_constraint_errors": (8, "incoming packets that partition rules forbade"),
    "local_link_integrity_errors": (4, "times that errors on the link went over its threshold"),
    "excessive_buffer_overrun_errors": (4, "times that the peer overran flow control again and again"),
    "VL15_dropped": (16, "management packets dropped"),
    "port_xmit_wait": (32, "ticks in which data waited to be sent"),
    "port_xmit_data": (0, "data sent, in units of four bytes"),
    "port_rcv_data": (0, "data received, in units of four bytes"),
    "port_xmit_packets": (0, "packets sent"),
    "port_rcv_packets": (0, "packets received"),
    "unicast_xmit_packets": (0, "unicast packets sent"),
    "unicast_rcv_packets": (0, "unicast packets received"),
    "multicast_xmit_packets": (0, "multicast packets sent"),
    "multicast_rcv_packets": (0, "multicast packets received"),
}

# File in ports/N/hw_counters of mlx5 (Linux drivers/infiniband/hw/mlx5/counters.c) → meaning.
_MLX5 = {
    "out_of_sequence": "packets that arrived out of order",
    "packet_seq_err": "sequence errors that the responder reported",
    "local_ack_timeout_err": "times that an acknowledgement did not come in time",
    "implied_nak_seq_err": "responses found missing by the requester itself",
    "rnr_nak_retry_err": "times that the peer had no receive buffer ready until retries ran out",
    "duplicate_request": "requests that arrived twice",
    "out_of_buffer": "packets dropped because no receive buffer was available",
    "req_transport_retries_exceeded": "queue pairs that stopped because the path was dead",
    "req_rnr_retries_exceeded": "queue pairs that stopped because the peer never became ready",
    "req_cqe_error": "requests completed with an error",
    "resp_cqe_error": "responses completed with an error",
    "req_cqe_flush_error": "requests flushed after an error",
    "resp_cqe_flush_error": "responses flushed after an error",
    "req_remote_access_errors": "requests that the peer refused access to",
    "resp_remote_access_errors": "requests of the peer that were refused access",
    "req_remote_invalid_request": "requests that the peer found invalid",
    "resp_local_length_error": "requests of the peer with a wrong length",
    "rx_icrc_encapsulated": "RoCE packets with a bad invariant checksum",
    "roce_adp_retrans": "adaptive retransmissions",
    "roce_adp_retrans_to": "timeouts of adaptive retransmission",
    "roce_slow_restart": "slow restarts",
    "roce_slow_restart_cnps": "congestion notifications made by slow restart",
    "roce_slow_restart_trans": "times that slow restart was entered",
    "np_cnp_sent": "congestion notifications sent",
    "np_ecn_marked_roce_packets": "packets received with a congestion mark",
    "rp_cnp_handled": "congestion notifications obeyed",
    "rp_cnp_ignored": "congestion notifications ignored",
    "rx_read_requests": "RDMA reads received",
    "rx_write_requests": "RDMA writes received",
    "rx_atomic_requests": "atomic operations received",
}

# File in hw_counters or ports/1/hw_counters of an EFA device (amzn-drivers, efa_verbs.c) → meaning.
_EFA = {
    "rx_drops": "packets dropped on arrival",
    "retrans_bytes": "bytes sent again",
    "retrans_pkts": "packets sent again",
    "retrans_timeout_events": "timeouts that made packets be sent again",
    "unresponsive_remote_events": "times that a peer stopped answering",
    "impaired_remote_conn_events": "times that a connection was found impaired",
    "rdma_read_wr_err": "RDMA reads failed",
    "rdma_write_wr_err": "RDMA writes failed",
    "tx_bytes": "bytes sent",
    "rx_bytes": "bytes received",
    "tx_pkts": "packets sent",
    "rx_pkts": "packets received",
    "send_wrs": "sends requested",
    "recv_wrs": "receives requested",
    "rdma_read_wrs": "RDMA reads requested",
    "rdma_write_wrs": "RDMA writes requested",
    "cmds_err": "admin commands failed",
    "no_completion_cmds": "admin commands that the device never completed",
    "keep_alive_rcvd": "heartbeats of the device; a number that does not rise is a dead device",
    "submitted_cmds": "admin commands sent",
    "completed_cmds": "admin commands completed",
    "reg_mr_err": "memory registrations failed",
    "create_qp_err": "queue pairs that could not be created",
    "create_cq_err": "completion queues that could not be created",
    "alloc_pd_err": "protection domains that could not be allocated",
    "create_ah_err": "address handles that could not be created",
    "alloc_ucontext_err": "user contexts that could not be allocated",
    "mmap_err": "mappings failed",
}

# Counters that do not count packets or requests. Data, ticks and congestion have no limit that matters.
_MAX_RATES = {
    "link_downed": max_rates.PORT_TRAININGS,
    "link_error_recovery": max_rates.LINK_RECOVERIES,
    "no_completion_cmds": max_rates.UNCORRECTED,
    **dict.fromkeys(
        ("port_xmit_wait", "port_xmit_data", "port_rcv_data", "retrans_bytes", "tx_bytes", "rx_bytes"), 0.0
    ),
}


def _signal(family: str, file: str, about: str, bits: int = 0) -> Signal:
    max_rate = _MAX_RATES.get(file, max_rates.PACKETS)
    return Signal(f"{family}.{file.lower()}", "counter", about, bits=bits, max_rate=max_rate)


# Signal by name of the counter file.
PMA = {file: _signal("port", file, about, bits) for file, (bits, about) in _PMA.items()}
MLX5 = {file: _signal("port", file, about) for file, about in _MLX5.items()}
EFA = {file: _signal("efa", file, about) for file, about in _EFA.items()}


def read_counters(
    draft: ObservationDraft, directory: str, table: dict[str, Signal], refused: dict[str, str]
) -> None:
    """Read the counters of a directory that the table has, by file name.

    refused: name of the error by group (last part of the directory). A group that refused one counter is not
    read again: each refusal writes to the kernel log. Virtual functions have only one of the groups.
    """
    group = directory.rpartition("/")[2]
    for file in draft.list_names(directory, *(signal.name for signal in table.values())) or ():
        if file not in table:
            continue
        signal = table[file].name
        text = None if group in refused else read_text(draft.machine, f"{directory}/{file}")
        if isinstance(text, OSError) and text.errno in _REFUSALS:
            refused[group] = errno_name(text)
        if group in refused:
            draft.mark_unread(f"refused once ({refused[group]}): not read again", signal)
        elif isinstance(text, OSError):
            draft.mark_unread(failure_reason(text), signal)
        elif text is not None:
            draft.parse(signal, f"{directory}/{file}", text.strip(), _parser(table[file].bits))


def _parser(bits: int) -> Callable[[str], int | None]:
    """Return the parser of a counter; older kernels print `N/A (no PMA)` for one that the port lacks."""
    parse = parse_narrow_counter(bits) if bits else parse_counter
    return lambda text: None if text.startswith("N/A") else parse(text)
