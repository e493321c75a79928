"""The wait-for graph outside of collectives: sockets, pipes, locks and children, and the culprits it leads to."""

import msgspec
import pytest
from analysis.hang.scenes import LOCKED, MAIN, REDUCE, Scene, at, collective, names, own

from gconsole.analysis.hang.wait_for import circles
from gconsole.records import Connection, StackFrame, WaitTarget

RECV = (MAIN, at(12, "next_tokens"))
THREADING = "/usr/lib/python3.11/threading.py"


def to(rank, kind="pipe", **more):
    """A target that the process of another rank of the same node can end."""
    return (WaitTarget(kind=kind, direction="read", fd=5, pids=(100 + rank,), **more),)


def tcp(local, remote, **more):
    return (WaitTarget(kind="tcp", direction="read", fd=5, local=local, remote=remote, **more),)


class TestEdges:
    def test_rank_that_others_depend_on_through_a_chain_of_pipes_is_the_culprit(self):
        scene = Scene(per_node=4).rank(3, own("wait_for_licence", 9), syscall="clock_nanosleep")
        for rank in range(3):
            scene.rank(rank, RECV, syscall="read", waits_for=to(rank + 1))
        verdict = scene.verdict()
        assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "rank_missing", [(3, "sleep")])
        assert verdict.confidence == "certain"
        assert verdict.victims == (0, 1, 2)
        assert "Rank 0 waits for rank 1 (a pipe)" in verdict.summary

    def test_rank_waiting_for_another_rank_is_a_victim_beside_ranks_in_a_collective(self):
        scene = Scene(per_node=4, every_s=3.0).rank(0, REDUCE).rank(3, REDUCE)
        scene.rank(1, RECV, syscall="recvfrom", waits_for=to(2, "unix"))
        scene.rank(2, own("sieve", 7), state="R", wakes=3, syscall=None)
        verdict = scene.verdict()
        assert (verdict.state, names(verdict)) == ("hung", [(2, "compute")])
        assert verdict.victims == (0, 1, 3)

    def test_connection_to_another_node_leads_to_the_rank_that_holds_its_other_end(self):
        scene = Scene(per_node=1, world=2).rank(1, own("sieve", 7), syscall="clock_nanosleep")
        scene.rank(0, RECV, syscall="recvfrom", waits_for=tcp("10.0.0.1 5000", "10.0.0.2 6000"))
        judged = scene.judged()
        assert judged.missing.sockets == (("10.0.0.2 6000", "10.0.0.1 5000"),), "as the other node has it"
        scene.connections = (
            Connection(node="node2", capture="c", local="10.0.0.2 6000", remote="10.0.0.1 5000", pids=(101,)),
        )
        verdict = scene.verdict()
        assert (verdict.state, names(verdict)) == ("hung", [(1, "sleep")])
        assert "10.0.0.2:6000" in verdict.summary

    def test_connection_with_the_same_addresses_held_by_an_unrelated_process_is_no_edge(self):
        scene = Scene(per_node=1, world=2).rank(1, REDUCE)
        scene.rank(0, RECV, syscall="recvfrom", waits_for=tcp("10.0.0.1 5000", "10.0.0.9 80"))
        scene.connections = (
            Connection(node="node9", capture="c", local="10.0.0.9 80", remote="10.0.0.1 5000", pids=(4711,)),
        )
        assert names(scene.verdict()) == [(0, "network_io")]

    def controlled(self, *targets, **more):
        """Ranks 0 and 2-3 wait for a controller on node1 with pid 50, and rank 1 for something else."""
        scene = Scene(per_node=4).rank(
            1, own("score", 9), syscall="recvfrom", waits_for=tcp("10.0.0.1 9", "10.9.9.9 1")
        )
        for rank in (0, 2, 3):
            wait = WaitTarget(kind="unix", direction="read", fd=4, pids=(50,))
            scene.rank(rank, RECV, syscall="recvfrom", waits_for=(wait,))
        if targets:
            scene.peer(50, own("control", 4), waits_for=targets, **more)
        return scene

    def test_process_outside_of_the_job_that_ranks_wait_for_is_to_be_read(self):
        assert self.controlled().judged().missing.peers == (("node1", 50),)

    def test_rank_that_the_controller_waits_for_is_the_culprit(self):
        scene = self.controlled(WaitTarget(kind="unix", direction="read", fd=7, pids=(101,)), syscall="epoll_wait")
        verdict = scene.verdict()
        assert (verdict.state, names(verdict), verdict.victims) == ("hung", [(1, "network_io")], (0, 2, 3))
        assert "Ranks 0,2-3 wait for rank 1 (process 50 on node1)" in verdict.summary
        assert any("held by process 50 on node1, which waits for rank 1" in line for line in verdict.evidence)

    def test_controller_that_polls_the_connections_of_all_ranks_leads_to_none_of_them(self):
        ends = [WaitTarget(kind="unix", direction="read", fd=7 + rank, pids=(100 + rank,)) for rank in range(4)]
        verdict = self.controlled(*ends, syscall="epoll_wait").verdict()
        assert (names(verdict), verdict.state, verdict.stalled) == ([], "undecided", True)
        assert "Ranks 0,2-3 wait for process 50 on node1, not part of the job".lower() in verdict.summary.lower()
        assert verdict.next_step.startswith("check rank 1 first")

    def test_server_that_accepts_connections_leads_to_no_rank(self):
        ends = (WaitTarget(kind="unix", direction="read", pids=(101,)), WaitTarget(kind="listener", direction="read"))
        assert names(self.controlled(*ends, syscall="epoll_wait").verdict()) == []

    def test_controller_that_computes_is_named_and_the_job_does_not_stand_still(self):
        scene = self.controlled(WaitTarget(kind="event", direction="read"), state="R", syscall=None)
        scene.stacks = [stack for stack in scene.stacks if stack.rank != 1]
        scene.ranks = [rank for rank in scene.ranks if rank.rank != 1]
        scene.rank(1, RECV, syscall="recvfrom", waits_for=(WaitTarget(kind="unix", direction="read", pids=(50,)),))
        verdict = scene.verdict()
        assert (names(verdict), verdict.stalled) == ([], False)
        assert "process 50 on node1, not part of the job: it computes in train.py:4 control" in verdict.summary

    def test_other_end_held_by_a_child_of_the_same_rank_is_no_edge(self):
        scene = Scene(per_node=4).rank(0, REDUCE).rank(2, REDUCE).rank(3, REDUCE)
        scene.rank(1, RECV, syscall="read", waits_for=(WaitTarget(kind="pipe", direction="read", pids=(901,)),))
        scene.child(1, own("tokenize", 3), role="child")
        assert names(scene.verdict()) == [(1, "file_io")]

    def test_child_of_another_rank_stands_for_that_rank(self):
        scene = Scene(per_node=4, every_s=3.0).rank(0, REDUCE).rank(2, REDUCE)
        scene.rank(3, own("sieve", 4), state="R", wakes=1)
        scene.rank(1, RECV, syscall="read", waits_for=(WaitTarget(kind="pipe", direction="read", pids=(903,)),))
        scene.child(3, own("tokenize", 3), role="child")
        assert names(scene.verdict()) == [(3, "compute")]

    def test_what_the_worker_of_a_rank_waits_for_is_what_the_rank_waits_for(self):
        loader = (
            MAIN,
            StackFrame("_next_data", "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"),
        )
        scene = Scene(per_node=4, every_s=3.0).rank(0, REDUCE).rank(2, REDUCE).rank(1, loader, syscall="poll")
        scene.rank(3, own("sieve", 4), state="R", wakes=1)
        scene.child(1, own("fetch", 3), syscall="recvfrom", waits_for=to(3, "unix"))
        assert names(scene.verdict()) == [(3, "compute")]

    def test_a_lock_is_waited_for_until_its_holder_lets_go(self):
        scene = Scene(per_node=4).rank(0, own("build", 5), syscall="recvfrom").rank(2, REDUCE).rank(3, REDUCE)
        lock = WaitTarget(kind="file", direction="lock", path="/var/tmp/lock", pids=(100,))
        scene.rank(1, own("build", 4), syscall="flock", waits_for=(lock,))
        verdict = scene.verdict()
        assert names(verdict) == [(0, "network_io")]
        assert "a lock on /var/tmp/lock" in verdict.summary

    def test_rank_that_no_other_rank_waits_for_is_not_named(self):
        scene = Scene(per_node=4).rank(0, RECV, syscall="read", waits_for=to(1))
        scene.rank(1, own("wait_for_licence", 9), syscall="clock_nanosleep")
        scene.rank(2, own("idle", 3), syscall="clock_nanosleep").rank(3, own("idle", 3), syscall="clock_nanosleep")
        assert names(scene.verdict()) == [(1, "sleep")]


