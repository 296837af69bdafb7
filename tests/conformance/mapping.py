"""Between Genkit's words and ours: messages, inputs, chunks, outputs and rows."""

import json

from antiphon.artifacts import Artifact
from antiphon.content import error_result
from antiphon.runner import ArtifactChunk, CustomPatch, ModelChunk, TurnEnd

ROLES = {"user": "user", "model": "assistant", "tool": "user"}
WORDS = {"'session_id'": "'sessionId'", "'snapshot_id'": "'snapshotId'"}


# --- theirs to ours ---


def block_of(part):
    if "text" in part:
        return {"text": part["text"]}
    if "toolRequest" in part:
        request = part["toolRequest"]
        return {"toolUse": {"toolUseId": request["ref"], "name": request["name"], "input": request.get("input")}}
    raise ValueError(f"no block of ours is like {part!r}")


def message_of(message):
    return {"role": ROLES[message["role"]], "content": [block_of(part) for part in message["content"]]}


def state_of(state):
    """A client's state: ours as it was captured, or one that the specification writes out."""
    if "custom" not in state:
        return state
    return {
        "messages": [message_of(message) for message in state["messages"]],
        "state": state["custom"],
        "artifacts": state.get("artifacts", []),
    }


def resume_of(resume):
    return {
        "respond": [
            {"toolUseId": answer["ref"], "name": answer["name"], "output": answer["output"]}
            for answer in (part["toolResponse"] for part in resume.get("respond", []))
        ],
        "restart": [
            {**block_of(part), "answer": part.get("metadata", {}).get("resumed", True)}
            for part in resume.get("restart", [])
        ],
    }


def artifact_of(name, *texts):
    return Artifact([{"text": text} for text in texts], name)


# --- ours to theirs ---


class Names:
    """Which tool a result belongs to: theirs say it with each result, ours with the call."""

    def __init__(self):
        self.known = {}

    def part(self, block):
        if "toolUse" in block:
            use = block["toolUse"]
            self.known[use["toolUseId"]] = use["name"]
            return {"toolRequest": {"name": use["name"], "ref": use["toolUseId"], "input": use["input"]}}
        if "toolResult" in block:
            result = block["toolResult"]
            (content,) = result["content"] or error_result("", "")["content"]
            output = content["json"] if "json" in content else content["text"]
            name = self.known.get(result["toolUseId"], "")
            return {"toolResponse": {"name": name, "ref": result["toolUseId"], "output": output}}
        return dict(block)

    def message(self, message):
        parts = [self.part(block) for block in message["content"]]
        is_tool = any("toolResponse" in part for part in parts)
        return {"role": "tool" if is_tool else "model" if message["role"] == "assistant" else "user", "content": parts}

    def state(self, session_id, data):
        messages = [self.message(message) for message in data.get("messages", [])]
        waiting = (data.get("interrupt_state") or {}).get("context", {}).get("tool_use_message")
        if waiting is not None:  # ours stand beside the history until they have results
            messages.append(self.message(waiting))
        return {
            "sessionId": session_id,
            "messages": messages,
            "custom": data.get("state"),
            "artifacts": data.get("artifacts", []),
        }


def error_of(error):
    message = error["message"]
    for ours, theirs in WORDS.items():
        message = message.replace(ours, theirs)
    return {"status": error["status"], "message": message}


def told_output(output):
    names = Names()
    told = {
        "sessionId": output.session_id,
        "finishReason": output.finish_reason,
        "artifacts": [artifact.to_dict() for artifact in output.artifacts],
    }
    if output.snapshot_id is not None:
        told["snapshotId"] = output.snapshot_id
    if output.message is not None:
        told["message"] = names.message(output.message)
    if output.error is not None:
        told["error"] = error_of(output.error.to_dict())
    if output.state is not None:
        told["state"] = names.state(output.session_id, json.loads(json.dumps(output.state)))
    return told


def told_row(row):
    told = {"snapshotId": row.snapshot_id, "sessionId": row.session_id, "status": row.status}
    if row.parent_id is not None:
        told["parentId"] = row.parent_id
    if row.finish_reason is not None:
        told["finishReason"] = row.finish_reason
    if row.error is not None:
        told["error"] = error_of(row.error)
    if row.snapshot is not None:
        told["state"] = Names().state(row.session_id, row.loaded().data)
    return told


class Chunks:
    """A stream in their words.

    Their models stream when they are asked to, and are silent else; ours always tell. So what an answer says leaves a chunk
    only where the script streams it.

    Args:
        streams: Whether the answer of this number is streamed.
    """

    def __init__(self, streams):
        self._streams, self._names = streams, Names()
        self._before = self._answers = 0
        self.told = []

    def add(self, chunk):
        if isinstance(chunk, ModelChunk):
            message = self._names.message({"role": chunk.role, "content": chunk.content})
            if chunk.role == "assistant":
                self._answers = max(self._answers, chunk.index + 1)
                if not self._streams(self._before + chunk.index):
                    return
                message["index"] = chunk.index
            self.told.append({"modelChunk": message})
        elif isinstance(chunk, ArtifactChunk):
            self.told.append({"artifact": chunk.artifact.to_dict()})
        elif isinstance(chunk, CustomPatch):
            self.told.append({"customPatch": chunk.patch})
        elif isinstance(chunk, TurnEnd):
            self._before, self._answers = self._before + self._answers, 0
            turn_end = {"finishReason": chunk.finish_reason}
            self.told.append(
                {"turnEnd": turn_end if chunk.snapshot_id is None else {**turn_end, "snapshotId": chunk.snapshot_id}}
            )
