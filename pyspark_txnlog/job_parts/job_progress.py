"""Progress of a batch job on stderr: records so far, their rate, and the time that is left.

Spark counts what its tasks read, and the driver knows the numbers of a task at its end at the latest. A thread of the
driver looks at them once a second, so a record costs nothing more. A client of Spark Connect hears of tasks only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread  # noqa: TID251  it reads counters, while the job blocks its own thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from coordinator_client.clock import SystemClock
from coordinator_client.progress import ProgressShown, WorkProgress

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LOOK_S: Final = 1.0
"""Interval between looks at the counters of Spark (s)."""
_GROUP_PROPERTIES: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
"""Properties of a thread that name the group of its jobs."""
_numbers: Final = count(1)


class StepCounts(NamedTuple):
    """Counters of Spark for one step of a job."""

    records: int
    """Number of records that tasks have read; 0 where Spark does not say."""
    tasks_done: int
    tasks: int

    def done(self, total: int | None) -> int:
        """Return how much of the work is done, out of `total` if that is known. Finished tasks count for their share
        of it, because Spark may learn of a task's records only at its end."""
        by_tasks = total * self.tasks_done // self.tasks if total and self.tasks else 0
        done = max(self.records, by_tasks)
        return min(done, total) if total else done


class JobProgress:
    """Progress of the steps of a job, from the counters of its Spark session."""

    def __init__(self, spark: SparkSession, shown: ProgressShown) -> None:
        self._spark = spark
        self._shown = shown
        self.is_shown = shown.is_on(sys.stderr)
        """False if nothing is ever shown, so that a caller may save the effort of counting."""

    @contextmanager
    def step(self, verb: str, unit: str, total: int | None = None) -> Iterator[None]:
        """Show the work of this block, in which Spark runs jobs. `verb` is what has been done to the units; a total
        that is unknown is None."""
        work = WorkProgress(verb, unit, total=total, clock=SystemClock(), stream=sys.stderr, shown=self._shown)
        with work as progress:
            if not self.is_shown:
                yield
                return

            def on_look(found: StepCounts) -> None:
                progress.reach(found.done(total))

            # A client of Spark Connect has no JVM beside it.
            has_driver = hasattr(self._spark, "_jsparkSession")
            with _own_jobs(self._spark.sparkContext, on_look) if has_driver else _remote_jobs(self._spark, on_look):
                yield


@contextmanager
def _own_jobs(context: SparkContext, on_look: Callable[[StepCounts], None]) -> Iterator[None]:
    """Look once a second at the jobs that this thread starts in the block."""
    from py4j.protocol import Py4JError

    group, is_over = f"txnlog-progress-{next(_numbers)}", Event()

    def look() -> None:
        try:
            is_last = False
            while not is_last:
                is_last = is_over.wait(_LOOK_S)
                on_look(counts_of(context, group))
        except Py4JError:
            # Spark ends, or has forgotten a stage. What the job waits for says so, and here only the numbers stop.
            return

    looking = Thread(target=look, name="txnlog-progress", daemon=True)
    before = {name: context.getLocalProperty(name) for name in _GROUP_PROPERTIES}
    context.setJobGroup(group, "txnlog")
    looking.start()
    try:
        yield
    finally:
        is_over.set()
        looking.join()
        for name, value in before.items():
            # None, against its declaration, removes it.
            context.setLocalProperty(name, value)  # type: ignore[arg-type]


def counts_of(context: SparkContext, group: str) -> StepCounts:
    """Return the counters of all stages of a group of jobs. Raises: Py4JError."""
    # The public tracker has no records, the store that Spark's own pages are made from does.
    status, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = (status.getJobInfo(job) for job in status.getJobIdsForGroup(group))
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    records = tasks_done = tasks = 0
    for stage in stages:
        # A stage that is left out, or forgotten since, has no information.
        info = status.getStageInfo(stage)
        if info is not None:
            tasks += info.numTasks
            tasks_done += info.numCompletedTasks
            records += store.lastStageAttempt(stage).inputRecords()
    return StepCounts(records, tasks_done, tasks)


@contextmanager
def _remote_jobs(spark: SparkSession, on_look: Callable[[StepCounts], None]) -> Iterator[None]:
    """Hear of the tasks of what this client of Spark Connect starts in the block."""

    def hear(*, stages: Iterable[Any] | None, **_others: object) -> None:
        found = list(stages or ())
        tasks_done, tasks = sum(each.num_completed_tasks for each in found), sum(each.num_tasks for each in found)
        on_look(StepCounts(0, tasks_done, tasks))

    # Declared is a class with this call, and any function will do.
    handler: Any = hear
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