class TestDeadlocks:
    def test_two_ranks_that_read_from_each_other_are_a_deadlock(self):
        scene = Scene(per_node=2, world=2)
        for rank in range(2):
            scene.rank(rank, RECV, syscall="recvfrom", waits_for=to(1 - rank, "unix"))
        verdict = scene.verdict()
        assert (verdict.state, verdict.kind) == ("hung", "wait_cycle")
        assert names(verdict) == [(0, "network_io"), (1, "network_io")]

    def test_rank_that_waits_outside_of_the_collective_for_one_inside_is_named(self):
        scene = Scene(per_node=4).rank(0, REDUCE).rank(2, REDUCE).rank(3, REDUCE)
        scene.rank(1, RECV, syscall="recvfrom", waits_for=to(0, "unix"))
        verdict = scene.verdict()
        assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "wait_cycle", [(1, "network_io")])
        assert "all_reduce" in verdict.summary

    def test_ranks_behind_a_deadlock_are_victims(self):
        scene = Scene(per_node=4)
        for rank, other in ((0, 1), (1, 0), (2, 0), (3, 2)):
            scene.rank(rank, RECV, syscall="recvfrom", waits_for=to(other, "unix"))
        verdict = scene.verdict()
        assert verdict.kind == "wait_cycle"
        assert [rank for rank, _ in names(verdict)] == [0, 1]
        assert verdict.victims == (2, 3)

    def test_server_that_also_listens_is_no_deadlock(self):
        scene = Scene(per_node=2, world=2).rank(0, RECV, syscall="recvfrom", waits_for=to(1, "unix"))
        targets = (*to(0, "unix"), WaitTarget(kind="listener", direction="read", local="0.0.0.0 80"))
        scene.rank(1, own("serve", 5), syscall="epoll_wait", waits_for=targets)
        verdict = scene.verdict()
        assert verdict.kind != "wait_cycle" and names(verdict) == []

    @pytest.mark.parametrize(
        ("waits", "expected"),
        [
            ({}, ()),
            ({0: {1}, 1: {2}}, ()),
            ({0: {1}, 1: {0}}, ((0, 1),)),
            ({0: {1}, 1: {0, 2}, 2: set()}, ()),
            ({0: {1}, 1: {2}, 2: {0}, 3: {0}}, ((0, 1, 2),)),
            ({0: {1}, 1: {0}, 2: {3}, 3: {2}}, ((0, 1), (2, 3))),
            ({0: {0}}, ()),
        ],
        ids=["no edges", "chain", "pair", "pair with a way out", "ring with a follower", "two pairs", "itself"],
    )
    def test_circles_are_closed_sets_of_ranks_that_wait_for_each_other(self, waits, expected):
        assert circles({rank: frozenset(others) for rank, others in waits.items()}) == expected

    def test_long_chain_does_not_exhaust_the_stack(self):
        chain = {rank: frozenset({rank + 1}) for rank in range(20_000)}
        assert circles(chain | {20_000: frozenset({0})}) == (tuple(range(20_001)),)


