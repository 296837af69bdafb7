"""The suites. A new one is a value here, and a module for each subject."""

from __future__ import annotations

from benchmarks.figures import Case, Figure, Suite

LIVE = Suite(
    name="live",
    title="The loop of a live call, with a model that does nothing (sound in frames of 20 ms)",
    cases=(
        Case(
            name="sound_out",
            figures=(Figure(key="sound_out_us", label="CPU per output event: sound", unit="µs", target=4.0),),
        ),
        Case(
            name="words_out",
            figures=(Figure(key="words_out_us", label="CPU per output event: timed words", unit="µs", target=4.0),),
        ),
        Case(
            name="sound_in",
            figures=(Figure(key="sound_in_us", label="CPU per input frame", unit="µs", target=1.5),),
        ),
        Case(
            name="latency",
            figures=(
                Figure(key="latency_p50_us", label="added latency, a frame every 20 ms: p50", unit="µs", target=100.0),
                Figure(key="latency_p99_us", label="added latency, a frame every 20 ms: p99", unit="µs", target=1000.0),
            ),
        ),
        Case(
            name="barge_in",
            figures=(
                Figure(
                    key="barge_in_ms",
                    label="barge-in behind 500 frames, consumer takes 2 ms an event: slowest",
                    unit="ms",
                    target=5.0,
                ),
            ),
        ),
        Case(
            name="many",
            figures=(
                Figure(
                    key="per_core",
                    label="conversations per core, 50 frames/s each way",
                    unit="",
                    target=1000.0,
                    at_least=True,
                ),
                Figure(key="many_p99_ms", label="added latency with 300 of them: p99", unit="ms", target=5.0),
            ),
        ),
        Case(
            name="idle",
            figures=(
                Figure(key="idle_kib", label="memory per idle conversation (RSS)", unit="KiB", target=16.0),
                Figure(key="start_ms", label="CPU to start one", unit="ms"),
            ),
        ),
        Case(
            name="growth",
            figures=(
                Figure(
                    key="growth_kib",
                    label="growth over a million events (tracemalloc)",
                    unit="KiB",
                    target=16.0,
                ),
            ),
        ),
    ),
    modules={
        "antiphon": "benchmarks.subjects.antiphon_live",
        "lean": "benchmarks.subjects.lean_live",
        "strands": "benchmarks.subjects.strands_live",
        "pipecat": "benchmarks.subjects.pipecat_live",
        "openai_agents": "benchmarks.subjects.openai_agents_live",
    },
)


def _codec(protocol: str, name: str, target: float | None = None) -> tuple[Case, ...]:
    """The cases of one provider's protocol (`benchmarks/codecs.py`)."""

    def case(kind: str, label: str, most: float | None = None) -> Case:
        key = f"{protocol}_{kind}"
        return Case(name=key, figures=(Figure(key=f"{key}_us", label=f"{name}: {label}", unit="µs", target=most),))

    return (
        case("out", "CPU per event of sound, the model alone"),
        case("agent", "CPU per event of sound, all told: wire, codec, agent", target),
        case("in", "CPU per input frame, the model alone"),
    )


CODECS = Suite(
    name="codecs",
    title="Live models over loopback (sound in frames of 20 ms, the provider's end in another process)",
    cases=(
        *_codec("openai", "OpenAI Realtime", 20.0),
        *_codec("gemini", "Gemini Live", 20.0),
        *_codec("nova", "Nova Sonic, HTTP/2 and signatures", 20.0),
    ),
    modules={
        "antiphon": "benchmarks.subjects.antiphon_codecs",
        "raw": "benchmarks.subjects.raw_codecs",
        "strands": "benchmarks.subjects.strands_codecs",
    },
)

