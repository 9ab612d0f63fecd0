//! The HTTP client: one tenant's log on a server, behind the same port as a log in this process.

mod address;
mod answers;
mod archive;
mod backup;
mod browse;
#[cfg(feature = "s3")]
mod bucket;
#[cfg(feature = "s3")]
mod bucket_line;
mod commits;
mod credentials;
mod dead_letters;
mod doctor;
mod filters;
mod groups;
mod handlers;
mod health;
mod horizon;
mod http;
#[cfg(feature = "server")]
mod key_fetcher;
mod keys;
mod line;
mod partners;
mod projections;
mod queries;
mod queue;
mod records;
mod replays;
mod retry_after;
mod sagas;
mod sending;
mod sequencing;
mod snapshots;
mod streams;
mod tls;
mod topics;
mod traces;
mod transactions;
mod types;
mod waits;

use std::path::PathBuf;
use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, Clock, Code,
    CommitError, CommitOutcome, DEFAULT_SCOPE, EventLog, Invalid, KnownAggregate, LogPage, LogQuery, LogStats,
    NewCommit, NewTransaction, OpenError, Reached, ReadError, RecordedCommit, SequenceNumber, StoreError, Timestamp,
    TransactionError, Version, new_uuid, wire, wire::binary::FoundEnd,
};
use annals_system::{SystemClock, SystemRandomness};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

pub use self::archive::ArchiveClient;
pub use self::backup::BackupStream;
pub use self::browse::BrowseClient;
#[cfg(feature = "s3")]
pub(crate) use self::bucket::BucketFiles;

use self::answers::{Exists, Ids, Names};
use self::commits::{Commits, Reply};
use self::http::{Answer, Happening, Http};

pub use self::credentials::CredentialsClient;
pub use self::dead_letters::DeadLettersClient;
pub use self::filters::FiltersClient;
pub use self::groups::GroupsClient;
pub use self::handlers::HandlersClient;
pub use self::horizon::{HorizonClient, HttpProducers};
#[cfg(feature = "server")]
pub use self::key_fetcher::KeyFetcher;
pub use self::keys::KeysClient;
pub use self::partners::PartnersClient;
pub use self::projections::ProjectionsClient;
pub use self::queries::QueriesClient;
pub use self::queue::QueuesClient;
pub use self::records::RecordsClient;
pub use self::replays::ReplaysClient;
pub use self::sagas::SagasClient;
pub use self::sending::{HttpSending, Resolve, Resolved};
pub use self::sequencing::SequencingClient;
pub use self::snapshots::SnapshotsClient;
pub use self::streams::StreamsClient;
pub use self::topics::TopicsClient;
pub use self::traces::{OtlpOptions, OtlpSpans};
pub use self::types::TypesClient;
use self::waits::{Wait, Waits};

/// The characters that are percent-encoded in a path segment or a query value: all except those that RFC 3986 leaves unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The credential that a client sends and the certificate authorities that it trusts. `Debug` does not show the credential.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ClientOptions {
    /// An API key, or a JSON Web Token of an issuer that the server accepts. It is sent with every request.
    pub credential: Option<String>,
    /// A PEM file with the authorities that may sign the server's certificate. If absent, the client trusts the system's authorities.
    pub authorities: Option<PathBuf>,
}

impl std::fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has_credential = self.credential.is_some();
        f.debug_struct("ClientOptions")
            .field("has_credential", &has_credential)
            .field("authorities", &self.authorities)
            .finish()
    }
}

/// The event log of one tenant and scope of a server.
///
/// It keeps the contract of [`EventLog`]. Concurrent commits share a request, and each has its own outcome. Clones share the connections.
///
/// A commit or transaction without a request id is given one, so that it can be retried safely. If the connection breaks, the client
/// retries once. If the outcome is still unknown, it returns [`StoreError::Unreachable`], and the caller may retry with the same request
/// id.
#[derive(Clone)]
pub struct Client {
    http: Http,
    commits: Commits,
    waits: Waits,
    scope: String,
    random: Arc<SystemRandomness>,
}

impl Client {
    /// Creates a client for the log of `tenant` and `scope` at the server `base`, for example `http://127.0.0.1:4000`. Sends nothing yet.
    ///
    /// # Errors
    /// `invalid_config` if `base` is not an address of that form.
    pub fn new(base: &str, tenant: &str, scope: &str) -> Result<Self, OpenError> {
        Self::with(base, tenant, scope, &ClientOptions::default())
    }

