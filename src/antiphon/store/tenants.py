"""Whose data an operation is about."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from antiphon.errors import SessionRowError

DEFAULT_TENANT = "global"

Prefix: TypeAlias = str | Callable[[], str] | None
"""A tenant's name, or a function that gives it: called in the caller's context whenever an operation begins, so it may
read a `ContextVar`. None is the default tenant."""

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\]")
_LONGEST = 200


def check_tenant(name: object) -> str:
    r"""`name`, when it can name a tenant: segments between slashes, such as `org-42/user-7`.

    Raises:
        SessionRowError: If it is empty, longer than 200 characters, has an empty segment, one that begins with a dot or
            has blanks around it, a backslash, a control character or a lone surrogate.
    """
    if not isinstance(name, str) or not name:
        raise SessionRowError(f"the tenant is {name!r}: a name is needed, such as 'org-42/user-7'")
    if len(name) > _LONGEST:
        raise SessionRowError(f"the tenant {name[:40] + '...'!r} is longer than {_LONGEST} characters")
    if _FORBIDDEN.search(name):
        raise SessionRowError(f"the tenant {name!r} has a backslash, a control character or a lone surrogate")
    for segment in name.split("/"):
        if not segment or segment.startswith(".") or segment != segment.strip():
            raise SessionRowError(
                f"the tenant {name!r} has the segment {segment!r}: empty, padded, or with a dot first"
            )
    return name


def current_tenant(prefix: Prefix) -> str:
    """The tenant of the operation that begins now.

    Raises:
        SessionRowError: If it cannot name one.
    """
    if prefix is None:
        return DEFAULT_TENANT
    return check_tenant(prefix() if callable(prefix) else prefix)
