"""``pullback.autograd.profiler.profile``: record a block of the program."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pullback.backend import device_count, installed, times_kernels
from pullback_profiler.events import stacks
from pullback_profiler.events.average import FunctionEventAvg
from pullback_profiler.events.event_list import EventList
from pullback_profiler.events.util import open_text
from pullback_profiler.record.devices import synchronize_devices
from pullback_profiler.record.module_calls import ModuleCalls
from pullback_profiler.record.post_process import Options, post_process
from pullback_profiler.record.recording import Recording, Results, Thread

logger = logging.getLogger("pullback.profiler")

_post_processing = threading.RLock()


def _renew_lock() -> None:
    """Let a forked process make results, even if another thread held the lock at the fork."""
    global _post_processing
    _post_processing = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew_lock)


class profile:
    """Context manager: record every op, node, block and change of memory that runs inside.

    With ``enabled=False`` nothing is recorded and the list of events stays empty. ``use_device``
    names a kind of device ("cuda") whose kernels are timed too; ``use_cuda=True`` is deprecated
    for it. ``record_shapes`` keeps shapes, strides, dtypes and plain arguments of inputs;
    ``with_flops`` estimates floating-point operations (and implies shapes); ``profile_memory``
    follows memory of tensors; ``with_stack`` keeps the lines of the program. ``all_threads``
    records every thread instead of the one that enters. ``post_processing_timeout_s`` bounds the
    seconds spent on results when they are first asked for. ``with_modules`` records calls of
    modules as ``nn.Module: Linear_0``, with a number for each module of a class. Other options are
    accepted for programs written for torch: ``use_kineto``, ``experimental_config`` and
    ``activity_filters`` mean nothing here.

    A block that raises is recorded as well. An object records once; one profiler records at a time.
    Raises: RuntimeError on a second use and inside another profile; AssertionError for
    ``use_cpu=False`` without ``use_kineto``; ValueError for a negative timeout.

    >>> import pullback
    >>> from pullback_profiler import profile
    >>> x = pullback.ones(2, 3, requires_grad=True)
    >>> with profile(record_shapes=True) as p:
    ...     x.exp().sum().backward()
    >>> p.function_events[0].name, p.function_events[0].input_shapes
    ('pullback::exp', [[2, 3]])
    >>> {event.name for event in p.function_events} >= {"ExpBackward0", "SumBackward0"}
    True
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
        activity_filters: Iterable[str] | None = None,
        all_threads: bool = False,
    ) -> None:
        if post_processing_timeout_s is not None and post_processing_timeout_s < 0:
            raise ValueError(
                f"profile(): post_processing_timeout_s must be None or at least 0 seconds, got "
                f"{post_processing_timeout_s}"
            )
        if use_cuda:
            warnings.warn(
                "profile(): use_cuda is deprecated, use use_device='cuda' instead",
                FutureWarning,
                stacklevel=2,
            )
            use_device = "cuda"
        if not use_cpu and not use_kineto:
            raise AssertionError("profile(): use_cpu=False needs use_kineto=True")
        self.enabled = enabled
        self.use_device = checked_device(use_device) if enabled else None
        self.use_cpu = use_cpu
        self.record_shapes = record_shapes or with_flops
        self.with_flops = with_flops
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_modules = with_modules
        self.acc_events = acc_events
        self.all_threads = all_threads
        self.metadata: dict[str, Any] = {}
        self._timeout = post_processing_timeout_s
        self._trace_id_callback = custom_trace_id_callback
        self._trace_id: str | None = None
        self._recorder: Any = None
        self._modules: ModuleCalls | None = None
        self._recording: Recording | None = None
        self._cached_results: Results | None = None
        self._entered = False
        self._began = 0  # nanoseconds since 1970

    def __enter__(self) -> profile:
        self._start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _start(self) -> None:
        if not self.enabled:
            return
        if self._entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        from pullback_profiler.record.recorder import Recorder

        callback = self._trace_id_callback
        self._trace_id = callback() if callback is not None else uuid.uuid4().hex.upper()
        recorder = Recorder(
            shapes=self.record_shapes,
            stacks=self.with_stack,
            memory=self.profile_memory,
            kernels=self.use_device is not None,
            all_threads=self.all_threads,
        )
        self._began = time.time_ns()
        self._recorder = recorder  # before it starts, so that __del__ ends it in any case
        try:
            recorder.start()
            if self.with_modules:
                self._modules = ModuleCalls()
            self._entered = True
        except BaseException:
            recorder.stop()
            self._recorder, self._entered = None, False
            raise

    def _stop(self) -> None:
        """Wait for the device, then end recording; a second call does nothing."""
        if not self.enabled or self._recorder is None or self._recording is not None:
            return
        try:
            if self.use_device is not None:
                synchronize_devices(self.use_device)
        finally:
            self._stop_modules()
            self._recorder.stop()
            threads = [Thread(*thread) for thread in self._recorder.threads()]
            threads = [thread for thread in threads if thread.records]
            self._recording = Recording(threads, self._recorder.started, self._recorder.stopped)
            if self._recorder.lost:
                logger.warning(
                    "the profiler lost %d events for which there was no memory",
                    self._recorder.lost,
                )
            self._recorder = None

    def _stop_modules(self) -> None:
        modules, self._modules = getattr(self, "_modules", None), None
        if modules is not None:
            modules.stop()

    def __del__(self) -> None:
        """End the recording of a profile that was forgotten inside its block."""
        self._stop_modules()
        recorder = getattr(self, "_recorder", None)
        if recorder is not None:
            recorder.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy or a pickle: results instead of records.

        Raises: RuntimeError while it records.
        """
        if self._recorder is not None:
            raise RuntimeError("a profile cannot be copied or pickled while it records")
        if self._recording is None:
            return vars(self)
        self._results()
        threads = [thread._replace(records=()) for thread in self._recording.threads]
        recording = self._recording._replace(threads=threads)
        return {**vars(self), "_recording": recording, "_trace_id_callback": None}

    def toggle_collection_dynamic(self, enabled: bool, activities: Iterable[Any] = ()) -> None:
        """Pause recording, or go on with it; ``activities`` has no effect.

        Raises: RuntimeError outside the block.

        >>> from pullback_profiler import profile
        >>> import pullback
        >>> with profile() as p:
        ...     p.toggle_collection_dynamic(False, [])
        ...     y = pullback.ones(2)
        >>> len(p.function_events)
        0
        """
        if self._recorder is None:
            raise RuntimeError("toggle_collection_dynamic(): the profiler is not running")
        self._recorder.paused = not enabled

    # ---- results -------------------------------------------------------------------------------

    def _results(self) -> Results:
        if self._cached_results is None:
            with _post_processing:
                if self._cached_results is None:  # no other thread came first
                    self._cached_results = self._post_process()
        return self._cached_results

    def _post_process(self) -> Results:
        if not self.enabled:
            nothing = Results(EventList(), [])
            nothing.events.build_tree()
            return nothing
        if self._recording is None:
            raise RuntimeError("Profiler didn't finish running")
        options = Options(
            self.use_device,
            with_flops=self.with_flops,
            profile_memory=self.profile_memory,
            timeout=self._timeout,
        )
        return post_process(self._recording, options)

    @property
    def function_events(self) -> EventList:
        """The events, by start; made when they are first asked for.

        Raises: RuntimeError before the block has ended.
        """
        return self._results().events

    @property
    def trace_id(self) -> str:
        """The profile's identifier in traces: 32 hexadecimal digits, or the callback's text."""
        return self._trace_id or ""

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds on the CPU, without counting nested events twice."""
        return self.function_events.self_cpu_time_total

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Return sums over events of one name; see ``EventList.key_averages``.

        >>> import pullback
        >>> from pullback_profiler import profile
        >>> with profile() as p:
        ...     for _ in range(3):
        ...         y = pullback.ones(2)
        >>> p.key_averages()[0].count
        3
        """
        return self.function_events.key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def total_average(self) -> FunctionEventAvg:
        """Return the sums over all events; see ``EventList.total_average``."""
        return self.function_events.total_average()

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int | None = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """Return the events as a table, one row each; see ``EventList.table``."""
        return self.function_events.table(
            sort_by=sort_by,
            row_limit=row_limit,
            max_src_column_width=max_src_column_width,
            max_name_column_width=max_name_column_width,
            max_shapes_column_width=max_shapes_column_width,
            header=header,
            top_level_events_only=top_level_events_only,
        )

    def __repr__(self) -> str:
        if self.enabled and self._recording is None:
            return "<unfinished pullback.autograd.profile>"
        return repr(self.function_events)

    def __str__(self) -> str:
        if self.enabled and self._recording is None:
            return "<unfinished pullback.autograd.profile>"
        return str(self.function_events)

    def _repr_html_(self) -> str | None:
        if self.enabled and self._recording is None:
            return None
        return self.key_averages().html(sort_by="self_cpu_time_total")

    # ---- files ---------------------------------------------------------------------------------

    def export_chrome_trace(
        self,
        path: str | os.PathLike[str],
        metadata: Mapping[str, Any] | None = None,
        use_python_export: bool = False,
    ) -> None:
        """Write a trace for chrome://tracing and Perfetto; ``.gz`` at the end compresses.

        ``metadata`` is added to the trace. With ``use_python_export`` the file has the simple form
        of ``EventList.export_chrome_trace``. Raises: TypeError or ValueError for metadata that JSON
        cannot hold; ValueError for a key of it that every trace has; OSError.

        >>> import os, pullback
        >>> from pullback_profiler import profile
        >>> with profile() as p:
        ...     y = pullback.ones(2).exp()
        >>> p.export_chrome_trace(os.devnull)
        """
        if use_python_export:
            self.function_events.export_chrome_trace(path)
            return
        from pullback_profiler.export.trace import trace_parts

        parts = trace_parts(self, {**self.metadata, **(metadata or {})})
        with open_text(path) as file:
            file.writelines(parts)

    def export_stacks(
        self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total"
    ) -> None:
        """Write lines for flame graphs; see ``EventList.export_stacks``.

        Raises: AssertionError without ``with_stack=True``; ValueError for an unknown metric.
        """
        if self.enabled and not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        stacks.check_metric(metric)
        self.function_events.export_stacks(path, metric)

    def export_html(self, path: str | os.PathLike[str], title: str | None = None) -> None:
        """Write a report as one HTML file, which any browser shows without a network.

        It has the table of averages, a flame graph, memory over time if ``profile_memory`` was on,
        and details of each name, under ``title``. ``.gz`` at the end of the path compresses.
        Raises: RuntimeError before the block has ended; OSError.

        >>> import os, pullback
        >>> from pullback_profiler import profile
        >>> with profile() as p:
        ...     y = pullback.ones(2).exp()
        >>> p.export_html(os.devnull, title="two ops")
        """
        from pullback_profiler.export.report import write_report

        write_report(self, path, title)

    def export_memory_timeline(self, path: str | os.PathLike[str], device: object = None) -> None:
        """Write how much memory tensors held on a device over time.

        The suffix chooses the format: ``.json`` for ``[times, bytes, events]``, three lists with an
        item for each change (microseconds and bytes since recording began, and the name of the
        innermost event around it), ``.html`` for a page with a chart; ``.gz`` after it compresses.
        ``device`` is a device or its name; by default that of the highest peak.
        Raises: RuntimeError without ``profile_memory=True`` and before the block has ended;
        ValueError for another suffix, and for a device on which nothing was recorded; OSError.

        >>> import json, os, pullback, tempfile
        >>> from pullback_profiler import profile
        >>> with profile(profile_memory=True) as p:
        ...     y = pullback.ones(256)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "memory.json")
        ...     p.export_memory_timeline(path)
        ...     with open(path) as file:
        ...         times, nbytes, events = json.load(file)
        >>> nbytes, events
        ([1024], ['pullback::ones'])
        """
        from pullback_profiler.export.timeline import write_memory_timeline

        write_memory_timeline(self, path, device)


# Device types that programs for torch name, with a plugin or without.
_KNOWN_DEVICES = ("cuda", "xpu", "mtia", "hpu", "privateuseone")


def checked_device(use_device: str | None) -> str | None:
    """Return a kind of device whose kernels can be timed; None for others, after a warning."""
    if use_device is None or use_device == "cpu":
        return None
    if use_device not in _KNOWN_DEVICES and use_device not in installed():
        warnings.warn(f"The {use_device!r} is not a valid device option.", stacklevel=3)
        return None
    try:
        reason = "there is no such device" if device_count(use_device) == 0 else ""
    except (RuntimeError, ImportError) as error:
        reason = str(error)
    if reason:
        label = use_device.upper()
        warnings.warn(
            f"{label} is not available, disabling {label} profiling: {reason}", stacklevel=3
        )
        return None
    if not times_kernels(use_device):
        warnings.warn(
            f"profile(): the backend of {use_device!r} has no mark() and elapsed(), by which its "
            "kernels are timed: all times are the host's",
            stacklevel=3,
        )
    return use_device