class TestBackgroundThreads:
    """Main threads that wait for a thread of their own process, which waits for another rank."""

    def negotiating(self, main=LOCKED, threads=(("negotiation", RECV),), targets=to, **more):
        """Ranks 0-2 wait so for the next rank, and rank 3 sleeps."""
        scene = Scene(per_node=4).rank(3, own("wait_for_licence", 9), syscall="clock_nanosleep")
        for rank in range(3):
            scene.rank(rank, main, threads=threads, wakes=90, **more)
        scene.stacks = [
            msgspec.structs.replace(
                stack, waits_for=targets(stack.rank + 1), thread_state="S", thread_syscall="read", thread_slept_s=9.0
            )
            if stack.frames == RECV
            else stack
            for stack in scene.stacks
        ]
        return scene

    @pytest.mark.parametrize(
        ("main", "syscall"), [(LOCKED, "futex"), (own("poll", 7), "clock_nanosleep")], ids=["event", "sleeping loop"]
    )
    def test_rank_that_the_background_threads_wait_for_is_the_culprit(self, main, syscall):
        verdict = self.negotiating(main, syscall=syscall).verdict()
        assert (verdict.state, verdict.kind, names(verdict)) == ("hung", "rank_missing", [(3, "sleep")])
        assert verdict.victims == (0, 1, 2)
        assert "Rank 0 waits for rank 1 (a pipe)" in verdict.summary

    def test_connections_of_background_threads_are_asked_for(self):
        scene = self.negotiating(targets=lambda rank: tcp(f"10.0.0.1 {rank}", "10.0.0.2 6000"))
        assert ("10.0.0.2 6000", "10.0.0.1 1") in scene.judged().missing.sockets

    def test_thread_of_a_library_that_the_main_thread_is_not_in_is_not_waited_for(self):
        pings = (StackFrame("ping", "/opt/venv/lib/python3.11/site-packages/tracker/client.py", 3),)
        scene = self.negotiating(threads=(("pings", pings),))
        scene.stacks = [
            msgspec.structs.replace(stack, waits_for=to(stack.rank + 1)) if stack.frames == pings else stack
            for stack in scene.stacks
        ]
        assert scene.verdict().victims == ()

    def test_main_thread_may_wait_for_another_thread_that_works(self):
        scene = self.negotiating(threads=(("negotiation", RECV), ("decoder", own("decode", 5))))
        scene.stacks = [
            msgspec.structs.replace(stack, thread_state="R") if stack.thread_name == "decoder" else stack
            for stack in scene.stacks
        ]
        verdict = scene.verdict()
        assert (names(verdict), verdict.victims) == ([], ())