SAVE = Suite(
    name="save",
    title="A save of a conversation of 10,000 messages, beside a running event loop (local files)",
    cases=(
        Case(
            name="stall",
            figures=(
                Figure(key="stall_ms", label="longest hold of the loop by a save: median of 40", unit="ms", target=2.0),
                Figure(key="stall_worst_ms", label="the same: longest of 40", unit="ms"),
                Figure(key="first_stall_ms", label="the same: the first save after a restore", unit="ms", target=2.0),
                Figure(
                    key="collection_ms", label="garbage collector's longest pause in it (beside the above)", unit="ms"
                ),
                Figure(key="save_ms", label="time until one message more is saved: median", unit="ms"),
                Figure(key="save_cpu_ms", label="CPU for it, all threads", unit="ms"),
            ),
        ),
    ),
    modules={"antiphon": "benchmarks.subjects.antiphon_save", "strands": "benchmarks.subjects.strands_save"},
)

STORE = Suite(
    name="store",
    title="A conversation that is saved after each turn of two messages of 500 bytes, and can be gone back to",
    cases=(
        Case(
            name="turns",
            figures=(
                Figure(
                    key="store_mb",
                    label="bytes at rest after 1,000 turns, each of which can be gone back to",
                    unit="MB",
                ),
                Figure(key="store_ratio", label="the same, times the messages' JSON", unit="×", target=1.4),
                Figure(key="store_written_10_kb", label="written in a turn: at turn 10", unit="KB"),
                Figure(key="store_written_100_kb", label="at turn 100", unit="KB"),
                Figure(key="store_written_1000_kb", label="at turn 1,000", unit="KB"),
                Figure(key="store_written_all_kb", label="mean of all, checkpoints included", unit="KB"),
                Figure(key="store_cpu_10_ms", label="CPU of a turn: at turn 10", unit="ms"),
                Figure(key="store_cpu_100_ms", label="at turn 100", unit="ms"),
                Figure(key="store_cpu_1000_ms", label="at turn 1,000", unit="ms"),
                Figure(key="store_wall_10_ms", label="time of a turn: at turn 10", unit="ms"),
                Figure(key="store_wall_100_ms", label="at turn 100", unit="ms"),
                Figure(key="store_wall_1000_ms", label="at turn 1,000", unit="ms"),
                Figure(
                    key="store_growth", label="turn 1,000 takes so many times what turn 10 took", unit="×", target=1.5
                ),
                Figure(
                    key="store_load_ms",
                    label="loading the newest state: in a fresh process, opening and closing included",
                    unit="ms",
                    target=2.0,
                    of="json",
                ),
                Figure(
                    key="store_load_open_ms",
                    label="the same by a store that is open already, as a server's is",
                    unit="ms",
                    target=2.0,
                    of="json",
                ),
                Figure(key="store_load_500_ms", label="loading turn 500", unit="ms"),
                Figure(key="store_load_500_ratio", label="the same for each message, times the newest's", unit="×"),
                Figure(
                    key="store_branch_kb",
                    label="bytes of a branch off turn 500, with a turn of its own (mean of ten)",
                    unit="KB",
                    target=4.0,
                ),
            ),
        ),
        Case(
            name="fsyncs",
            figures=(
                Figure(
                    key="store_fsyncs", label="waits for the disk in a turn, checkpoints aside", unit="", target=1.0
                ),
            ),
        ),
        Case(
            name="long",
            figures=(
                Figure(key="store_written_10000_kb", label="written in a turn: at turn 10,000", unit="KB"),
                Figure(
                    key="store_flat", label="turn 10,000 writes so many times what turn 10 wrote", unit="×", target=1.2
                ),
                Figure(key="store_cpu_10000_ms", label="CPU of a turn: at turn 10,000", unit="ms", target=5.0),
                Figure(key="store_wall_10000_ms", label="time of a turn: at turn 10,000", unit="ms"),
            ),
        ),
        Case(
            name="list",
            figures=(
                Figure(key="store_list_ms", label="list 20 of 10,000 sessions", unit="ms", target=10.0),
                Figure(
                    key="store_list_first_ms", label="the same, as the first thing that a fresh object does", unit="ms"
                ),
            ),
        ),
        Case(
            name="race",
            figures=(
                Figure(
                    key="store_race_wrong",
                    label="10,000 racing pairs of writers: with not exactly one winner, or a lost one",
                    unit="",
                    target=0.0,
                ),
                Figure(key="store_race_ms", label="time of a pair", unit="ms"),
            ),
        ),
    ),
    modules={
        "antiphon_memory": "benchmarks.subjects.antiphon_memory_store",
        "antiphon_file": "benchmarks.subjects.antiphon_file_store",
        "antiphon_sqlite": "benchmarks.subjects.antiphon_sqlite_store",
        "antiphon_postgres": "benchmarks.subjects.antiphon_postgres_store",
        "sqlite_append": "benchmarks.subjects.sqlite_append_store",
        "jsonl": "benchmarks.subjects.jsonl_store",
        "json": "benchmarks.subjects.json_store",
        "strands": "benchmarks.subjects.strands_store",
        "openai_agents": "benchmarks.subjects.openai_agents_store",
        "langgraph": "benchmarks.subjects.langgraph_store",
    },
    ours=("antiphon_memory", "antiphon_file", "antiphon_sqlite", "antiphon_postgres"),
    base="sqlite_append",
)

