//! Queries of snapshots and commits: the collections of Wow's layout, whichever software wrote them. They need no declaration.

use std::sync::Arc;

use annals_core::bson::RawDocumentBuf;
use annals_core::{
    Answered, Condition, DocumentReads, Explained, Invalid, QuerySource, ReadError, RecordError, RecordQuery,
    StoredQuery, limits, snapshot_collection,
};
use async_trait::async_trait;
use mongodb::Database;
use mongodb::error::Error;

use super::filter::Filter;
use super::find::{self, refused, sort_of};
use super::{MongoRecords, document, explain};
use crate::layout::names::event_stream;
use crate::moment::{Moment, Tries};

/// The snapshots and commits of a tenant.
pub(crate) struct MongoDocuments {
    /// The records of the database with the commits.
    commits: Arc<MongoRecords>,
    /// The records of the database with the snapshots.
    snapshots: Arc<MongoRecords>,
    /// Fields of commits with an index that makes a look-up selective.
    indexed: Arc<[&'static str]>,
}

impl MongoDocuments {
    pub(crate) fn new(commits: Arc<MongoRecords>, snapshots: Arc<MongoRecords>, indexed: Arc<[&'static str]>) -> Self {
        Self { commits, snapshots, indexed }
    }

    /// Returns where the documents of a source are.
    fn place(&self, source: &QuerySource) -> Result<(&Database, String), ReadError> {
        let (records, collection) = match source {
            QuerySource::Snapshots(name) => (&self.snapshots, snapshot_collection(name)?),
            QuerySource::Commits(name) => (&self.commits, event_stream(name)?),
        };
        records.open()?;
        Ok((&records.database, collection))
    }
}

#[async_trait]
impl DocumentReads for MongoDocuments {
    async fn find(&self, source: &QuerySource, query: &StoredQuery) -> Result<Vec<RawDocumentBuf>, ReadError> {
        let (database, collection) = self.place(source)?;
        if query.limit == 0 {
            return Ok(Vec::new());
        }
        let filter = Filter::of(&query.condition)?;
        let mut tries = Tries::default();
        let reading = async {
            loop {
                match read(database, &collection, query, &filter, Answered::new(query, source.kind())).await {
                    Err(Ended::Server(error)) if tries.again(&error).await => {}
                    Err(Ended::Server(error)) => return Err(refused(&query.condition, &error).of_reading()),
                    Err(Ended::Refused(error)) => return Err(error.into()),
                    Ok(answer) => return Ok(answer.documents()),
                }
            }
        };
        self.commits.answers.of(reading).await
    }

    async fn count(&self, source: &QuerySource, condition: &Condition) -> Result<u64, ReadError> {
        let (database, collection) = self.place(source)?;
        let counted = self.commits.answers.of(find::count(database, &collection, condition, u64::MAX)).await;
        counted.map_err(RecordError::of_reading)
    }

    async fn explain(&self, source: &QuerySource, query: &StoredQuery) -> Result<Explained, ReadError> {
        let (database, collection) = self.place(source)?;
        let StoredQuery { condition, sort, .. } = query.clone();
        let wanted = query.skip.saturating_add(query.limit);
        let limit = usize::try_from(wanted).unwrap_or(usize::MAX).min(limits::PAGE_MAX);
        let asked = RecordQuery { condition, sort, limit, ..RecordQuery::new(collection) };
        let explained = self.commits.answers.of(explain::explain(database, &asked, None)).await;
        explained.map_err(RecordError::of_reading)
    }

    fn reads_every_commit(&self, _source: &QuerySource, condition: &Condition) -> bool {
        !self.indexed.iter().any(|field| condition.texts_of(field).is_some())
    }
}

enum Ended {
    Server(Error),
    Refused(Invalid),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl From<Invalid> for Ended {
    fn from(error: Invalid) -> Self {
        Self::Refused(error)
    }
}

/// Reads the requested documents at a single point in time. If the server cannot evaluate the condition, skipping and counting happen
/// here.
async fn read<'q>(
    database: &Database,
    collection: &str,
    query: &'q StoredQuery,
    filter: &Filter,
    mut answer: Answered<'q>,
) -> Result<Answered<'q>, Ended> {
    let Moment { database, mut session } = Moment::of(database).await?;
    let documents = database.collection::<RawDocumentBuf>(collection);
    let mut find = documents.find(filter.ask.clone()).sort(sort_of(&query.sort)).allow_disk_use(true);
    let mut skip = 0;
    if filter.rest.is_some() {
        skip = query.skip;
    } else {
        // The server requires the sum of both to fit into 63 bits.
        let before = query.skip.min(i64::MAX as u64);
        let most = query.limit.min(i64::MAX as u64 - before);
        find = find.skip(before).limit(if query.limit == u64::MAX { 0 } else { most.cast_signed() });
    }
    let mut cursor = find.session(&mut session).await?;
    while (answer.len() as u64) < query.limit && cursor.advance(&mut session).await? {
        let given = document::given(cursor.current());
        if filter.rest.as_ref().is_some_and(|rest| !rest.matches(&given)) {
            continue;
        }
        if skip > 0 {
            skip -= 1;
            continue;
        }
        answer.add(&given)?;
    }
    Ok(answer)
}
