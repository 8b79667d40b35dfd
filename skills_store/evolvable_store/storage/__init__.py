"""Storage of the library: the protocol, and its implementation over SQLite.

Begin with `Storage` and `Writer`, the protocol that the layers above know; each group of tables is
a repository behind it (`EvidenceLog`, `Reviews`, `ReleasePolicy`). Two modules are doors beside the
face, so that contracts can name them: `sqlite`, for the code that opens a library, and
`connection`, for code that opens a database of its own.
"""

from evolvable_store.faces import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_store.storage.address import Address, PostgresHome, read_home, save_address
    from evolvable_store.storage.attestations import Signatures
    from evolvable_store.storage.audit import PAGE, AuditEntry, Decision
    from evolvable_store.storage.authorship import (
        Attestation,
        VersionAuthor,
        VersionAuthors,
        is_followed,
    )
    from evolvable_store.storage.bindings import (
        Binding,
        Bindings,
        DirectoryMark,
        HeldDirectory,
        PendingCheckout,
        PendingPart,
        Place,
        WaitingPlaces,
        WatchedFolder,
    )
    from evolvable_store.storage.carried_places import carry_places, is_below, is_folder
    from evolvable_store.storage.collection_store import ListingChoice
    from evolvable_store.storage.connection import Errors
    from evolvable_store.storage.evidence import (
        Attempt,
        EvidenceLog,
        Grade,
        ImpressionCount,
        Outcome,
        ReportedOutcome,
        SuccessCounts,
        Tally,
        UngradedEvidence,
        Usage,
        Use,
        one_of_each_connection,
    )
    from evolvable_store.storage.foreign_reader import (
        ForeignDatabase,
        ForeignDatabaseBusy,
        ForeignDatabaseInvalid,
        ReadLimits,
        foreign_database,
    )
    from evolvable_store.storage.home_places import HomePlaces
    from evolvable_store.storage.import_staging import CheckedState, ImportStaging, StagedChange
    from evolvable_store.storage.impression_log import ImpressionLog
    from evolvable_store.storage.learned import LearnedTask, TaskSource, by_sign
    from evolvable_store.storage.maintenance import (
        BlobLocation,
        Maintenance,
        PurgeJob,
        Purges,
        SqliteFacts,
        describe_sqlite,
    )
    from evolvable_store.storage.migrations import LATEST, NAMES, check_version, open_library
    from evolvable_store.storage.observations import (
        ITEM_SESSIONS,
        MAIN,
        ClientSession,
        Execution,
        ExecutionUse,
        Impression,
        IngestedSession,
        OutcomeSignal,
        UsageObservation,
        VerifiedEnd,
        parse_signals,
    )
    from evolvable_store.storage.proposals import (
        APPROVED,
        EXPIRED,
        OPEN,
        REJECTED,
        Draft,
        Episode,
        Proposal,
        ProposalBatch,
        Review,
        Reviews,
        ReviewState,
        Spending,
    )
    from evolvable_store.storage.protocol import (
        ArrivedStep,
        Packed,
        ReplayStep,
        SharedVector,
        SharedVectors,
        Storage,
        Writer,
    )
    from evolvable_store.storage.release_channel import (
        POLICY,
        Channel,
        ChannelEntry,
        ChannelMove,
        ChannelState,
        MoveNote,
        Placement,
        ReleasePolicy,
    )
    from evolvable_store.storage.remotes import RemoteState, RemoteWaiting
    from evolvable_store.storage.sql import SEQUENCE, SqlStorage
    from evolvable_store.storage.sqlite_file import (
        FollowedFolders,
        Lender,
        SqliteRepository,
        TrustedFolders,
        every_folder,
        translate_damage,
    )
    from evolvable_store.storage.trial_pool import PooledVersion, PoolState, PoolUnit, check_share
