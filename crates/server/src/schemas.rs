//! The shapes of bodies, for the OpenAPI document only. The types that read and write bodies are in `annals_core::wire`, which does not
//! depend on OpenAPI. A test validates real responses against these shapes.

#![expect(dead_code, reason = "the fields are described and never read")]

mod archive;
mod browse;
mod commit;
mod condition;
mod credential;
mod dead_letter;
mod doctor;
mod event;
mod filter;
mod handler;
mod horizon;
mod key;
mod partner;
mod projection;
mod queue;
mod record;
mod replay;
mod saga;
mod sequencer;
mod snapshot;
mod stream;
mod topic;
mod types;

pub(crate) use archive::{
    ArchiveFilePage, ArchivePage, BrowsedEvent, DeletedEvent, HoldBody, HoldPage, HoldStatus, RetentionBody,
    RetentionPage, RetentionStatus,
};
pub(crate) use browse::{BrowsePage, EventDetail, EventStatistics, ViewBody, ViewStatus};
pub(crate) use commit::{CommitAnswer, NewCommit, NewTransaction};
pub(crate) use condition::{CountQuery, Explained, ListQuery, PageQuery, PagedAnswer, SingleQuery};
pub(crate) use credential::{AuditPage, CreatedCredential, Credential, CredentialPage, NewCredential, RevokeBody};
pub(crate) use dead_letter::{
    BulkAct, BulkOutcome, DeadLetter, DeadLetterPage, DeadLetterStatistics, LetterPolicyPage, LetterPolicyStatus,
    NewLetterPolicy,
};
pub(crate) use doctor::Diagnosis;
pub(crate) use event::{AggregatePage, Event, LogPage};
pub(crate) use filter::{FilterDefinition, FilterPage, FilterSettlements, FilterStatus};
pub(crate) use handler::{
    Deliveries, EventAct, FailingPartitionPage, HandlerActPage, HandlerDefinition, HandlerMove, HandlerPage,
    HandlerReplay, HandlerStatus, Pull, Reason, Settled, Settlements,
};
pub(crate) use horizon::{Consent, ConsentPage, NewConsent, NewSubscription, SubscriptionPage, SubscriptionStatus};
pub(crate) use key::{FoundKey, KeyChange, KeyChanged, KeyRollback};
pub(crate) use partner::{
    Accepted, NewPartner, NewPartnerReplay, Partner, PartnerEvent, PartnerEventPage, PartnerPage, PartnerReplay,
    PartnerStatistics, ReceivedEvent,
};
pub(crate) use projection::{ProjectedRecords, ProjectionDefinition, ProjectionPage, ProjectionStatus};
pub(crate) use queue::{
    CancelledQueueItem, EnqueuedItem, NewQueueItem, QueueDefinition, QueueItem, QueueItemPage, QueueItemPriority,
    QueueItemResult, QueueItemResults, QueuePage, QueueStatus, RenewItems, SettledItems, TakeItems, TakenItems,
};
pub(crate) use record::{
    ChangeNumbers, ChangePage, Changes, Collection, Collections, Count, Declaration, FindQuery, GroupPage, GroupQuery,
    Record, RecordId, RecordPage,
};
pub(crate) use replay::{PreviewBody, RemovedReplays, ReplayBody, ReplayPage, ReplayPreview, ReplayStatus};
pub(crate) use saga::{SagaDefinition, SagaDefinitionPage, SagaDefinitionStatus, SagaPage, SagaStatistics, SagaStatus};
pub(crate) use sequencer::{HeldId, HeldList, HeldOutcome, SequencerState};
pub(crate) use snapshot::{Deleted, NewSnapshot, Saved, Snapshot};
pub(crate) use stream::{Appended, EntryPage, Position, StreamInfo, StreamList, StreamPage, Verdicts};
pub(crate) use topic::{GroupDefinition, GroupPage as ConsumerGroupPage, GroupStatus, TopicPage, TopicStatus};
pub(crate) use types::{EventTypeDefinition, EventTypePage, EventTypeSettings, EventTypeStatus};