    /// Creates a client as [`new`](Self::new) does, with a credential, or with custom certificate authorities for `https://` addresses.
    ///
    /// # Errors
    /// `invalid_config` if `base` is not an address of that form, or an option cannot be used.
    pub fn with(base: &str, tenant: &str, scope: &str, options: &ClientOptions) -> Result<Self, OpenError> {
        let http = Http::new(base, tenant, options).map_err(|message| OpenError::new(Code::InvalidConfig, message))?;
        let commits = Commits::new(http.clone());
        Ok(Self { http, commits, waits: Waits::default(), scope: scope.to_owned(), random: Arc::default() })
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: String) -> Result<T, ReadError> {
        answers::read(&self.answer(&path, "application/json").await?)
    }

    async fn answer(&self, path: &str, accept: &'static str) -> Result<Answer, StoreError> {
        // The server may close a pooled connection just as it is reused, so a read that breaks off is retried once.
        match self.http.get(path, accept).await {
            Ok(answer) => Ok(answer),
            Err(_) => self.http.get(path, accept).await.map_err(StoreError::Unreachable),
        }
    }

    /// Reads commits and passes each one to `take`.
    async fn find(&self, path: String, take: impl FnMut(RecordedCommit)) -> Result<FoundEnd, ReadError> {
        answers::read_found(&self.answer(&path, commits::MEDIA_TYPE).await?, take)
    }

    /// Sends a commit in a request of its own, and retries once if the connection breaks, which its request id makes safe.
    async fn commit_alone(&self, document: Bytes) -> Result<Reply, StoreError> {
        let send = || self.http.document(Method::POST, "/v1/commits", document.clone());
        let answer = match send().await {
            Ok(answer) => answer,
            Err(_) => send().await.map_err(StoreError::Unreachable)?,
        };
        Ok(if answer.status.is_success() { Reply::Document(answer.body) } else { Reply::Refusal(answer) })
    }

    fn check_scope(&self) -> Result<(), Invalid> {
        if self.scope == DEFAULT_SCOPE {
            return Ok(());
        }
        let message = format!("{:?} does not accept commits; commit to the default scope", self.scope);
        Err(Invalid::new(Code::InvalidQuery, "scope", message))
    }

    fn path(&self, segments: &[&str]) -> Path {
        let path = Path::below(segments);
        if self.scope != DEFAULT_SCOPE { path.with("scope", &self.scope) } else { path }
    }
}

/// A path with its query, under construction.
struct Path(String);

impl Path {
    /// Returns the path of these segments below `/v1`.
    fn below(segments: &[&str]) -> Self {
        let mut path = String::from("/v1");
        for segment in segments {
            path.push('/');
            path.extend(utf8_percent_encode(segment, RESERVED));
        }
        path.push('?');
        Self(path)
    }

    fn with(mut self, key: &str, value: &str) -> Self {
        if !self.0.ends_with('?') {
            self.0.push('&');
        }
        self.0.push_str(key);
        self.0.push('=');
        self.0.extend(utf8_percent_encode(value, RESERVED));
        self
    }

    fn number(self, key: &str, value: impl std::fmt::Display) -> Self {
        self.with(key, &value.to_string())
    }

    fn maybe(self, key: &str, value: Option<impl std::fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(key, &value.to_string()),
            None => self,
        }
    }

    fn done(mut self) -> String {
        if self.0.ends_with('?') {
            self.0.pop();
        }
        self.0
    }
}

#[async_trait]
impl EventLog for Client {
    async fn commit(&self, mut commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        // Validate here as the server does, to save the round trip. A commit that breaks a rule may not even fit into a body.
        commit.validate()?;
        self.check_scope()?;
        if commit.request_id.is_none() {
            let id = new_uuid(SystemClock.now(), &*self.random);
            commit.request_id = Some(id.to_string().into());
        }
        let mut document = Vec::new();
        wire::binary::write_commit(&commit, &mut document);
        let reply = match commit.wait.until {
            // A long wait gets a request of its own, so that it cannot delay the others.
            Reached::Stage(_) => self.commit_alone(document.into()).await?,
            _ => self.commits.send(document.into()).await.map_err(StoreError::Unreachable)?,
        };
        answers::committed(reply, &commit)
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        self.send_transaction(transaction).await
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        query.validate()?;
        let aggregate = query.aggregate;
        let mut path = self.path(&["aggregates", &aggregate.name, &aggregate.id, "commits"]);
        path = path.number("from_version", query.from_version).number("limit", query.limit);
        path = path.maybe("to_version", (query.to_version != Version::MAX).then_some(query.to_version));
        path = path.maybe("from_time", query.from_time.map(writable)).maybe("to_time", query.to_time.map(writable));
        path = path.maybe("last", query.last.then_some(true));
        path = path.maybe("tenant_id", query.tenant_id);
        let mut commits = Vec::new();
        let end = self.find(path.done(), |commit| commits.push(commit)).await?;
        Ok(AggregateCommits { commits, version: end.version })
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        let path = self.path(&["aggregates", &aggregate.name, &aggregate.id, "requests", request_id]).done();
        Ok(self.get::<Exists>(path).await?.exists)
    }

