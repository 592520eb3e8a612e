"""The replicator's program with bugs planted in what members tell each other: the tests of messages notice each.

Bugs in what becomes of a connection with each packet are planted beside its law, in `test_statesync_program.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from statesync.programbench import Bench, built
from system import test_statesync_faults as faults
from system import test_statesync_messages as tests
from system import test_statesync_program as program
from system.sharing_ground import FULL, SILENT_S, Ends

from orchestrator.bench.state_sync.programs import Cluster
from orchestrator.bench.state_sync.syncworld import World
from orchestrator.statesync.kernel import Replicator
from orchestrator.statesync.states import Level, State

FED: dict[str, tuple[str, str, Callable[[Bench], None]]] = {
    "a COMMIT that overtakes its first phase is lost": (
        "if (!was_promised && message->flags & WANTS_CONFIRMATION) {",
        "if (!was_promised) {",
        tests.test_a_commit_that_overtakes_its_first_phase_is_stored_where_nobody_waits,
    ),
    "a COMMIT that nobody prepared is confirmed": (
        "COUNT(unprepared);\n			return false;",
        "COUNT(unprepared);\n			return true;",
        partial(
            tests.test_what_is_not_to_be_believed_is_counted_and_dropped,
            frame=tests.sent(tests.told(101, kind=tests.MessageKind.COMMIT, flags=tests.WANTS_CONFIRMATION)),
            counter="unprepared",
        ),
    ),
    "a first phase stores": (
        "return !bpf_map_update_elem(&prepared, &message->key, &word, BPF_ANY);",
        "return store(&message->key, word, now, true);",
        tests.test_a_transaction_is_stored_when_it_is_committed,
    ),
    "an older word overwrites": (
        "if (newer < 0 && !begins) {",
        "if (false) {",
        tests.test_an_older_version_changes_nothing,
    ),
    "a new life of a lower version never begins": (
        "bool begins = may_begin && ",
        "bool begins = false && ",
        partial(tests.test_a_new_life_begins_by_a_much_lower_version, state=State.SYN_RECEIVED),
    ),
    "a late closing ends what is newer": (
        "store(&batch->entries[i].key, word, now, false);",
        "store(&batch->entries[i].key, word | 1ULL << 40, now, false);",
        tests.test_a_late_closing_ends_no_newer_connection,
    ),
    "closings are not sealed": (
        "message->slot != mac_of_entries(batch, entries, settings)",
        "false",
        tests.test_closings_under_another_key_are_dropped,
    ),
    "a handshake on a closing entry is told as older than what others hold": (
        "packet->kind == SYN_ACK) && (__s32)",
        "after == STATE_OF(word)) && (__s32)",
        program.test_a_handshake_that_passes_on_a_closing_entry_has_a_version_above_all_before,
    ),
    "data overtakes a held ACK": (
        "if (word & PENDING && settings->synchronous && settings->waited) {",
        "if (false) {",
        partial(tests.test_data_that_overtakes_a_held_ack_is_held_too, level=Level.ESTABLISHED),
    ),
    "what is segmented later waits": (
        "return skb->len <= CARRIED_MOST && !skb->gso_size;",
        "return skb->len <= CARRIED_MOST;",
        tests.test_what_does_not_fit_behind_a_message_passes_and_the_next_packet_carries_it,
    ),
    "members are never told of what did not fit": (
        "if (!is_shared(settings, after) || (shared && !later && !fits(skb)))",
        "if (!is_shared(settings, after))",
        tests.test_what_does_not_fit_behind_a_message_passes_and_the_next_packet_carries_it,
    ),
    "a recorded confirmation frees a packet": (
        "!id || *taken != id || slot->phase != done",
        "!id || slot->phase != done",
        tests.test_a_confirmation_from_before_a_restart_frees_no_packet,
    ),
}
"""What is written in the program, what the mutant says there instead, and the test that must notice it."""


@pytest.mark.parametrize("name", FED)
def test_a_bug_in_what_members_hear_is_noticed(tmp_path: Path, name: str) -> None:
    old, new, test = FED[name]
    mutant = Bench(built(tmp_path, old, new))
    try:
        tests.hear_others(mutant)
        with pytest.raises(AssertionError):
            test(mutant)
    finally:
        mutant.kernel.close()


UNTOLD = {
    State.ESTABLISHED: (
        "return packet->kind == SYN_ACK && (__s64)(now - known->told) > (__s64)SECOND;",
        "return false;",
    ),
    State.FIN_WAIT: ("return kind == (from_opener ? SYN : SYN_ACK);", "return false;"),
}


@pytest.mark.parametrize("known", [State.ESTABLISHED, State.FIN_WAIT], ids=lambda each: each.name.lower())
def test_a_handshake_on_an_old_entry_that_is_not_told_is_noticed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: State
) -> None:
    """Every member of the cluster has the mutant."""
    mutant, real = built(tmp_path, *UNTOLD[known]), Replicator.new
    monkeypatch.setattr(Replicator, "new", lambda: real(mutant))
    world.via(1)
    with (
        Cluster(world, silent_s=SILENT_S, **FULL) as cluster,
        Ends.only(world) as ends,
        pytest.raises((AssertionError, OSError)),
    ):
        faults.test_ends_that_begin_anew_where_their_end_was_missed_cost_no_connection(
            cluster, world, ends, Level.FULL, known
        )
