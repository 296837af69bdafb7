"""For your own tests: contracts as suites, a clock that tests drive, and fakes that pass the suites."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.models.embedded.script import (
        Answer,
        BargeIn,
        CallTools,
        Emit,
        End,
        Expire,
        Fail,
        GoAway,
        Hear,
        Reason,
        Say,
        Until,
        Usage,
        Wait,
        Write,
    )
    from antiphon.testing.clock import VirtualClock
    from antiphon.testing.failing_disk import FailingFileSystem
    from antiphon.testing.faults import FaultStorage, FaultStore, Hold
    from antiphon.testing.filesystem import UnsyncedFileSystem
    from antiphon.testing.model_suite.live import BidiModelContract
    from antiphon.testing.model_suite.turns import ModelContract
    from antiphon.testing.scripted import ScriptedBidiModel, ScriptedModel
    from antiphon.testing.storage_contract import StorageContract
    from antiphon.testing.store_contract import SessionStoreContract
    from antiphon.testing.store_suite.model import StoreMachine
else:
    _NAMES = {
        "Answer": "antiphon.models.embedded.script",
        "BargeIn": "antiphon.models.embedded.script",
        "BidiModelContract": "antiphon.testing.model_suite.live",
        "CallTools": "antiphon.models.embedded.script",
        "Emit": "antiphon.models.embedded.script",
        "End": "antiphon.models.embedded.script",
        "Expire": "antiphon.models.embedded.script",
        "Fail": "antiphon.models.embedded.script",
        "FailingFileSystem": "antiphon.testing.failing_disk",
        "FaultStorage": "antiphon.testing.faults",
        "FaultStore": "antiphon.testing.faults",
        "GoAway": "antiphon.models.embedded.script",
        "Hear": "antiphon.models.embedded.script",
        "Hold": "antiphon.testing.faults",
        "ModelContract": "antiphon.testing.model_suite.turns",
        "Reason": "antiphon.models.embedded.script",
        "Say": "antiphon.models.embedded.script",
        "ScriptedBidiModel": "antiphon.testing.scripted",
        "ScriptedModel": "antiphon.testing.scripted",
        "SessionStoreContract": "antiphon.testing.store_contract",
        "StorageContract": "antiphon.testing.storage_contract",
        "StoreMachine": "antiphon.testing.store_suite.model",
        "UnsyncedFileSystem": "antiphon.testing.filesystem",
        "Until": "antiphon.models.embedded.script",
        "Usage": "antiphon.models.embedded.script",
        "VirtualClock": "antiphon.testing.clock",
        "Wait": "antiphon.models.embedded.script",
        "Write": "antiphon.models.embedded.script",
    }

    def __getattr__(name: str) -> object:
        from antiphon.testing.servers.loading import load

        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return load(_NAMES[name], name)


__all__ = [
    "Answer",
    "BargeIn",
    "BidiModelContract",
    "CallTools",
    "Emit",
    "End",
    "Expire",
    "Fail",
    "FailingFileSystem",
    "FaultStorage",
    "FaultStore",
    "GoAway",
    "Hear",
    "Hold",
    "ModelContract",
    "Reason",
    "Say",
    "ScriptedBidiModel",
    "ScriptedModel",
    "SessionStoreContract",
    "StorageContract",
    "StoreMachine",
    "UnsyncedFileSystem",
    "Until",
    "Usage",
    "VirtualClock",
    "Wait",
    "Write",
]
