#!/usr/bin/env python3
"""scripts/slurm on a real Slurm of four virtual nodes, which the test starts and ends itself (cluster.py).

Exit code 4, with one sentence, where no cluster can be started. Environment: DTORCH_BIN_DIR, DTORCH_SOURCE_DIR.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cluster  # noqa: E402

SOURCE = pathlib.Path(os.environ.get("DTORCH_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
APP = pathlib.Path(os.environ.get("DTORCH_BIN_DIR", SOURCE / "build/bin")) / "dtorch_app"
SKIPPED = 4
JOB_S = 240  # a machine that others use too
MODEL = ["--dim", "32", "--layers", "2", "--heads", "2", "--kv-heads", "2", "--length", "32", "--batch", "12", "--log-every", "1000",
         "--validation-share", "0"]
THREE_NODES = ["-N", "3", "--nodelist", "node1,node2,node3"]
RECOVERY_STEPS = "300"
CONSTANT_RATE = ["--lr-schedule", "constant"]  # doesn't depend on the number of steps
LAYOUT = ["--devices", "6", "--dp", "3", "--tp", "2"]
# Put before the program on every rank (DTORCH_CONTAINER): notes where the rank runs. So many steps have no end; after a
# restart they are made 20 more than were saved, so that what a test interrupts is under way however fast the machine is.
ENOUGH = "987654321"
WRAPPER = """#!/bin/bash
[ "$2" = supervise ] && exec "$@"
rank=${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}
echo "$rank $(hostname) $(nproc)" > "$PLACES/$rank.$$"
attempt=${DTORCH_SUPERVISED##* }
enough=987654321
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || [ "${attempt:-1}" -gt 1 ]; then
  saved=$(ls "$DTORCH_RUN" | sed -n 's/^step-0*\\([0-9]*\\)$/\\1/p' | sort -n | tail -n 1)
  enough=$((saved + 20))
fi
exec "${@/#987654321/$enough}"
"""


def losses(path):
    """Step -> loss of a metrics file; a step that was done twice counts as done last."""
    return {line["step"]: line["loss"] for line in map(json.loads, pathlib.Path(path).read_text().splitlines())}


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="dtorch_slurm_"))
        cls.cluster = cluster.Cluster(cls.folder / "cluster", 4)
        cls.addClassCleanup(cls.cluster.stop)
        text = cls.folder / "text.txt"
        text.write_text("".join(f"line {i * 7919 % 1000} of a small text.\n" for i in range(2000)))
        cls.data = cls.folder / "text.h5"
        cluster.run(APP, "prepare", "--text", text, "--out", cls.data)
        container = cls.folder / "wrapper"
        container.write_text(WRAPPER)
        container.chmod(0o755)
        cls.expected = cls.plain_losses("30")

    @classmethod
    def plain_losses(cls, steps, *more):
        """Losses of the same training under plain mpirun on this machine."""
        metrics = cls.folder / f"plain{steps}{''.join(more)}.jsonl"
        done = subprocess.run(
            ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", APP, "train", "--data", cls.data, *MODEL, *LAYOUT,
             "--steps", steps, "--metrics", metrics, *more], capture_output=True, text=True,
            env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
        assert done.returncode == 0, done.stdout + done.stderr
        return losses(metrics)

    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(dir=self.folder, prefix=self.id().split(".")[-1]))

    def submit(self, script, sbatch_options, arguments, **env):
        places = self.scratch / "places"
        places.mkdir(exist_ok=True)
        env = {"DTORCH_HOME": str(SOURCE), "DTORCH_APP": str(APP), "DTORCH_RUN": str(self.scratch / "run"), "PLACES": str(places),
               "DTORCH_CONTAINER": str(self.folder / "wrapper"), "DTORCH_SUPERVISE": "1", **env}
        env = {name: value for name, value in env.items() if value is not None}
        return self.cluster.submit("--chdir", self.scratch, *sbatch_options, SOURCE / "scripts/slurm" / script, *arguments, env=env)

    def output(self):
        return "".join(f"--- {path.name}\n{path.read_text()[-20000:]}" for path in sorted(self.scratch.glob("*.out")))

    def places(self):
        """Rank -> (host, cores that it may use)."""
        notes = [path.read_text().split() for path in (self.scratch / "places").iterdir()]
        return {int(rank): (host, int(cores)) for rank, host, cores in notes}

    def assert_completes(self, job):
        said = self.cluster.wait(job, JOB_S)
        self.assertEqual((said["JobState"], said["ExitCode"]), ("COMPLETED", "0:0"), self.output())
        return said

    def assert_placed(self, nodes):
        """Rank 0 and one Sub-Controller on the first node, one on each other, every one with all cores."""
        expected = {rank: nodes[max(0, rank - 1)] for rank in range(len(nodes) + 1)}
        places = self.places()
        self.assertEqual({rank: host for rank, (host, _) in places.items()}, expected, self.output())
        self.assertEqual({cores for _, cores in places.values()}, {min(2, os.cpu_count())}, "cores of a rank")

    def train_arguments(self, steps="30"):
        return ["--data", self.data, *MODEL, *LAYOUT, "--steps", steps]

    def test_every_launcher_places_one_rank_more_than_nodes_and_gives_the_losses_of_plain_mpirun(self):
        for launcher in ["mpirun", "srun"]:
            with self.subTest(launcher):
                self.setUp()
                job = self.submit("train.sbatch", THREE_NODES, self.train_arguments(), DTORCH_LAUNCHER=launcher)
                self.assert_completes(job)
                self.assert_placed(["node1", "node2", "node3"])
                self.assertEqual(losses(self.scratch / "run/metrics.jsonl"), self.expected)

    def test_without_a_supervisor_it_is_the_same(self):
        for launcher in ["mpirun", "srun"]:
            with self.subTest(launcher):
                self.setUp()
                job = self.submit("train.sbatch", THREE_NODES, self.train_arguments("3"), DTORCH_LAUNCHER=launcher,
                                  DTORCH_SUPERVISE="0")
                self.assert_completes(job)
                self.assert_placed(["node1", "node2", "node3"])
                self.assertEqual(losses(self.scratch / "run/metrics.jsonl"), {s: self.expected[s] for s in range(3)})

    def test_any_shape_of_allocation_places_the_same(self):
        shapes = {
            "one node": (["-N", "1", "--nodelist", "node1"], ["node1"]),
            "several tasks and cores on some nodes": (["-n", "5", "--nodelist", "node2,node3,node4", "-N", "3", "--ntasks-per-node=2"],
                                                      ["node2", "node3", "node4"]),
            "nodes with a gap, two cores a task": (["-N", "3", "-c", "2", "--nodelist", "node1,node3,node4"],
                                                   ["node1", "node3", "node4"]),
            "all nodes, tasks before nodes": (["-N", "4", "-n", "4", "-m", "cyclic"], ["node1", "node2", "node3", "node4"]),
        }
        for name, (options, nodes) in shapes.items():
            for launcher in ["mpirun", "srun"]:
                with self.subTest(name, launcher=launcher):
                    self.setUp()
                    self.assert_completes(self.submit("train.sbatch", options, self.train_arguments("3"), DTORCH_LAUNCHER=launcher))
                    self.assert_placed(nodes)
                    self.assertEqual(losses(self.scratch / "run/metrics.jsonl"), {s: self.expected[s] for s in range(3)})

    def test_an_array_trains_every_line_of_its_sweep(self):
        sweep = self.scratch / "sweep.txt"
        sweep.write_text("--seed 1\n--seed 2\n--seed 3 --lr 1e-3\n--seed 4\n")
        job = self.submit("array.sbatch", ["--array=0-3"], [sweep, *self.train_arguments("3")], DTORCH_RUN=None)
        runs = {}
        for task in range(4):
            self.assert_completes(f"{job}_{task}")
            runs[task] = losses(self.scratch / f"runs/slurm-{job}_{task}/metrics.jsonl")
        for task, line in enumerate(sweep.read_text().splitlines()):
            options = line.split()
            self.assertEqual(runs[task], self.plain_losses("3", *options), line)

    def test_tasks_of_an_array_never_share_a_folder(self):
        sweep = self.scratch / "sweep.txt"
        sweep.write_text("--seed 1\n--seed 2\n")
        job = self.submit("array.sbatch", ["--array=0-1"], [sweep, *self.train_arguments("3")])
        for task in range(2):
            self.assert_completes(f"{job}_{task}")
            self.assertEqual(losses(self.scratch / f"run/{task}/metrics.jsonl"), self.plain_losses("3", "--seed", str(task + 1)))
            self.assertTrue(list((self.scratch / f"run/{task}").glob("step-*/manifest.json")))
        for script, first in [("array.sbatch", [sweep]), ("train.sbatch", [])]:
            with self.subTest(script):
                job = self.submit(script, ["--array=0"], [*first, *self.train_arguments("3"), "--checkpoint-dir", self.scratch / "all"])
                said = self.cluster.wait(f"{job}_0", JOB_S)
                self.assertEqual((said["JobState"], said["ExitCode"]), ("FAILED", "1:0"), self.output())
                self.assertIn("would write to the same --checkpoint-dir", self.output())

    def test_a_time_limit_saves_requeues_and_ends_with_the_losses_of_an_undisturbed_run(self):
        # Slurm looks every 30 s, and sends its signal early rather than late: here half a minute to a minute after the start.
        job = self.submit("train.sbatch", [*THREE_NODES, "--time=2", "--signal=B:USR1@60"],
                          [*self.train_arguments(ENOUGH), *CONSTANT_RATE])
        said = self.assert_completes(job)
        self.assertGreaterEqual(int(said["Restarts"]), 1, self.output())
        self.assertIn("asked to stop", self.output())
        found = losses(self.scratch / "run/metrics.jsonl")
        self.assertGreater(len(found), 20, "the restart went on from what was saved")
        self.assertEqual(found, self.plain_losses(str(len(found)), *CONSTANT_RATE))

    def test_generate_continues_a_prompt_on_the_nodes(self):
        self.assert_completes(self.submit("train.sbatch", ["-N", "2"], self.train_arguments("3")))
        self.assert_completes(self.submit("generate.sbatch", ["-N", "2"], [
            "--checkpoint", self.scratch / "run", "--prompt", "line 7", "--tokens", "4", "--temperature", "0"]))
        self.assertIn("line 7", self.output())

    def test_a_script_that_does_not_find_the_program_says_what_to_set(self):
        for wrong, says in [({"DTORCH_HOME": str(self.scratch)}, "or set DTORCH_HOME"), ({"DTORCH_APP": "/nowhere/app"}, "or DTORCH_APP")]:
            with self.subTest(says):
                job = self.submit("train.sbatch", ["-N", "1"], [], **wrong)
                said = self.cluster.wait(job, JOB_S)
                self.assertEqual((said["JobState"], said["ExitCode"]), ("FAILED", "1:0"))
                self.assertIn(says, self.output())

    def test_a_library_that_is_missing_on_one_node_is_one_sentence(self):
        library = next(line.split()[2] for line in cluster.run("ldd", APP).splitlines() if "libhdf5" in line)
        self.cluster.on_node("node2", "mount", "--bind", "/dev/null", os.path.realpath(library))
        self.addCleanup(self.cluster.on_node, "node2", "umount", os.path.realpath(library))
        # On a busy machine Open MPI's own daemon may fail to start there, which is told as such.
        for _ in range(3):
            job = self.submit("train.sbatch", THREE_NODES, self.train_arguments("3"))
            said = self.cluster.wait(job, 60)
            self.assertEqual((said["JobState"], said["ExitCode"]), ("FAILED", "1:0"), self.output())
            if "An ORTE daemon has unexpectedly failed" not in self.output():
                break
            self.setUp()
        self.assertIn("the program doesn't start on host node2", self.output())
        self.assertIn("error while loading shared libraries", self.output())

    def test_the_check_of_a_job_sees_every_node_and_what_differs(self):
        script = self.scratch / "check.sbatch"
        script.write_text('#!/bin/bash\n. "$DTORCH_HOME/scripts/slurm/env.sh"\ndtorch_launch devices --check --checkpoint-dir "$PWD"\n')
        for changed, code, says in [("", "0:0", "no problem found"),
                                    ("hostname | grep -q node2 && export OMP_NUM_THREADS=5", "1:0", "OMP_NUM_THREADS is unset on rank 0 (node1)")]:
            with self.subTest(says):
                self.setUp()
                wrapper = self.scratch / "wrapper"
                wrapper.write_text(f'#!/bin/bash\n{changed}\nexec "$@"\n')
                wrapper.chmod(0o755)
                job = self.cluster.submit("--chdir", self.scratch, *THREE_NODES, "-o", self.scratch / "check.out", script, env={
                    "DTORCH_HOME": str(SOURCE), "DTORCH_APP": str(APP), "DTORCH_CONTAINER": str(wrapper)})
                said = self.cluster.wait(job, 60)
                self.assertEqual(said["ExitCode"], code, self.output())
                self.assertIn(says, self.output())

    def test_srun_without_pmi_says_so(self):
        for pmi in ["none", "pmi2"]:
            with self.subTest(pmi):
                started = time.monotonic()
                done = self.cluster.command("srun", f"--mpi={pmi}", "-N", "3", "sh", "-c", f"{APP} devices 2>&1 || echo code $?")
                self.assertEqual(sorted(line.split(":")[0] for line in done.splitlines()), ["code 1"] * 3 + ["error"], done)
                self.assertIn("asked for 3 ranks, I see 1: srun without a matching PMI?", done)
                self.assertLess(time.monotonic() - started, 60)

    def test_a_node_that_dies_is_left_out_and_training_ends_with_the_losses_of_an_undisturbed_run(self):
        # Power off: the network is gone, and all processes. mpirun doesn't notice; the controller does, after --deadline.
        for nodes, spares, left in [(THREE_NODES, "0", "node1, node2"), (["-N", "4"], "1", "node1, node2, node4")]:
            with self.subTest(spares=spares):
                self.setUp()
                job = self.submit("train.sbatch", nodes, [*self.train_arguments(ENOUGH), *CONSTANT_RATE, "--save-every", "10",
                                                          "--deadline", "8"], DTORCH_SPARES=spares)
                self.lose_a_node_after_a_save("node3")
                self.assert_completes(job)
                self.assertRegex(self.output(), "host node3 (doesn't answer|can't be reached.*); going on without it")
                self.assertRegex(self.output(), f"starting again from step [0-9]+ on {left}\n")
                found = losses(self.scratch / "run/metrics.jsonl")
                self.assertEqual(found, self.plain_losses(str(len(found)), *CONSTANT_RATE))
                self.doCleanups()

    def train_with_recovery(self, nodes, spares, lose):
        """A job that goes on inside when something is lost after the first save; returns what it said."""
        job = self.submit("train.sbatch", nodes, [*self.train_arguments(RECOVERY_STEPS), "--save-every", "20", "--snapshot-every", "4"],
                          DTORCH_RECOVER="on", DTORCH_SPARES=spares)
        self.wait_for_a_save()
        lose()
        self.assert_completes(job)
        self.assertEqual(losses(self.scratch / "run/metrics.jsonl"), self.plain_losses(RECOVERY_STEPS))
        return "".join(path.read_text() for path in self.scratch.glob("*.out"))  # also what was said before many saves

    def test_with_recovery_a_node_that_dies_costs_a_pause(self):
        # Noticed by its silence: to rank 0, another node is another machine.
        for nodes, spares in [(THREE_NODES, "0"), (["-N", "4"], "1")]:
            with self.subTest(spares=spares):
                self.setUp()
                said = self.train_with_recovery(nodes, spares, lambda: self.lose("node3"))
                self.assertRegex(said, r"node 2 .*is lost \(it has been silent for [5-9]\.")
                self.assertIn("under way again after", said)
                self.assertNotIn("starting again", said)
                self.doCleanups()

    def test_with_recovery_a_lost_daemon_of_open_mpi_starts_the_job_again_or_costs_a_pause(self):
        said = self.train_with_recovery(THREE_NODES, "0", lambda: self.cluster.on_node("node2", "pkill", "-KILL", "-x", "orted"))
        self.assertRegex(said, "under way again after|starting again from step")

    def test_with_recovery_a_node_that_ends_with_its_network_left_costs_a_pause(self):
        # Connections are reset.
        said = self.train_with_recovery(THREE_NODES, "0", lambda: self.lose("node3", with_network=False))
        self.assertIn("under way again after", said)

    def test_a_lost_daemon_of_slurm_takes_nothing_along_and_leaves_nothing(self):
        # The last node has the guard of env.sh, which nobody can end then; the first is looked at by that guard.
        for node in ["node3", "node1"]:
            with self.subTest(node):
                self.setUp()

                def lose():
                    self.cluster.kill_daemon(node)
                    self.addCleanup(self.cluster.power_on, node)
                    self.addCleanup(self.cluster.power_off, node)

                said = self.train_with_recovery(THREE_NODES, "0", lose)
                self.assertNotRegex(said, "is lost|starting again")
                job = next(self.scratch.glob("dtorch_train-*.out")).stem.rsplit("-", 1)[1]
                cluster.wait_until("the end of all processes", lambda: not self.cluster.processes_of(job), 60)
                self.assertEqual(self.cluster.job(job)["Restarts"], "0", said)
                self.doCleanups()

    def wait_for_a_save(self):
        cluster.wait_until("a checkpoint", lambda: list((self.scratch / "run").glob("step-*/manifest.json")), JOB_S)

    def lose(self, node, with_network=True):
        self.cluster.power_off(node, with_network)
        self.addCleanup(self.cluster.power_on, node)

    def lose_a_node_after_a_save(self, node):
        self.wait_for_a_save()
        self.lose(node)

    def test_a_job_whose_first_node_dies_goes_back_into_the_queue_and_goes_on(self):
        # Slurm itself would let it wait on its other nodes. Requeued, it takes the nodes that are left.
        job = self.submit("train.sbatch", THREE_NODES[:2],
                          [*self.train_arguments(ENOUGH), *CONSTANT_RATE, "--save-every", "10", "--deadline", "8"])
        first = cluster.wait_until("the start", lambda: self.cluster.job(job).get("BatchHost"), JOB_S)
        self.lose_a_node_after_a_save(first)
        said = self.assert_completes(job)
        self.assertEqual(said["Restarts"], "1")
        self.assertNotEqual(said["BatchHost"], first)
        found = losses(self.scratch / "run/metrics.jsonl")
        self.assertEqual(found, self.plain_losses(str(len(found)), *CONSTANT_RATE))

    def test_a_disk_that_fills_up_while_training_saves_and_ends(self):
        # Needs no Slurm, but a disk of its own.
        run, out = self.scratch / "run", self.scratch / "plain.out"
        run.mkdir()
        cluster.run("mount", "-t", "tmpfs", "-o", "size=32m", "disk", run)
        self.addCleanup(cluster.run, "umount", run)
        command = [APP, "train", "--data", self.data, *MODEL, "--checkpoint-dir", run, "--resume", "--steps"]
        cluster.run(*command, "2")
        size = sum(path.stat().st_size for path in run.glob("step-*/*"))
        with open(out, "w", encoding="utf-8") as log:
            training = subprocess.Popen([*map(str, command), ENOUGH], stdout=log, stderr=log)
            cluster.wait_until("the start", lambda: "going on at step 2" in out.read_text(), JOB_S)
            disk = os.statvfs(run)
            (run / "filler").write_bytes(bytes(disk.f_bavail * disk.f_frsize - size * 11 // 10))
            self.assertEqual(training.wait(JOB_S), 1, out.read_text()[-3000:])
        said = re.search("the disk is nearly full: .* saved at step ([0-9]+); make room", out.read_text())
        self.assertIsNotNone(said, out.read_text()[-3000:])
        self.assertGreater(int(said[1]), 2)
        (run / "filler").unlink()
        self.assertIn(f"going on at step {said[1]}", cluster.run(*command, str(int(said[1]) + 2)))

    def test_elastic_training_goes_on_with_fewer_devices(self):
        arguments = ["--data", self.data, *MODEL, "--steps", ENOUGH, "--save-every", "10", "--deadline", "8"]
        job = self.submit("train.sbatch", THREE_NODES, arguments, DTORCH_ELASTIC="1")
        self.lose_a_node_after_a_save("node2")
        self.assert_completes(job)
        self.assertIn("dp=3", self.output())
        self.assertIn("dp=2", self.output())

    def tearDown(self):
        self.cluster.cancel_all()
        self.assertEqual(self.cluster.left_over(), [], "files in shared memory after the jobs' end")


if __name__ == "__main__":
    reason = None if os.environ.get(cluster.INSIDE) else cluster.why_not()
    if reason:
        print("skipped:", reason)
        sys.exit(SKIPPED)
    cluster.enter()
    unittest.main(verbosity=2)
