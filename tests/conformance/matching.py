"""What the specification's expectations mean."""


def contains(actual, expected):
    """Members of objects; for lists, some entries in this order; else equality."""
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(
            key in actual and contains(actual[key], value) for key, value in expected.items()
        )
    if isinstance(expected, list):
        if not isinstance(actual, list):
            return False
        rest = iter(actual)
        return all(any(contains(entry, wanted) for entry in rest) for wanted in expected)
    return type(actual) is type(expected) and actual == expected


def check_output(output, expected):
    known = {
        "message",
        "finishReason",
        "hasSessionId",
        "hasSnapshotId",
        "stateContains",
        "artifactsContain",
        "errorContains",
    }
    assert not set(expected) - known
    for key in ("message", "finishReason"):
        if key in expected:
            assert contains(output.get(key), expected[key]), output
    if "hasSessionId" in expected:
        assert bool(output.get("state", output).get("sessionId")) is expected["hasSessionId"]
    if "hasSnapshotId" in expected:
        assert bool(output.get("snapshotId")) is expected["hasSnapshotId"]
    if "stateContains" in expected:
        assert contains(output["state"], expected["stateContains"]), output["state"]
    by_name = {artifact.get("name"): artifact for artifact in output["artifacts"]}
    for artifact in expected.get("artifactsContain", []):
        assert contains(by_name.get(artifact["name"]), artifact), by_name
    if "errorContains" in expected:
        check_error(output["error"], expected["errorContains"])


def check_error(error, expected):
    if "status" in expected:
        assert error["status"] == expected["status"], error
    assert expected.get("message", "") in error["message"]


def check_snapshot(row, expected):
    known = {"status", "parentId", "finishReason", "hasSessionId", "stateContains", "errorContains"}
    assert not set(expected) - known
    for key in ("status", "parentId", "finishReason"):
        if key in expected:
            assert row.get(key) == expected[key], row
    if "hasSessionId" in expected:
        assert bool(row.get("sessionId")) is expected["hasSessionId"]
    if "stateContains" in expected:
        assert contains(row["state"], expected["stateContains"]), row["state"]
    if "errorContains" in expected:
        check_error(row["error"], expected["errorContains"])


def check_chunks(chunks, expected):
    assert [next(iter(chunk)) for chunk in chunks] == [next(iter(chunk)) for chunk in expected], chunks
    for chunk, wanted in zip(chunks, expected, strict=True):
        assert contains(chunk, wanted), chunk
