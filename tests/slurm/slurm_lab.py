"""A real Slurm on this machine, for tests: two virtual nodes with two pretend GPUs each, on
loopback.

    with SlurmLab(folder) as lab:
        lab.run(["srun", "-N2", "-n4", "hostname"])

Needs root and Debian's slurmctld, slurmd, slurm-client and munge (with accounting also slurmdbd and
mariadb-server); `missing()` says what is not there. Daemons are started by hand, in a folder of
their own with ports of their own, and are ended by their pids, as is whatever a job or a client
has left running. The GPUs are device files that nothing opens.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.free_ports import free_ports

DAEMONS = ("munged", "slurmctld", "slurmd")
ACCOUNTING_DAEMONS = ("slurmdbd", "mariadbd", "mariadb-install-db")
NODES = ("n1", "n2")
PATIENCE = 60.0
# Where Debian keeps what only root starts.
SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

SLURM_CONF = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
EnforcePartLimits=ALL
SlurmdTimeout=10
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SlurmdParameters=config_overrides
KillWait=2
MinJobAge=300
{accounting}
DefMemPerCPU=3000
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[2]},{ports[3]}] \
CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 \
RealMemory=40000 Gres=gpu:2 State=UNKNOWN
PartitionName=gpu Nodes=n[1-2] Default=YES MaxTime=60 DefaultTime=5 State=UP
"""

WITHOUT_ACCOUNTING = "AccountingStorageType=accounting_storage/none"

