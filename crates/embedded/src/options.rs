//! How a store is opened.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Clock, DEFAULT_TENANT, Randomness, limits};
use annals_system::{SystemClock, SystemRandomness};

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// The declared tenants. A new one is created, one that is left out stays on the disk untouched.
    pub tenants: Vec<String>,
    /// Scopes of every tenant beside the default one.
    pub scopes: Vec<String>,
    /// Bytes of a log's first segment; each next one is twice as large, up to `segment_bytes_max`.
    pub segment_bytes_first: u64,
    /// Bytes of a segment at most. A commit that needs more gets a segment of its own size.
    pub segment_bytes_max: u64,
    /// How often expired records are looked for.
    pub expiry_every: Duration,
    /// How many of the newest changes of records are kept.
    pub record_changes_kept: u64,
    /// Bytes of records and streams, about, that are written to a tenant's journal and held in memory before they are moved into its map;
    /// up to five times as many while that is slower than writing.
    pub journal_bytes_max: usize,
    /// With fewer bytes free on the disk commits are refused with `disk_full`, so that there is room left to read, to close and to
    /// repair; they are taken again when there is more. 0 is no floor.
    pub min_free_disk_bytes: u64,
    /// When closed segments are packed.
    pub packing: Packing,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Where ids and salts come from.
    pub random: Arc<dyn Randomness>,
    /// The defect to have.
    #[cfg(feature = "seeded-bugs")]
    pub seeded_bug: Option<SeededBug>,
}

/// When closed segments are packed, and how fast. It is done in the background, and changes nothing that anybody reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// How many of a log's newest closed segments stay as they are; `usize::MAX` packs none.
    pub behind: usize,
    /// Bytes of segments that are read and written in a second at most, so that writers do not feel it; `u64::MAX` is no limit.
    pub bytes_per_second: u64,
    /// A segment stays as it is unless this share of it is saved, in percent.
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

/// A defect that the tests must catch. Each breaks one rule that a promise rests on.
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
    /// Whether the store was asked to have this defect; never in a product.
    #[cfg(feature = "seeded-bugs")]
    pub(crate) fn has(&self, bug: SeededBug) -> bool {
        self.seeded_bug == Some(bug)
    }

    /// Whether the store was asked to have this defect; never in a product.
    #[cfg(not(feature = "seeded-bugs"))]
    pub(crate) fn has(&self, _bug: SeededBug) -> bool {
        false
    }
}
