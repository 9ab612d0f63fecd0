//! Options for opening a store.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Clock, DEFAULT_TENANT, Randomness, limits};
use annals_system::{SystemClock, SystemRandomness};

/// Options for opening a store.
#[derive(Clone)]
pub struct Options {
    /// The declared tenants. A new tenant is created; one that is no longer declared stays on disk untouched.
    pub tenants: Vec<String>,
    /// The scopes of every tenant, in addition to the default one.
    pub scopes: Vec<String>,
    /// The size in bytes of a log's first segment. Each further segment is twice as large, up to `segment_bytes_max`.
    pub segment_bytes_first: u64,
    /// The maximum size of a segment in bytes. A commit that needs more gets a segment of its own size.
    pub segment_bytes_max: u64,
    /// The interval at which expired records are deleted.
    pub expiry_every: Duration,
    /// How many of the newest record changes are kept.
    pub record_changes_kept: u64,
    /// The approximate number of bytes of records and streams that are written to a tenant's journal and held in memory before they are
    /// moved into its map. Up to five times as many are held while moving is slower than writing.
    pub journal_bytes_max: usize,
    /// If fewer bytes are free on the disk, commits are refused with `disk_full`, so that there is room left to read, close and repair.
    /// They are accepted again once there is more room. 0 disables the floor.
    pub min_free_disk_bytes: u64,
    /// When closed segments are packed.
    pub packing: Packing,
    /// The source of times.
    pub clock: Arc<dyn Clock>,
    /// The source of ids and salts.
    pub random: Arc<dyn Randomness>,
    /// The defect to activate.
    #[cfg(feature = "seeded-bugs")]
    pub seeded_bug: Option<SeededBug>,
}

/// When closed segments are packed, and how fast. Packing runs in the background and changes nothing that a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// How many of a log's newest closed segments are not packed; `usize::MAX` disables packing.
    pub behind: usize,
    /// The most bytes of segments read and written per second, so that writers are not slowed down; `u64::MAX` means no limit.
    pub bytes_per_second: u64,
    /// A segment is packed only if that saves at least this share of its size, in percent.
    pub least_saving_percent: i32,
}

impl Default for Packing {
    fn default() -> Self {
        Self { behind: 2, bytes_per_second: 16 * 1024 * 1024, least_saving_percent: 10 }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tenants: vec![DEFAULT_TENANT.to_owned()],
            scopes: Vec::new(),
            segment_bytes_first: 16 * 1024 * 1024,
            segment_bytes_max: 128 * 1024 * 1024,
            expiry_every: Duration::from_secs(60),
            record_changes_kept: limits::CHANGES_KEPT_MIN,
            journal_bytes_max: 4 * 1024 * 1024,
            min_free_disk_bytes: 64 * 1024 * 1024,
            packing: Packing::default(),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandomness::new()),
            #[cfg(feature = "seeded-bugs")]
            seeded_bug: None,
        }
    }
}

/// A defect that the tests must catch. Each breaks one rule on which a guarantee rests.
#[cfg_attr(feature = "seeded-bugs", derive(Debug, Clone, Copy, PartialEq, Eq))]
#[cfg_attr(not(feature = "seeded-bugs"), allow(dead_code))]
#[allow(missing_docs, reason = "the names say it")]
pub enum SeededBug {
    AcknowledgeBeforeSync,
    PublishBeforeSync,
    AnswerRepeatsBeforeSync,
    GoOnAfterFailedSync,
    SkipChecksumOnRecovery,
    KeepUnsyncedTailOnRecovery,
    LeaveTornTailInPlace,
    ForgetDirectorySync,
    ForgetSealedRequestIds,
    IgnoreCommitsOfSameBatch,
    AnswerWritesBeforeSync,
    KeepRefusedWrites,
    KeepOldIndexEntries,
    KeepRevisions,
    NoteOneChangeOfABatch,
    MoveProgressOnItsOwn,
    TakeAnyVerdictsForARepeat,
    OverwriteFullPostings,
    KeepStreamsOfEarlierIncarnations,
    RecoverPartOfTransaction,
    IgnoreEventsSinceSearch,
    ForgetExpectations,
    ForgetSealedKeys,
    IgnoreKeysOfSameBatch,
    KeepKeysOfRefused,
    ForgetKeysOnRecovery,
    KeepIncarnation,
    BackUpPastHead,
    SkipBackupVerification,
    IgnoreFreeDiskFloor,
    RenamePackedBeforeSync,
    KeepSaltOfPacked,
    ForgetLastPackedRecord,
    RemoveBeforeRenaming,
    HoldMapAfterHeads,
    ForgetLastEntriesOfRestore,
    ForgetJournalOnOpening,
    TurnJournalTooEarly,
    NameJournalBeforeItIsDurable,
    NoteGenerationTooEarly,
    NoteGenerationTooLate,
}

impl Options {
    /// Returns whether this defect is active; never true in a release.
    #[cfg(feature = "seeded-bugs")]
    pub(crate) fn has(&self, bug: SeededBug) -> bool {
        self.seeded_bug == Some(bug)
    }

    /// Returns whether this defect is active; never true in a release.
    #[cfg(not(feature = "seeded-bugs"))]
    pub(crate) fn has(&self, _bug: SeededBug) -> bool {
        false
    }
}