    async fn request_outcome(
        &self,
        aggregate: &Aggregate,
        request_id: &str,
    ) -> Result<Option<CommitOutcome>, ReadError> {
        let path = self.path(&["aggregates", &aggregate.name, &aggregate.id, "requests", request_id]).done();
        Ok(self.get::<Exists>(path).await?.outcome()?)
    }

    async fn aggregate_names(&self, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
        query.validate()?;
        let path = self.path(&["aggregates"]).maybe("after", query.after).number("limit", query.limit);
        Ok(self.get::<Names>(path.done()).await?.names)
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        query.validate()?;
        let path = self.path(&["aggregates", &query.name]).maybe("after", query.after).number("limit", query.limit);
        Ok(self.get::<Ids>(path.done()).await?.into())
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        query.validate()?;
        let filter = query.filter;
        let mut path = self.path(&["log"]).maybe("from", query.from).number("limit", query.limit);
        path = path.maybe("backwards", query.backwards.then_some(true));
        path = path.maybe("types", (!filter.types.is_empty()).then(|| wire::format_list(&filter.types)));
        path = path.maybe("tags", (!filter.tags.is_empty()).then(|| wire::format_list(&filter.tags)));
        path = path.maybe(
            "aggregate",
            filter.aggregate.map(|wanted| match wanted.id {
                Some(id) => format!("{}/{id}", wanted.name),
                None => wanted.name.to_string(),
            }),
        );
        let mut events = Vec::new();
        let end = self.find(path.done(), |commit| events.extend(commit.events)).await?;
        Ok(LogPage { events, next: end.next, head: end.head })
    }

    async fn head(&self) -> Result<SequenceNumber, ReadError> {
        // No event lies past the head, so the answer carries none.
        let path = self.path(&["log"]).number("from", SequenceNumber::MAX).number("limit", 1).done();
        Ok(self.find(path, drop).await?.head)
    }

    async fn stats(&self, _progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<LogStats, ReadError> {
        self.get(self.path(&["stats"]).done()).await
    }

    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
        // The server may have closed a kept stream in the meantime; if so, a new one is opened below.
        if let Some(mut wait) = self.waits.take(head)
            && let Ok(Ok(past)) = wait.past(head).await
        {
            self.waits.keep(wait);
            return Ok(past);
        }
        let path = self.path(&["log", "follow"]).number("from", head).done();
        let mut wait = match self.http.stream(&path).await.map_err(StoreError::Unreachable)? {
            Err(answer) => return Err(refused(&answer)),
            Ok(stream) => Wait { stream, next: head },
        };
        match wait.past(head).await.map_err(StoreError::Unreachable)? {
            Ok(past) => {
                self.waits.keep(wait);
                Ok(past)
            }
            Err(Some(Happening::Problem(answer))) => Err(refused(&answer)),
            Err(_) => Err(StoreError::Closed.into()),
        }
    }
}

/// Clamps a time to the range that RFC 3339 can represent. No event has a time outside it, so a range still matches the same events.
fn writable(time: Timestamp) -> Timestamp {
    time.clamp(Timestamp::FIRST_WRITABLE, Timestamp::LAST_WRITABLE)
}

fn refused(answer: &Answer) -> ReadError {
    match answers::read::<serde::de::IgnoredAny>(answer) {
        Err(error) => error,
        Ok(_) => StoreError::Unreachable("the response is a page instead of a stream".to_owned()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_time_can_be_written() {
        for millis in [i64::MIN, i64::MAX] {
            let time = writable(Timestamp::from_millis(millis));
            assert_eq!(Timestamp::parse(&time.to_string()), Ok(time));
        }
    }
}