class TestNoCulprit:
    def test_service_without_requests_is_not_an_error(self):
        scene = Scene(per_node=4)
        for rank in range(4):
            listener = WaitTarget(kind="listener", direction="read", local="0.0.0.0 80")
            scene.rank(rank, own("serve", 5), syscall="accept4", waits_for=(listener,))
        verdict = scene.verdict()
        assert (verdict.state, verdict.stalled, names(verdict)) == ("undecided", False, [])
        assert "wait for requests" in verdict.summary

    def test_service_whose_ranks_wait_for_the_one_with_the_clients_is_not_an_error(self):
        listener = WaitTarget(kind="listener", direction="read", local="0.0.0.0 80")
        scene = Scene().rank(0, own("serve", 5), syscall="accept4", waits_for=(listener,))
        for rank in (1, 2, 3):
            scene.rank(rank, collective("broadcast", 12))
        verdict = scene.verdict()
        assert (verdict.state, verdict.stalled, names(verdict)) == ("undecided", False, [])
        assert "rank 0 waits for requests, and ranks 1-3 wait for it in broadcast" in verdict.summary

    def test_rank_that_also_listens_is_no_service_where_the_others_exchange_data_of_their_own(self):
        """As where a rank collects rollouts through an event loop in which a server runs, too."""
        listener = WaitTarget(kind="listener", direction="read", local="0.0.0.0 80")
        scene = Scene().rank(0, own("collect", 5), syscall="epoll_wait", waits_for=(listener,))
        for rank in (1, 2, 3):
            scene.rank(rank, collective("all_reduce", 12))
        verdict = scene.verdict()
        assert verdict.stalled
        assert "no action needed" not in verdict.next_step

    def test_late_rank_of_a_training_job_that_serves_its_figures_is_named(self):
        listener = WaitTarget(kind="listener", direction="read", local="0.0.0.0 80")
        scene = Scene().rank(0, LOCKED, threads=[("metrics", own("serve", 5))])
        scene.stacks = [
            msgspec.structs.replace(stack, waits_for=(listener,)) if stack.thread_name == "metrics" else stack
            for stack in scene.stacks
        ]
        for rank in (1, 2, 3):
            scene.rank(rank, collective("broadcast", 12))
        assert (scene.verdict().state, names(scene.verdict())) == ("hung", [(0, "python_lock")])

    def test_ranks_that_listen_and_wait_for_each_other_are_no_service(self):
        scene = Scene(per_node=4)
        listener = WaitTarget(kind="listener", direction="read", local="0.0.0.0 80")
        for rank in range(4):
            scene.rank(rank, own("relay", 5), syscall="epoll_wait", waits_for=(listener, *to((rank + 1) % 4, "unix")))
        verdict = scene.verdict()
        assert (verdict.state, verdict.stalled, names(verdict)) == ("undecided", True, [])
        assert "no action needed" not in verdict.next_step

    def test_server_threads_of_a_rank_that_polls_lead_to_none_of_its_clients(self):
        scene = Scene(per_node=4)
        handlers = [(f"client {rank}", own("answer", 7)) for rank in (1, 2, 3)]
        scene.rank(0, own("poll", 9), syscall="clock_nanosleep", wakes=2, threads=handlers)
        ends = {name: to(number) for number, (name, _) in enumerate(handlers, 1)}
        scene.stacks = [
            msgspec.structs.replace(stack, waits_for=ends[stack.thread_name]) if stack.thread_name in ends else stack
            for stack in scene.stacks
        ]
        for rank in (1, 2):
            scene.rank(rank, own("poll", 9), syscall="clock_nanosleep", wakes=2)
        scene.rank(3, LOCKED)
        assert names(scene.verdict()) in ([], [(3, "python_lock")])

    def test_service_that_listens_in_another_thread_is_not_an_error(self):
        scene = Scene(per_node=4)
        listener = WaitTarget(kind="listener", direction="read", local="0.0.0.0 80")
        for rank in range(4):
            scene.rank(rank, LOCKED, threads=[("http", own("serve", 5))])
        scene.stacks = [
            msgspec.structs.replace(stack, waits_for=(listener,)) if stack.thread_name == "http" else stack
            for stack in scene.stacks
        ]
        verdict = scene.verdict()
        assert (verdict.state, verdict.stalled) == ("undecided", False)
        assert "wait for requests" in verdict.summary

    def test_metrics_server_in_a_thread_does_not_excuse_a_rank_that_others_wait_for(self):
        scene = Scene(per_node=4).rank(3, own("wait_for_licence", 9), syscall="clock_nanosleep")
        for rank in range(3):
            scene.rank(rank, RECV, syscall="read", waits_for=to(rank + 1))
        listener = WaitTarget(kind="listener", direction="read", local="0.0.0.0 9090")
        metrics = [
            msgspec.structs.replace(stack, thread_name="metrics", thread_id=9, os_thread_id=999, waits_for=(listener,))
            for stack in scene.stacks
        ]
        scene.stacks += metrics
        verdict = scene.verdict()
        assert (verdict.state, names(verdict)) == ("hung", [(3, "sleep")])

    def test_job_whose_ranks_all_wait_in_their_own_process_is_stalled(self):
        scene = Scene(per_node=4)
        for rank in range(4):
            scene.rank(rank, LOCKED)
        assert scene.verdict().stalled

    def test_job_that_waits_for_outsiders_in_all_ranks_is_stalled(self):
        scene = Scene(per_node=4)
        for rank in range(4):
            scene.rank(rank, RECV, syscall="recvfrom", waits_for=tcp("10.0.0.1 1", "10.9.9.9 80"))
        verdict = scene.verdict()
        assert (verdict.state, verdict.stalled, names(verdict)) == ("undecided", True, [])

    def test_job_in_which_all_ranks_sleep_is_not_stalled(self):
        scene = Scene(per_node=4)
        for rank in range(4):
            scene.rank(rank, own("wait_for_window", 5), syscall="clock_nanosleep")
        assert not scene.verdict().stalled

    def test_rank_that_receives_data_is_busy_and_not_hung(self):
        scene = Scene(per_node=4, looks=0).rank(0).rank(1).rank(2).rank(3)
        scene.looks = 14
        for look in range(14):
            for rank in (0, 2, 3):
                scene._look(rank, look, REDUCE)
            targets = tcp("127.0.0.1 1", "127.0.0.1 2", moved_bytes=1000 * look)
            scene._look(1, look, RECV, syscall="recvfrom", wakes=2, waits_for=targets)
        verdict = scene.verdict()
        assert (verdict.state, names(verdict)) == ("slow", [])
        assert "Rank 1 made progress meanwhile" in verdict.summary

    def test_stall_no_longer_than_twice_a_pause_from_which_the_job_recovered_is_undecided(self):
        scene = Scene(per_node=4).rank(0, REDUCE).rank(2, REDUCE).rank(3, REDUCE).rank(1, LOCKED)
        assert scene.verdict().state == "hung"
        scene.longest_pause_s = 10.0
        judged = scene.judged()
        assert (judged.verdict.state, names(judged.verdict)) == ("undecided", [])
        assert judged.missing.more_s == pytest.approx(15.0 - 5.5)