WITH_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[4]}
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
AccountingStoragePass={folder}/munge.sock"""

GRES_CONF = """\
NodeName=n1 Name=gpu File=/dev/tty[0-1]
NodeName=n2 Name=gpu File=/dev/tty[2-3]
"""

SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={ports[4]}
SlurmUser=root
CommunicationParameters=NoInAddrAny
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports[5]}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""

# A QOS of one GPU a user: with DenyOnLimit sbatch refuses two, without it the job waits for ever.
QUALITIES = (
    ["add", "account", "lab", "Description=lab", "Organization=lab"],
    ["add", "qos", "one", "MaxTRESPerUser=gres/gpu=1"],
    ["add", "qos", "onedeny", "MaxTRESPerUser=gres/gpu=1", "Flags=DenyOnLimit"],
    ["add", "user", "root", "account=lab", "qos=normal,one,onedeny", "defaultqos=normal"],
    ["modify", "user", "root", "set", "defaultaccount=lab"],
)


def missing(accounting: bool = False) -> str:
    """Why a lab cannot be started here, or nothing."""
    if os.geteuid() != 0:
        return "a Slurm for tests needs root"
    wanted = DAEMONS + (ACCOUNTING_DAEMONS if accounting else ())
    absent = [name for name in wanted if shutil.which(name, path=SEARCH_PATH) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


@dataclass
class SlurmLab:
    folder: Path
    accounting: bool = False

    def __enter__(self) -> SlurmLab:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        self.environment = dict(os.environ) | {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": SEARCH_PATH,
        }
        try:
            self._configure()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception) -> None:
        for name in ("slurmd.n1", "slurmd.n2", "slurmctld", "slurmdbd", "mariadbd", "munged"):
            self._end(self.folder / f"{name}.pid")
        self._end_what_is_left()

    def run(self, command: Sequence[str], timeout: float = 120, **options):
        """Runs a client command; stdout and stderr are kept as text."""
        environment = self.environment | options.pop("environment", {})
        return subprocess.run(
            [str(word) for word in command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )

    def cancel_all(self) -> None:
        """Ends every job, and waits until none is left."""
        self.run(["scancel", "--me"])
        self._until(lambda: not self.run(["squeue", "-h"]).stdout)

    def lose(self, node: str) -> None:
        """Kills the node's daemon, as a machine that loses its power would."""
        os.kill(int((self.folder / f"slurmd.{node}.pid").read_text()), signal.SIGKILL)

    def restore(self, node: str) -> None:
        """Starts the daemon of a lost node again, and waits until the node can be used."""
        self._must("slurmd", "-f", str(self.folder / "slurm.conf"), "-N", node)
        self._until(
            lambda: self.run(["sinfo", "-h", "-N", "-n", node, "-o", "%T"]).stdout.strip() == "idle"
        )

    def _configure(self) -> None:
        facts = {
            "host": socket.gethostname().split(".")[0],
            "folder": self.folder,
            "ports": free_ports(6),
        }
        self.database_port = facts["ports"][5]
        facts["accounting"] = (WITH_ACCOUNTING if self.accounting else WITHOUT_ACCOUNTING).format(
            **facts
        )
        for name in ("state", "spool.n1", "spool.n2"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(**facts))
        (self.folder / "gres.conf").write_text(GRES_CONF)
        for name, text in (
            ("slurmdbd.conf", SLURMDBD_CONF.format(**facts).encode()),
            ("munge.key", secrets.token_bytes(1024)),
        ):
            file = self.folder / name
            file.touch(mode=0o600)
            file.write_bytes(text)

    def _start(self) -> None:
        self._must(
            "munged",
            "--force",
            f"--key-file={self.folder}/munge.key",
            f"--socket={self.folder}/munge.sock",
            f"--pid-file={self.folder}/munged.pid",
            f"--log-file={self.folder}/munged.log",
            f"--seed-file={self.folder}/munged.seed",
            "--num-threads=2",
        )
        if self.accounting:
            self._start_database()
            self._must("slurmdbd")
            self._until(lambda: self.run(["sacctmgr", "-n", "list", "cluster"]).returncode == 0)
        # By this very name: started as slurmctld-wlm it forgets every Gres.
        self._must("slurmctld", "-f", str(self.folder / "slurm.conf"))
        for node in NODES:
            self._must("slurmd", "-f", str(self.folder / "slurm.conf"), "-N", node)
        if self.accounting:
            # GPUs can be limited only once the controller has told the database of them.
            listing = ["sacctmgr", "-nP", "list", "tres", "format=type,name"]
            self._until(lambda: "gres|gpu" in self.run(listing).stdout)
            for words in QUALITIES:
                self.run(["sacctmgr", "-i", *words])
        self._until(
            lambda: self.run(["sinfo", "-h", "-N", "-o", "%T"]).stdout.split() == ["idle"] * 2
        )

    def _start_database(self) -> None:
        data, sock = self.folder / "mysql", self.folder / "mysql.sock"
        self._must(
            "mariadb-install-db",
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
        )
        with (self.folder / "mariadbd.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    shutil.which("mariadbd", path=SEARCH_PATH),
                    "--no-defaults",
                    "--user=root",
                    f"--datadir={data}",
                    f"--socket={sock}",
                    "--bind-address=127.0.0.1",
                    f"--port={self.database_port}",
                    "--innodb-buffer-pool-size=64M",
                    "--innodb-lock-wait-timeout=900",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.database = process
        (self.folder / "mariadbd.pid").write_text(str(process.pid))
        client = ["mariadb", "--no-defaults", "-S", str(sock), "-e"]
        self._until(lambda: self.run([*client, "select 1"]).returncode == 0)
        self._must(
            *client,
            "create database slurm_acct; "
            "create user slurm@127.0.0.1 identified by 'slurm'; "
            "create user slurm@localhost identified by 'slurm'; "
            "grant all on slurm_acct.* to slurm@127.0.0.1; "
            "grant all on slurm_acct.* to slurm@localhost;",
        )

    def _must(self, *command: str) -> None:
        # A daemon inherits its parent's pipes, and would keep them open.
        with (self.folder / "start.log").open("ab") as log:
            code = subprocess.run(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=PATIENCE,
                check=False,
            ).returncode
        if code != 0:
            text = (self.folder / "start.log").read_text(errors="replace")
            raise RuntimeError(f"{command[0]} exited with {code}: {text[-2000:]}")

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"Slurm did not come up within {PATIENCE:.0f} s: {self.folder}")
            time.sleep(0.2)

    def _end_what_is_left(self) -> None:
        """Ends clients, steps and tasks, which outlive the daemons."""
        deadline = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def processes(self) -> list[int]:
        """All that were started with this lab's configuration in their environment. Zombies have
        none."""
        mark = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (process / "environ").read_bytes().split(b"\0"):
                        found.append(int(process.name))
        return found

    @staticmethod
    def _end(file: Path) -> None:
        """Ends the daemon whose pid is in `file`: asks, then insists."""
        try:
            pid = int(file.read_text())
        except (OSError, ValueError):
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + 10
            try:
                os.kill(pid, number)
                while time.monotonic() < deadline:
                    os.kill(pid, 0)
                    # A child of ours stays a zombie until it is waited for.
                    if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                        return
                    time.sleep(0.05)
            except OSError:
                return
