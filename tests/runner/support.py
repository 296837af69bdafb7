"""What tests of the runner share: agents of one script, and looks into a store."""

from antiphon import Agent
from antiphon.testing import ScriptedModel


def user(text):
    return {"role": "user", "content": [{"text": text}]}


def assistant(text):
    return {"role": "assistant", "content": [{"text": text}]}


def makes(*script, **options):
    """A function that makes agents which all go on with one script."""
    model = ScriptedModel(list(script))
    return lambda: Agent(model, **options)


async def rows_of(store, session_id):
    """All rows of a session, oldest first."""
    page = await store.list_snapshots(session_id, limit=100)
    return [await store.get_snapshot(row.snapshot_id) for row in reversed(page.snapshots)]


def texts(row):
    """What is said in a row's history."""
    return [
        block["text"] for message in row.snapshot.data["messages"] for block in message["content"] if "text" in block
    ]