class TestPolling:
    ALLREDUCE = ("PMPI_Allreduce", "ompi_coll_base_allreduce_intra_recursivedoubling", "sched_yield")

    def scene(self):
        made = Scene(per_node=4, looks=14).rank(2, own("load_mesh", 6), syscall="openat")
        for rank in (0, 1, 3):
            made.rank(rank, own("train", 8), state="R", syscall=None, wakes=4)
        return made

    def test_native_frames_are_asked_for_where_all_others_may_poll_for_a_rank_that_sleeps(self):
        missing = self.scene().judged().missing
        assert missing.may_spin and len(missing.native) == 1

    def test_ranks_that_poll_in_mpi_wait_for_the_rank_that_sleeps(self):
        made = self.scene()
        for rank in (0, 1, 3):
            made.native(rank, own("train", 8), self.ALLREDUCE)
        verdict = made.verdict()
        assert (verdict.state, names(verdict), verdict.victims) == ("hung", [(2, "file_io")], (0, 1, 3))

    def test_ranks_that_compute_are_not_taken_for_waiting(self):
        made = self.scene()
        for rank in (0, 1, 3):
            made.native(rank, own("train", 8), ("at::native::addmm", "mkl_blas_sgemm"))
        assert names(made.verdict()) == []


class TestThreads:
    def worker(self, *frames):
        return ("trainer", (StackFrame("run", THREADING, 975), at(20, "train"), *frames))

    def test_thread_that_communicates_is_judged_in_place_of_the_main_thread(self):
        joins = (MAIN, StackFrame("join", THREADING, 1100))
        scene = Scene(per_node=4)
        for rank in (0, 1, 3):
            scene.rank(rank, joins, threads=[self.worker(*REDUCE[2:])])
        sleeping = self.worker(at(31, "rebalance"))
        scene.rank(2, joins, threads=[sleeping], thread_syscall="clock_nanosleep", thread_state="S", thread_slept_s=9.0)
        verdict = scene.verdict()
        assert (verdict.state, names(verdict)) == ("hung", [(2, "sleep")])

    def test_main_thread_that_polls_does_not_hide_the_thread_that_trains(self):
        polls = (MAIN, at(50, "watch"))
        scene = Scene(per_node=4)
        for rank in (0, 1, 3):
            scene.rank(rank, polls, syscall="clock_nanosleep", wakes=1, threads=[self.worker(*REDUCE[2:])],
                       thread_state="S", thread_slept_s=9.0)  # fmt: skip
        scene.rank(2, polls, syscall="clock_nanosleep", wakes=1, threads=[self.worker(at(31, "rebalance"))],
                   thread_state="S", thread_syscall="recvfrom", thread_slept_s=9.0)  # fmt: skip
        verdict = scene.verdict()
        assert (verdict.state, names(verdict)) == ("hung", [(2, "network_io")])

    def test_one_look_suffices_where_the_kernel_tells_how_long_threads_slept(self):
        scene = Scene(per_node=4, looks=2, every_s=0.3)
        for rank in (0, 2, 3):
            scene.rank(rank, REDUCE, thread_state="S", thread_slept_s=40.0)
        scene.rank(1, LOCKED, thread_state="S", thread_slept_s=39.0)
        verdict = scene.verdict()
        assert (verdict.state, names(verdict)) == ("hung", [(1, "python_lock")])
        assert "≥ 40 s" in verdict.summary


