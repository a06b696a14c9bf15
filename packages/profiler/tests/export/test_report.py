"""The report: what it holds is what the profile says, and a browser shows it."""

import gzip

import pytest
from page_tools import assert_stands_alone, made_profile, read_page, run_in_browser

import pullback as pb
from pullback import profiler
from pullback_profiler import profile, record_function
from pullback_profiler.events.function_event import FunctionEvent
from pullback_profiler.export import report

HOSTILE = [
    "</script><script>errors.push('ran')</script>",
    "<img src=x onerror=\"errors.push('ran')\">",
    "<!--<script>",
    "a\u2028b & 'c' \"d\" \\",
    "\ud800",
]


def training_step(weight):
    with record_function("forward"):
        loss = (pb.ones(4, 8) @ weight).relu().sum()
    loss.backward()


@pytest.fixture(scope="module")
def trained():
    weight = pb.full((8, 3), 0.5, requires_grad=True)
    options = dict(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True)
    with profile(**options) as profiled:
        for _ in range(3):
            training_step(weight)
    return profiled


@pytest.fixture(scope="module")
def page(trained, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    trained.export_html(path, title="three steps")
    return read_page(path)


def row_named(data, name):
    (row,) = (row for row in data["rows"] if row["name"] == name)
    return row


def test_the_file_stands_alone(page):
    assert_stands_alone(page)
    assert "<title>three steps</title>" in page.text


def test_rows_are_the_averages_of_the_profile(trained, page):
    averages = trained.key_averages()
    assert [row["name"] for row in page.data["rows"]] == [average.key for average in averages]
    for row, average in zip(page.data["rows"], averages):
        assert row["count"] == average.count
        assert row["selfCpu"] == average.self_cpu_time_total
        assert row["cpu"] == average.cpu_time_total
        assert row["mean"] == pytest.approx(average.cpu_time)
        assert row["least"] <= row["mean"] <= row["most"]
        assert row["cpuMemory"] == average.cpu_memory_usage
        assert row["selfCpuMemory"] == average.self_cpu_memory_usage
        assert row["flops"] == average.flops


def test_totals_are_those_of_the_profile(trained, page):
    data = page.data
    assert data["title"] == "three steps"
    assert data["count"] == len(trained.function_events)
    assert data["selfCpu"] == trained.self_cpu_time_total
    assert data["wall"] >= data["selfCpu"]
    assert data["recorded"] == {"memory": True, "flops": True}
    assert data["left"] == {"calls": 0, "paths": 0, "asynchronous": 0}
    (series,) = data["memory"]
    assert series["device"] == str(pb.get_default_device())
    assert series["peak"] == max(series["bytes"]) > 0


def test_calls_are_the_events(trained, page):
    data, calls = page.data, page.data["calls"]
    events = [e for e in trained.function_events if e.time_range.elapsed_us() > 0]
    assert [data["rows"][row]["name"] for row in calls["row"]] == [e.name for e in events]
    assert calls["start"] == pytest.approx([e.time_range.start for e in events], abs=1e-3)
    assert calls["time"] == pytest.approx([e.cpu_time_total for e in events], abs=1e-3)
    assert calls["self"] == pytest.approx([e.self_cpu_time_total for e in events], abs=1e-3)
    assert {data["lanes"][lane] for lane in calls["lane"]} == {"thread 1 (MainThread)"}
    for at, event in enumerate(events):
        parent = event.cpu_parent
        outer = -1 if parent is None else calls["depth"][events.index(parent)]
        assert calls["depth"][at] == outer + 1
        shape, stack = calls["shape"][at], calls["stack"][at]
        assert (data["shapes"][shape] if shape >= 0 else "[]") == str(event.input_shapes)
        assert (data["stacks"][stack] if stack >= 0 else []) == event.stack


def test_forward_and_backward_lead_to_each_other(page):
    data, calls = page.data, page.data["calls"]
    names = [data["rows"][row]["name"] for row in calls["row"]]
    nodes = [at for at, name in enumerate(names) if name == "ReluBackward0"]
    assert len(nodes) == 3
    for at in nodes:
        forward = calls["partner"][at]
        assert names[forward] == "pullback::relu"
        assert calls["start"][forward] < calls["start"][at]
        assert calls["partner"][forward] == at
    forward, backward = (row_named(data, name) for name in ("pullback::relu", "ReluBackward0"))
    assert forward["partners"] == [[data["rows"].index(backward), 3]]
    assert backward["partners"] == [[data["rows"].index(forward), 3]]


def test_details_of_a_name(page):
    data = page.data
    product = row_named(data, "pullback::mm")
    assert {shape["text"]: shape["count"] for shape in product["shapes"]} == {
        "[[4, 8], [8, 3]]": 3,
        "[[8, 4], [4, 3]]": 3,
    }
    around = {data["rows"][row]["name"]: count for row, count in product["callers"]}
    assert around == {"forward": 3, "MmBackward0": 3}
    block = row_named(data, "forward")
    assert [data["rows"][row]["name"] for row, _ in block["callees"]][:1] == ["pullback::ones"]
    assert [stack["frames"][0].split(": ")[1] for stack in product["stacks"]] == ["training_step"]


def test_merged_paths_hold_all_the_time(trained, page):
    data, paths = page.data, page.data["paths"]
    assert sum(paths["self"]) == pytest.approx(trained.self_cpu_time_total, abs=0.1)
    roots = [at for at, parent in enumerate(paths["parent"]) if parent < 0]
    assert sum(paths["time"][at] for at in roots) == pytest.approx(data["selfCpu"], abs=0.1)
    inside = [0.0] * len(paths["time"])
    for at, parent in enumerate(paths["parent"]):
        if parent >= 0:
            assert parent < at
            inside[parent] += paths["time"][at]
    for at, time in enumerate(paths["time"]):
        assert inside[at] + paths["self"][at] == pytest.approx(time, abs=0.1)


def test_lines_of_the_program_stand_around_outermost_events(page):
    data, paths = page.data, page.data["paths"]
    block = next(i for i, row in enumerate(data["rows"]) if row["name"] == "forward")
    at = paths["parent"][paths["row"].index(block)]
    lines = []
    while at >= 0:
        lines.append(data["lines"][-1 - paths["row"][at]])
        at = paths["parent"][at]
    assert [line.rpartition(": ")[2] for line in lines[:2]] == ["training_step", "trained"]


def test_hostile_names_stay_text(tmp_path):
    with profile() as profiled:
        for name in HOSTILE[:-1]:
            with record_function(name):
                pb.ones(2)
    profiled.export_html(tmp_path / "report.html", title=HOSTILE[0] + HOSTILE[-1])
    page = read_page(tmp_path / "report.html")
    assert_stands_alone(page)
    assert len(page.scripts) == 2
    names = [row["name"] for row in page.data["rows"]]
    assert [name for name in names if name != "pullback::ones"] == HOSTILE[:-1]
    assert page.data["title"] == HOSTILE[0] + HOSTILE[-1]


def test_work_on_a_device_has_rows_and_lanes_of_its_own(tmp_path):
    launcher = FunctionEvent(1, "pullback::mm", 1, 0.0, 10.0, use_device="cuda")
    launcher.append_kernel("gemm", 0, 6.0)
    kernel = FunctionEvent(
        2, "gemm", 0, 4.0, 10.0, use_device="cuda", device_type="cuda", device_resource_id=7
    )
    profiled = made_profile([launcher, kernel], stopped=12.0)
    profiled.use_device = "cuda"
    profiled.export_html(tmp_path / "report.html")
    data = read_page(tmp_path / "report.html").data
    assert (data["device"], data["selfDevice"], data["selfCpu"]) == ("CUDA", 6.0, 10.0)
    assert data["lanes"] == ["thread 1 (MainThread)", "CUDA 0, stream 7"]
    assert data["calls"]["lane"] == [0, 1]
    assert row_named(data, "gemm")["kind"] == "kernel"
    assert row_named(data, "pullback::mm")["selfDevice"] == 6.0


def test_asynchronous_blocks_are_counted_but_not_drawn(tmp_path):
    events = [
        FunctionEvent(1, "later", 1, 0.0, 50.0, is_async=True, is_user_annotation=True),
        FunctionEvent(2, "pullback::mm", 1, 10.0, 20.0),
    ]
    made_profile(events).export_html(tmp_path / "report.html")
    data = read_page(tmp_path / "report.html").data
    assert data["left"]["asynchronous"] == 1
    assert len(data["calls"]["row"]) == len(data["paths"]["row"]) == 1
    assert row_named(data, "later")["most"] == 50.0


def test_of_many_calls_and_paths_the_longest_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MAX_CALLS", 3)
    monkeypatch.setattr(report, "MAX_PATHS", 4)
    events = [FunctionEvent(0, "outer", 1, 0.0, 100.0)]
    events += [FunctionEvent(i, f"inner {i}", 1, 10.0 * i, 10.0 * i + i) for i in range(1, 9)]
    made_profile(events).export_html(tmp_path / "report.html")
    data = read_page(tmp_path / "report.html").data
    assert data["left"] == {"calls": 6, "paths": 5, "asynchronous": 0}
    assert data["calls"]["time"] == [100.0, 7.0, 8.0]
    assert data["paths"]["time"] == [100.0, 6.0, 7.0, 8.0]
    assert data["paths"]["parent"] == [-1, 0, 0, 0]
    assert len(data["rows"]) == 9  # the table has all


def test_a_compressed_report_is_the_same(trained, tmp_path):
    trained.export_html(tmp_path / "report.html")
    trained.export_html(str(tmp_path / "report.html.gz"))
    with gzip.open(tmp_path / "report.html.gz", "rt", encoding="utf-8") as file:
        assert file.read() == (tmp_path / "report.html").read_text(encoding="utf-8")


def test_an_unfinished_profile_has_no_report(tmp_path):
    with profile() as profiled:
        with pytest.raises(RuntimeError, match="didn't finish"):
            profiled.export_html(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_disabled_profile_has_an_empty_report(tmp_path):
    with profile(enabled=False) as profiled:
        pb.ones(2)
    profiled.export_html(tmp_path / "report.html")
    data = read_page(tmp_path / "report.html").data
    assert (data["rows"], data["count"], data["wall"]) == ([], 0, 0)


def test_the_report_of_steps_is_that_of_the_last_cycle(tmp_path):
    profiled = profiler.profile(schedule=profiler.schedule(wait=0, warmup=1, active=1))
    with pytest.raises(RuntimeError, match="nothing has been recorded"):
        profiled.export_html(tmp_path / "report.html")
    with profiled:
        for _ in range(4):
            pb.ones(2)
            profiled.step()
    profiled.export_html(tmp_path / "report.html", title="cycles")
    data = read_page(tmp_path / "report.html").data
    assert data["title"] == "cycles"
    assert row_named(data, "ProfilerStep*")["count"] == 1


# ---- in a browser ----------------------------------------------------------------------------

LOOK = """
const texts = (selector) => [...document.querySelectorAll(selector)].map((e) => e.textContent);
const names = () => texts("#averages tbody td:first-child");
const cell = (title) => texts("#averages thead th").indexOf(title);
const column = (title) => texts(`#averages tbody td:nth-child(${cell(title) + 1})`);
const sorted = () => document.querySelector("#averages [aria-sort]");
const type = (text) => {
  byId("filter").value = text;
  byId("filter").dispatchEvent(new Event("input"));
};
const middle = (at) => {
  const [x, y, w] = graph.box(at);
  return { clientX: x + w / 2, clientY: y + 5 };
};
const mouse = (kind, at) => {
  const box = byId("flame").getBoundingClientRect();
  const { clientX, clientY } = middle(at);
  byId("flame").dispatchEvent(
    new MouseEvent(kind, { clientX: box.left + clientX, clientY: box.top + clientY }));
};
const press = (key) => byId("flame").dispatchEvent(new KeyboardEvent("keydown", { key }));
"""


@pytest.fixture(scope="module")
def nested(tmp_path_factory):
    """The report of a block with two ops, of which the second has a part."""
    path = tmp_path_factory.mktemp("browser") / "report.html"
    events = [
        FunctionEvent(1, "block", 1, 0.0, 100.0, scope=7, is_user_annotation=True),
        FunctionEvent(2, "pullback::mm", 1, 10.0, 30.0, input_shapes=[[2, 3], [3, 2]]),
        FunctionEvent(3, "pullback::sum", 1, 40.0, 90.0),
        FunctionEvent(4, "pullback::add", 1, 50.0, 60.0),
    ]
    allocations = [(12.0, 1, 2048, "cpu"), (55.0, 1, 1024, "cpu"), (70.0, 1, -2048, "cpu")]
    made_profile(events, allocations, stopped=120.0, profile_memory=True).export_html(path)
    return path


def seen(path, script):
    given, errors = run_in_browser(path, LOOK + script)
    assert errors == []
    return given


def test_the_browser_shows_totals_table_and_memory(nested):
    given = seen(
        nested,
        """return [texts("#totals dt"), texts("#totals dd"), names(), column("Self CPU"),
                   sorted().textContent, texts("#memory svg .peak"), texts("#detail h2"),
                   byId("flame-note").hidden, document.title]""",
    )
    assert given == [
        ["Recorded", "Self CPU time", "Events", "Names", "Peak memory, cpu"],
        ["120.0 µs", "100.0 µs", "4", "4", "3.000 KB"],
        ["pullback::sum", "block", "pullback::mm", "pullback::add"],
        ["40.00 µs", "30.00 µs", "20.00 µs", "10.00 µs"],
        "Self CPU",
        ["", "peak 3.000 KB"],
        ["pullback::sum"],
        True,
        "Pullback profile",
    ]


def test_headers_sort_and_the_filter_finds(nested):
    given = seen(
        nested,
        """const header = (at) => document.querySelectorAll("#averages thead button")[at];
           header(0).click(); const byName = [names(), sorted().getAttribute("aria-sort")];
           header(0).click(); const falling = [names(), sorted().getAttribute("aria-sort")];
           header(cell("CPU total")).click(); const byTotal = names();
           type("S"); const found = [names(), byId("shown").textContent];
           return [byName, falling, byTotal, found]""",
    )
    rising = ["block", "pullback::add", "pullback::mm", "pullback::sum"]
    assert given[0] == [rising, "ascending"]
    assert given[1] == [rising[::-1], "descending"]
    assert given[2] == ["block", "pullback::sum", "pullback::mm", "pullback::add"]
    assert given[3] == [["pullback::sum"], "1 of 4 names"]


def test_a_row_shows_details(nested):
    given = seen(
        nested,
        """document.querySelectorAll("#averages tbody tr")[2].click();
           const links = () => [...document.querySelectorAll("#detail .link")];
           const first = [texts("#detail h2"), texts("#detail h3"), texts("#detail td"),
                          texts("#averages .chosen td:first-child")];
           links()[0].click();
           return [...first, texts("#detail h2"), links().map((link) => link.textContent)]""",
    )
    assert given[0] == ["pullback::mm"]
    assert given[1] == ["All calls", "Shapes of inputs", "Called by"]
    assert given[2] == ["[[2, 3], [3, 2]]", "1", "20.00 µs", "20.00 µs", "block", "1"]
    assert given[3] == ["pullback::mm"]
    assert given[4:] == [["block"], ["pullback::mm", "pullback::sum"]]


def test_frames_zoom_and_reset(nested):
    given = seen(
        nested,
        """byId("show-time").click();
           const at = data.calls.row.findIndex((row) => data.rows[row].name === "pullback::sum");
           mouse("mousemove", at);
           const tip = byId("tooltip").textContent;
           mouse("click", at);
           const zoomed = [graph.start, graph.scale, charts[0].range, texts("#detail h3")[0]];
           byId("reset").click();
           return [tip, zoomed, [graph.start, graph.scale], byId("show-time").ariaPressed]""",
    )
    assert given[0] == "pullback::sum\n50.00 µs, itself 40.00 µs, at 40.00 µs"
    assert given[1] == [40, 50, [40, 90], "This call"]
    assert given[2:] == [[0, 120], "true"]


def test_the_keyboard_goes_through_frames(nested):
    given = seen(
        nested,
        """const heads = [];
           for (const key of ["ArrowDown", "ArrowDown", "ArrowRight", "ArrowDown", "ArrowUp",
                              "ArrowLeft", "Enter", "Escape"]) {
             press(key);
             heads.push(texts("#detail h2")[0], graph.scale);
           }
           return heads""",
    )
    assert given[::2] == [
        *("block", "pullback::sum", "pullback::mm", "pullback::mm"),
        *("block", "block", "block", "block"),
    ]
    assert set(given[1::2]) == {100}


def test_memory_can_be_read_with_the_keyboard(nested):
    given = seen(
        nested,
        """const svg = document.querySelector("#memory svg");
           const read = [];
           for (const way of ["Right", "Right", "Right", "Right", "Left"]) {
             const key = `Arrow${way}`;
             svg.dispatchEvent(new KeyboardEvent("keydown", { key }));
             read.push(byId("spoken").textContent);
           }
           return read""",
    )
    steps = [
        "2.000 KB at 12.00 µs\npullback::mm",
        "3.000 KB at 55.00 µs\npullback::add",
        "1.000 KB at 70.00 µs\npullback::sum",
    ]
    assert given == [*steps, steps[2], steps[1]]


def test_hostile_names_do_not_run(tmp_path):
    events = [
        FunctionEvent(i, name, 1, 10.0 * i, 10.0 * i + 5, stack=[name], input_shapes=[[1]])
        for i, name in enumerate(HOSTILE[:-1])
    ]
    made_profile(events).export_html(tmp_path / "report.html", title=HOSTILE[0])
    given = seen(
        tmp_path / "report.html",
        """for (const row of document.querySelectorAll("#averages tbody tr")) row.click();
           return [names(), byId("title").textContent, document.images.length]""",
    )
    assert given == [HOSTILE[:-1], HOSTILE[0], 0]


def test_many_events_are_shown_with_a_note(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MAX_CALLS", 2_000)
    events = [FunctionEvent(i, f"op {i % 700}", 1, 2.0 * i, 2.0 * i + 1) for i in range(100_000)]
    made_profile(events, stopped=200_000.0).export_html(tmp_path / "report.html")
    given = seen(
        tmp_path / "report.html",
        """const rows = names().length;
           byId("show-all").click();
           byId("show-time").click();
           return [rows, names().length, texts("#totals dd")[2], byId("flame-note").textContent]""",
    )
    assert given[:3] == [300, 700, "100,000"]
    assert given[3].startswith("The 2,000 longest of 100,000 calls are drawn")


def test_an_empty_report_says_so(tmp_path):
    made_profile([], stopped=0.0).export_html(tmp_path / "report.html")
    assert seen(tmp_path / "report.html", 'return texts("#detail p")') == ["Nothing was recorded."]