else:
    __getattr__ = late_names(
        __name__,
        {
            "address": "Address PostgresHome read_home save_address",
            "attestations": "Signatures",
            "audit": "AuditEntry Decision PAGE",
            "authorship": "Attestation VersionAuthor VersionAuthors is_followed",
            "bindings": (
                "Binding Bindings DirectoryMark HeldDirectory PendingCheckout PendingPart Place "
                "WaitingPlaces WatchedFolder"
            ),
            "carried_places": "carry_places is_below is_folder",
            "collection_store": "ListingChoice",
            "connection": "Errors",
            "evidence": (
                "Attempt EvidenceLog Grade ImpressionCount Outcome ReportedOutcome "
                "SuccessCounts Tally UngradedEvidence Usage Use one_of_each_connection"
            ),
            "foreign_reader": (
                "ForeignDatabase ForeignDatabaseBusy ForeignDatabaseInvalid ReadLimits "
                "foreign_database"
            ),
            "home_places": "HomePlaces",
            "import_staging": "CheckedState ImportStaging StagedChange",
            "impression_log": "ImpressionLog",
            "learned": "LearnedTask TaskSource by_sign",
            "maintenance": "BlobLocation Maintenance PurgeJob Purges SqliteFacts describe_sqlite",
            "migrations": "LATEST NAMES check_version open_library",
            "observations": (
                "ClientSession Execution ExecutionUse ITEM_SESSIONS Impression "
                "IngestedSession MAIN OutcomeSignal UsageObservation VerifiedEnd parse_signals"
            ),
            "proposals": (
                "APPROVED Draft EXPIRED Episode OPEN Proposal ProposalBatch REJECTED Review "
                "ReviewState Reviews Spending"
            ),
            "protocol": "ArrivedStep Packed ReplayStep SharedVector SharedVectors Storage Writer",
            "release_channel": (
                "Channel ChannelEntry ChannelMove ChannelState MoveNote POLICY Placement "
                "ReleasePolicy"
            ),
            "remotes": "RemoteState RemoteWaiting",
            "sqlite_file": (
                "FollowedFolders Lender SqliteRepository TrustedFolders every_folder "
                "translate_damage"
            ),
            "sql": "SEQUENCE SqlStorage",
            "trial_pool": "PoolState PoolUnit PooledVersion check_share",
        },
    )

__all__ = [
    "FollowedFolders",
    "TrustedFolders",
    "every_folder",
    "APPROVED",
    "Address",
    "ArrivedStep",
    "Attempt",
    "Attestation",
    "AuditEntry",
    "Binding",
    "Bindings",
    "BlobLocation",
    "Channel",
    "ChannelEntry",
    "ChannelMove",
    "ChannelState",
    "CheckedState",
    "ClientSession",
    "Decision",
    "DirectoryMark",
    "Draft",
    "EXPIRED",
    "Episode",
    "Errors",
    "EvidenceLog",
    "Execution",
    "ExecutionUse",
    "ForeignDatabase",
    "ForeignDatabaseBusy",
    "ForeignDatabaseInvalid",
    "Grade",
    "HeldDirectory",
    "HomePlaces",
    "ITEM_SESSIONS",
    "ImportStaging",
    "Impression",
    "ImpressionCount",
    "ImpressionLog",
    "IngestedSession",
    "LATEST",
    "LearnedTask",
    "Lender",
    "ListingChoice",
    "MAIN",
    "Maintenance",
    "MoveNote",
    "NAMES",
    "OPEN",
    "Outcome",
    "OutcomeSignal",
    "PAGE",
    "POLICY",
    "Packed",
    "PendingCheckout",
    "PendingPart",
    "Place",
    "Placement",
    "PoolState",
    "PoolUnit",
    "PooledVersion",
    "PostgresHome",
    "Proposal",
    "ProposalBatch",
    "PurgeJob",
    "Purges",
    "REJECTED",
    "ReadLimits",
    "ReleasePolicy",
    "RemoteState",
    "RemoteWaiting",
    "ReplayStep",
    "ReportedOutcome",
    "Review",
    "ReviewState",
    "Reviews",
    "SEQUENCE",
    "SharedVector",
    "SharedVectors",
    "Signatures",
    "Spending",
    "SqlStorage",
    "SqliteFacts",
    "SqliteRepository",
    "StagedChange",
    "Storage",
    "SuccessCounts",
    "Tally",
    "TaskSource",
    "UngradedEvidence",
    "Usage",
    "UsageObservation",
    "Use",
    "VerifiedEnd",
    "VersionAuthor",
    "VersionAuthors",
    "WaitingPlaces",
    "WatchedFolder",
    "Writer",
    "by_sign",
    "carry_places",
    "check_share",
    "check_version",
    "describe_sqlite",
    "foreign_database",
    "is_below",
    "is_folder",
    "is_followed",
    "one_of_each_connection",
    "open_library",
    "parse_signals",
    "read_home",
    "save_address",
    "translate_damage",
]
