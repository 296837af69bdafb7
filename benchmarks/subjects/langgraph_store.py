"""LangGraph: a graph of one node whose state is checkpointed in SQLite, once a turn (`langgraph-checkpoint-sqlite`)."""

from __future__ import annotations

import os
import sqlite3
import warnings
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.child import main
from benchmarks.turns import Shelf, store_cases


class State(TypedDict):
    """The graph's."""

    messages: Annotated[list[AnyMessage], add_messages]


class LangGraphShelf(Shelf):
    """`SqliteSaver` with `durability="exit"`, the cheapest that keeps each turn. The graph's own work is measured, too."""

    async def open(self) -> None:
        self._graph = self._made()

    def _made(self) -> Any:
        def answer(state: State) -> dict[str, Any]:
            return {"messages": [self._answer]}

        graph = StateGraph(State)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        db = sqlite3.connect(os.path.join(self.folder, "checkpoints.db"), check_same_thread=False)
        return graph.compile(checkpointer=SqliteSaver(db))

    def add(self, turn: int, messages: list[dict[str, Any]]) -> None:
        said, answered = (message["content"][0]["text"] for message in messages)
        self._said, self._answer = HumanMessage(said, id=f"u{turn}"), AIMessage(answered, id=f"a{turn}")

    async def save(self, turn: int) -> None:
        self._graph.invoke({"messages": [self._said]}, _thread(), durability="exit")

    async def load(self, turn: int | None) -> int:
        graph = self._made()
        if turn is None:
            return len(graph.get_state(_thread()).values["messages"])
        # Its ids grow with time. Finding the one that is meant is a look into an index.
        db = sqlite3.connect(os.path.join(self.folder, "checkpoints.db"))
        query = "SELECT checkpoint_id FROM checkpoints ORDER BY checkpoint_id LIMIT 1 OFFSET ?"
        (checkpoint,) = db.execute(query, (turn - 1,)).fetchone()
        return len(graph.get_state(_thread(checkpoint)).values["messages"])

    async def branch(self, turn: int, number: int, messages: list[dict[str, Any]]) -> None:
        db = sqlite3.connect(os.path.join(self.folder, "checkpoints.db"))
        query = "SELECT checkpoint_id FROM checkpoints ORDER BY checkpoint_id LIMIT 1 OFFSET ?"
        (checkpoint,) = db.execute(query, (turn - 1,)).fetchone()
        db.close()
        self.add(10**5 + number, messages)
        self._graph.invoke({"messages": [self._said]}, _thread(checkpoint), durability="exit")


def _thread(checkpoint: str | None = None) -> Any:
    return {"configurable": {"thread_id": "talk", **({"checkpoint_id": checkpoint} if checkpoint else {})}}


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main(store_cases(LangGraphShelf))
