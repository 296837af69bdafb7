"""A process that waits for its turn at a session, beside others.

Run by name: `python -m tests.store.lease_workers <url> <name> <turns> <diary>`. It waits for a line on its standard input,
takes its turns, and writes when each begins and ends into the diary.
"""

import asyncio
import os
import sys

from antiphon.store import open_store


async def take_turns(url: str, name: str, turns: int, diary: int) -> None:
    async with open_store(url) as store:
        for _ in range(turns):
            lease = await store.acquire_lease("s", owner=name)
            os.write(diary, f"begins {name} {lease.ticket}\n".encode())
            await store.get_latest_snapshot("s")  # long enough for another to come in between, if it could
            os.write(diary, f"ends {name} {lease.ticket}\n".encode())
            await store.release_lease(lease)


def main(url: str, name: str, turns: str, diary: str) -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    asyncio.run(take_turns(url, name, int(turns), os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)))


if __name__ == "__main__":
    main(*sys.argv[1:])
