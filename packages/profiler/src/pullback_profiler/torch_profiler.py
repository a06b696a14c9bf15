"""``pullback.profiler.profile``: recording chosen steps of a loop, as ``torch.profiler`` does."""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from pullback_profiler.activities import ProfilerActivity, supported_activities
from pullback_profiler.annotation import record_function
from pullback_profiler.autograd_profiler import profile as autograd_profile
from pullback_profiler.events.event_list import EventList
from pullback_profiler.scheduling import ProfilerAction
from pullback_profiler.step_tracker import KinetoStepTracker

REQUESTER = "ProfilerStep"
RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class profile:
    """Context manager: record a block, or the steps of a loop that a schedule chooses.

    ``activities`` says what to record: ``ProfilerActivity`` members or kinds of devices ("cuda"),
    by default all that ``supported_activities()`` has. ``schedule`` maps a step's number to what is
    done in it (see ``schedule``); the program calls ``step()`` after each step, and an active step
    shows as ``ProfilerStep#n``. ``on_trace_ready`` is called with this object whenever the last
    active step of a cycle has been recorded, and at the end. Results are those of the last cycle;
    with ``acc_events`` those of all. ``execution_trace_observer`` is an object whose ``start`` and
    ``stop`` are called around what is recorded. The other options are those of
    ``pullback.autograd.profiler.profile``.
    Raises: TypeError for a schedule or handler that cannot be called, ValueError without an
    activity or for a value that is not one.

    >>> import pullback
    >>> from pullback.profiler import profile, schedule
    >>> with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=1)) as p:
    ...     for _ in range(5):
    ...         y = pullback.ones(2).exp()
    ...         p.step()
    >>> [event.trace_name for event in p.events() if event.is_user_annotation]
    ['ProfilerStep#2', 'ProfilerStep#3']
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity | str] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        all_threads: bool = False,
    ) -> None:
        for name, function in (("schedule", schedule), ("on_trace_ready", on_trace_ready)):
            if function is not None and not callable(function):
                raise TypeError(
                    f"profile(): {name} must be callable, got {type(function).__name__}"
                )
        kinds = _kinds(activities)
        if use_cuda is not None:
            warnings.warn(
                "profile(): use_cuda is deprecated, use activities instead",
                FutureWarning,
                stacklevel=2,
            )
            kinds = (kinds - {"cuda"}) | ({"cuda"} if use_cuda else set())
        if not kinds:
            raise ValueError("profile(): expected at least one activity")
        self.activities = kinds
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.acc_events = acc_events
        self.step_num = 0
        self.current_action = self._action(0)
        self._trace_id_callback = custom_trace_id_callback
        self._options: dict[str, Any] = {
            "use_device": next(iter(sorted(kinds - {"cpu"})), None),
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
            "with_flops": with_flops,
            "with_modules": with_modules,
            "experimental_config": experimental_config,
            "post_processing_timeout_s": post_processing_timeout_s,
            "all_threads": all_threads,
        }
        autograd_profile(enabled=False, **{**self._options, "use_device": None})  # checks them
        self._observer = execution_trace_observer
        self._metadata: dict[str, Any] = {}
        self._preset: dict[str, Any] = {}
        self._cycle: autograd_profile | None = None  # what records, or recorded last
        self._in_cycle = False  # it records
        self._earlier: list[EventList] = []
        self._step: record_function | None = None
        self._running = False

    # ---- start, step, stop ---------------------------------------------------------------------

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has. Raises: RuntimeError between ``start`` and ``stop``."""
        if self._running:
            raise RuntimeError("a profile cannot be copied or pickled while it runs")
        return vars(self)

    def start(self) -> None:
        """Begin with step 0, or go on after ``stop``.

        Raises: RuntimeError if it has begun already, or while another profiler records.
        """
        if self._running:
            raise RuntimeError("profile.start(): this profiler has started already")
        self._running = True
        KinetoStepTracker.init_step_count(REQUESTER)
        try:
            self._move(ProfilerAction.NONE, self.current_action)
        except BaseException:
            self._running = False
            KinetoStepTracker.erase_step_count(REQUESTER)
            raise
        self._begin_step()

    def stop(self) -> None:
        """End recording; ``on_trace_ready`` is called if the last step was recorded."""
        if not self._running:
            return
        self._end_step()
        self._running = False
        KinetoStepTracker.erase_step_count(REQUESTER)
        if self.current_action in RECORDING:
            self._finish(call_back=True)

    def step(self) -> None:
        """End the current step and begin another.

        Raises: RuntimeError outside ``start`` and ``stop``.
        """
        if not self._running:
            raise RuntimeError("profile.step(): the profiler is not running")
        self._end_step()
        before = self.current_action
        self.step_num += 1
        KinetoStepTracker.increment_step(REQUESTER)
        self.current_action = self._action(self.step_num)
        self._move(before, self.current_action)
        if self._running:  # on_trace_ready may have ended it
            self._begin_step()

    def _action(self, step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(step)

    def _move(self, before: ProfilerAction, after: ProfilerAction) -> None:
        """Begin or end a recording between two steps."""
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._finish(call_back=True)
        elif before is ProfilerAction.RECORD and after not in RECORDING:
            warnings.warn(
                f"Incorrect schedule: RECORD followed by {after.name}; what was recorded is "
                f"kept, but on_trace_ready is not called",
                stacklevel=3,
            )
            self._finish(call_back=False)
        if self._running and after in RECORDING and before is not ProfilerAction.RECORD:
            self._record()

    def _record(self) -> None:
        earlier = []
        if self._cycle is not None and self.acc_events:
            earlier.append(self._cycle.function_events)
        cycle = autograd_profile(custom_trace_id_callback=self._trace_id_callback, **self._options)
        cycle.metadata.update(self._preset)
        if self._observer is not None:
            self._observer.start()
        try:
            cycle._start()
        except BaseException:
            if self._observer is not None:
                self._observer.stop()
            raise
        self._cycle = cycle
        self._in_cycle = True
        self._earlier += earlier

    def _finish(self, call_back: bool) -> None:
        if self._cycle is not None and self._in_cycle:
            self._in_cycle = False
            try:
                self._cycle._stop()
            finally:
                if self._observer is not None:
                    self._observer.stop()
            self._cycle.metadata.update(self._metadata)
            if call_back and self.on_trace_ready is not None:
                self.on_trace_ready(self)

    def _begin_step(self) -> None:
        if self.schedule is not None and self.current_action in RECORDING:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__()
            self._step = None

    def toggle_collection_dynamic(self, enabled: bool, activities: Iterable[Any] = ()) -> None:
        """Pause recording, or go on with it; nothing while nothing is recorded."""
        if self._running and self.current_action in RECORDING and self._cycle is not None:
            self._cycle.toggle_collection_dynamic(enabled, activities)

    # ---- results -------------------------------------------------------------------------------

    @property
    def profiler(self) -> autograd_profile | None:
        """The profile of the last cycle, or None before the first."""
        return self._cycle

    def _last(self, method: str) -> autograd_profile:
        if self._cycle is None:
            raise RuntimeError(f"profile.{method}(): nothing has been recorded yet")
        return self._cycle

    def events(self) -> EventList:
        """Return the events of the last cycle, or of all with ``acc_events``.

        Raises: RuntimeError before anything is recorded.
        """
        last = self._last("events").function_events
        if not self._earlier:
            return last
        every = EventList(
            [event for events in (*self._earlier, last) for event in events],
            **last._options(),
        )
        every._tree_built = True
        return every

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Return sums over events of one name; see ``EventList.key_averages``.

        Raises: RuntimeError before anything is recorded.
        """
        return self.events().key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def _repr_html_(self) -> str | None:
        return None if self.profiler is None else self.profiler._repr_html_()

    def export_chrome_trace(
        self, path: str | os.PathLike[str], use_python_export: bool = False
    ) -> None:
        """Write the last cycle as a trace for chrome://tracing and Perfetto.

        Raises: RuntimeError before anything is recorded; OSError.
        """
        self._last("export_chrome_trace").export_chrome_trace(
            path, self._metadata, use_python_export
        )

    def export_stacks(
        self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total"
    ) -> None:
        """Write lines for flame graphs; see ``EventList.export_stacks``.

        Raises: RuntimeError before anything is recorded; AssertionError without ``with_stack``.
        """
        self._last("export_stacks").export_stacks(path, metric)

    def export_html(self, path: str | os.PathLike[str], title: str | None = None) -> None:
        """Write a report of the last cycle; see ``pullback.autograd.profiler.profile``.

        Raises: RuntimeError before anything is recorded; OSError.
        """
        self._last("export_html").export_html(path, title)

    def export_memory_timeline(self, path: str | os.PathLike[str], device: object = None) -> None:
        """Write memory over the last cycle; see ``pullback.autograd.profiler.profile``.

        Raises: RuntimeError before anything is recorded and without ``profile_memory``; ValueError.
        """
        self._last("export_memory_timeline").export_memory_timeline(path, device)

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the trace's metadata."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add JSON text to the trace's metadata. Raises: ValueError for text that is not JSON."""
        self._metadata[key] = json.loads(value)

    def preset_metadata_json(self, key: str, value: str) -> None:
        """As ``add_metadata_json``, for every cycle that begins afterwards."""
        self._preset[key] = json.loads(value)

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        """Let ``callback()`` name the cycles that begin afterwards."""
        self._trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        """Return what identifies the last cycle in traces, or None before the first."""
        return None if self._cycle is None else self._cycle.trace_id


def _kinds(activities: Iterable[ProfilerActivity | str] | None) -> set[str]:
    """Return kinds of devices for activities, which may be members or kinds."""
    if activities is None:
        return {activity.value for activity in supported_activities()}
    kinds = set()
    for activity in activities:
        if isinstance(activity, ProfilerActivity):
            kinds.add(activity.value)
        elif isinstance(activity, str):
            kinds.add(activity.lower())
        else:
            raise ValueError(
                f"profile(): expected activities to hold ProfilerActivity or str, got "
                f"{type(activity).__name__}"
            )
    return kinds


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """Return a handler for ``on_trace_ready`` that writes each trace into a folder.

    Files are named ``<worker>.<nanoseconds>.pt.trace.json``, with ``.gz`` if ``use_gzip``; the
    worker is the host's name and the process by default. The folder is made if need be.
    Raises: RuntimeError when it cannot be made.

    >>> from pullback.profiler import tensorboard_trace_handler
    >>> handler = tensorboard_trace_handler("traces", worker_name="trainer")
    """

    def handler(profiled: profile) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError(f"Can't create directory: {dir_name}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".json.gz" if use_gzip else ".json"
        name = f"{worker}.{time.time_ns()}.pt.trace{ending}"
        profiled.export_chrome_trace(os.path.join(dir_name, name))

    return handler