GRPC = "/opt/venv/lib/python3.11/site-packages/grpc/_channel.py"
HANDLER = (StackFrame("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 83), at(20, "lookup"))
IDLE = (
    StackFrame("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 81),
    StackFrame("get", "/usr/lib/python3.11/queue.py", 171),
)


class TestIoThreads:
    """Libraries such as ZeroMQ and gRPC have their sockets in threads of their own."""

    def test_rank_that_polls_an_event_waits_for_what_the_io_threads_wait_for(self):
        scene = Scene(per_node=4).rank(0, own("load_shard", 9), syscall="openat", waits_for=file("/data/7"))
        for rank in (1, 2, 3):
            scene.rank(rank, RECV, syscall="poll", waits_for=EVENT, native_waits=to(0, "tcp", remote="10.0.0.1 9"))
        verdict = scene.verdict()
        assert (verdict.state, names(verdict), verdict.victims) == ("hung", [(0, "file_io")], (1, 2, 3))

    def test_rank_in_a_lock_of_a_library_waits_for_its_io_threads_although_it_wakes_up(self):
        call = (MAIN, at(12, "pull"), StackFrame("_blocking", GRPC, 1162), StackFrame("wait", THREADING, 331))
        scene = Scene(per_node=4).rank(0, own("load_shard", 9), syscall="openat", waits_for=file("/data/7"))
        for rank in (1, 2, 3):
            ends = to(0, "tcp", remote="10.0.0.1 9", moved_bytes=700)
            scene.rank(rank, call, wakes=3, native_waits=ends)
        assert names(scene.verdict()) == [(0, "file_io")]

    def test_bytes_over_these_connections_are_progress(self):
        call = (MAIN, at(12, "pull"), StackFrame("_blocking", GRPC, 1162), StackFrame("wait", THREADING, 331))
        scene = Scene(per_node=4, looks=12)
        for rank in range(4):
            scene.ranks.append(scene._rank(rank))
            for look in range(12):
                ends = to((rank + 1) % 4, "tcp", remote="10.0.0.1 9", moved_bytes=700 * look)
                scene._look(rank, look, call, state="S", syscall="futex", wakes=3, native_waits=ends)
        assert scene.verdict().state == "moving"

    def test_lock_of_the_job_itself_has_no_edge_through_io_threads(self):
        scene = Scene(per_node=4).rank(0, REDUCE).rank(2, REDUCE).rank(3, REDUCE)
        scene.rank(1, LOCKED, native_waits=to(0, "tcp", remote="10.0.0.1 9"))
        assert names(scene.verdict()) == [(1, "python_lock")]

    def test_rank_that_sleeps_again_and_again_polls_the_memory_that_it_shares(self):
        memory = WaitTarget(kind="memory", path="/dev/shm/ring", pids=(100, 101, 102, 103))
        scene = Scene(per_node=4).rank(1, own("tokenize", 9), syscall="openat", waits_for=file("/data/7"))
        for rank in (0, 2, 3):
            scene.rank(rank, own("acquire", 4), syscall="clock_nanosleep", wakes=90, native_waits=(memory,))
        verdict = scene.verdict()
        assert (verdict.state, names(verdict)) == ("hung", [(1, "file_io")])
        assert "shared memory, /dev/shm/ring" in verdict.summary

    def test_ranks_that_all_sleep_again_and_again_beside_shared_memory_do_not_wait_for_each_other(self):
        memory = WaitTarget(kind="memory", path="/dev/shm/ring", pids=(100, 101, 102, 103))
        idle = to(3, "tcp", remote="10.0.0.1 9", moved_bytes=0)
        scene = Scene(per_node=4)
        for rank in range(4):
            scene.rank(rank, own("train", 4), syscall="clock_nanosleep", wakes=25, native_waits=(memory, *idle))
        verdict = scene.verdict()
        assert (verdict.state in ("moving", "undecided"), names(verdict), verdict.stalled) == (True, [], False)


class TestHandlers:
    """The thread of a server that must answer, where the main thread only waits."""

    @staticmethod
    def served(*threads, **more):
        """Ranks 1 to 3 wait for rank 0, whose main thread waits for its server to end."""
        main = (MAIN, at(31, "serve"), StackFrame("wait", THREADING, 331))
        scene = Scene(per_node=4).rank(0, main, threads=threads, thread_state="S", thread_slept_s=9.0, **more)
        for rank in (1, 2, 3):
            scene.rank(rank, RECV, syscall="recvfrom", waits_for=to(0, "unix"))
        return scene.verdict()

    def test_handler_in_the_code_of_the_job_is_where_the_rank_is(self):
        verdict = self.served(("worker_0", HANDLER), ("worker_1", IDLE))
        assert (verdict.state, verdict.culprits[0].rank, verdict.culprits[0].site.function) == ("hung", 0, "lookup")

    def test_several_handlers_at_different_places_leave_it_at_the_main_thread(self):
        verdict = self.served(("worker_0", HANDLER), ("worker_1", (at(3, "flush"),)))
        assert [(culprit.rank, culprit.class_) for culprit in verdict.culprits] == [(0, "python_lock")]


EVENT = (WaitTarget(kind="event", direction="read", fd=9),)


def file(path):
    return (WaitTarget(kind="file", direction="any", path=path),)
