"""What `import pipecat` costs, and the class that talks."""

from __future__ import annotations

from benchmarks.child import main
from benchmarks.imports import import_cases

if __name__ == "__main__":
    main(import_cases("import pipecat", "from pipecat.pipeline.worker import PipelineWorker"))