IMPORT = Suite(
    name="import",
    title="What an import costs",
    cases=(
        Case(
            name="root",
            figures=(
                Figure(key="root_ms", label="import of the package root: CPU", unit="ms", target=100.0),
                Figure(key="root_modules", label="import of the package root: modules", unit=""),
            ),
        ),
        Case(
            name="live_agent",
            figures=(
                Figure(key="live_agent_ms", label="and of the live agent's class: CPU", unit="ms"),
                Figure(key="live_agent_modules", label="and of the live agent's class: modules", unit=""),
                Figure(key="live_agent_mib", label="memory of the process then (RSS)", unit="MiB"),
            ),
        ),
    ),
    modules={
        "antiphon": "benchmarks.subjects.antiphon_import",
        "strands": "benchmarks.subjects.strands_import",
        "pipecat": "benchmarks.subjects.pipecat_import",
        "openai_agents": "benchmarks.subjects.openai_agents_import",
    },
)

RUNNER = Suite(
    name="runner",
    title="Runs of one turn each, with a model that does nothing, over each store",
    cases=(
        Case(
            name="runs",
            figures=(
                Figure(
                    key="runner_one",
                    label="runs per second on one session, one after the other",
                    unit="",
                    at_least=True,
                ),
                Figure(
                    key="runner_many", label="runs per second on 1,000 sessions, 16 at once", unit="", at_least=True
                ),
                Figure(key="runner_cpu_ms", label="CPU of a run: agent, runner and store", unit="ms"),
                Figure(key="runner_own_ms", label="the same, without what the agent takes alone", unit="ms"),
            ),
        ),
        Case(
            name="abort",
            figures=(
                Figure(
                    key="runner_abort_ms",
                    label="from abort to the cancel in the worker's process: median of 20",
                    unit="ms",
                ),
                Figure(key="runner_abort_worst_ms", label="the same: slowest", unit="ms"),
            ),
        ),
    ),
    modules={
        "antiphon_memory": "benchmarks.subjects.antiphon_memory_runner",
        "antiphon_file": "benchmarks.subjects.antiphon_file_runner",
        "antiphon_sqlite": "benchmarks.subjects.antiphon_sqlite_runner",
        "antiphon_postgres": "benchmarks.subjects.antiphon_postgres_runner",
    },
    ours=("antiphon_memory", "antiphon_file", "antiphon_sqlite", "antiphon_postgres"),
    base="antiphon_sqlite",
)

SUITES = {suite.name: suite for suite in (LIVE, CODECS, SAVE, STORE, RUNNER, IMPORT)}
