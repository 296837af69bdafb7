"""What a session store is, as tests."""

from __future__ import annotations

from antiphon.testing.store_suite.histories import (
    CatalogueContract,
    ChainContract,
    LatestContract,
    LifecycleContract,
    MetadataContract,
)
from antiphon.testing.store_suite.laws import LawContract
from antiphon.testing.store_suite.lineage import LineageContract, LongContract
from antiphon.testing.store_suite.saving import SavingContract
from antiphon.testing.store_suite.sharing import (
    ExportContract,
    LeaseContract,
    RedactionContract,
    SecondObjectContract,
    TenantContract,
    WatchingContract,
)


class SessionStoreContract(
    SavingContract,
    LifecycleContract,
    ChainContract,
    LatestContract,
    MetadataContract,
    CatalogueContract,
    LineageContract,
    LongContract,
    WatchingContract,
    SecondObjectContract,
    TenantContract,
    ExportContract,
    RedactionContract,
    LeaseContract,
    LawContract,
):
    """The suite that defines a session store. Subclass it and give the fixture `open_store`.

    It works only through the contract, and runs with pytest and pytest-asyncio in its auto mode. Give `reopen` where the
    place outlives the object, `scoped` where tenants are not made by `for_tenant`, `open_at` where a clock can be handed in,
    and `bytes_written` where what goes to the place can be counted. What a store cannot do is skipped by name::

        class TestMine(SessionStoreContract):
            @pytest.fixture
            def open_store(self, tmp_path):
                return lambda: MyStore(tmp_path)

            @pytest.fixture
            def reopen(self, open_store):
                return open_store
    """
