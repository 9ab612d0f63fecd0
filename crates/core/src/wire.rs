//! The JSON shapes of the HTTP API. The server, its client, the command line and import files share them, so that they cannot differ.

mod answer;
pub mod binary;
mod commit;
mod event;
mod key;
mod list;
mod plain;
pub mod queries;
pub mod records;
mod snapshot;
mod stream;
mod transaction;
mod verdicts;

pub use answer::write_commit_answer;
pub use commit::{
    AppendConditionBody, CommitAnswer, CommitBody, CommittedEvent, WaitBody, parse_commit, parse_json, reached_stage,
};
pub use event::{CommitView, EventLine, EventView};
pub use key::{
    read_found_key, read_key_change, read_key_changed, read_key_page, read_key_rollback, write_found_key,
    write_key_change, write_key_changed, write_key_page, write_key_rollback,
};
pub use list::{format_list, parse_list};
pub use snapshot::{read_saved, read_snapshot, write_saved, write_snapshot};
pub use stream::StreamEventView;
pub use transaction::{ExpectationBody, TransactionBody, parse_transaction};
pub use verdicts::{AppendedAnswer, IncludedBody, PositionAnswer, PositionRange, VerdictsBody};
