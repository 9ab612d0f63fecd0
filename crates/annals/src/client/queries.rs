//! The queries of a server's tenant, over HTTP, behind the same port as queries in this process.

use annals_core::bson::raw::RawDocumentBuf;
use annals_core::wire::queries as wire;
use annals_core::wire::records;
use annals_core::{
    Code, Condition, DocumentQuery, Explained, Invalid, Paged, Pagination, Queries, QuerySource, ReadError, StoreError,
};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;

use super::http::Answer;
use super::records::refused;
use super::{Client, Path, answers};

/// The queries of one tenant of a server. It keeps the contract of [`Queries`], within the cost limits of the server. Unless the server
/// runs in development mode, it refuses queries that exceed a limit, with a code for each limit.
#[derive(Clone)]
pub struct QueriesClient(Client);

impl Client {
    /// Returns the queries of the same tenant, over the same connections. They read the default scope.
    pub fn queries(&self) -> QueriesClient {
        QueriesClient(self.clone())
    }
}

impl QueriesClient {
    /// Sends a query, and retries once if the connection breaks: the server may have closed a pooled connection just as it was reused.
    async fn ask(&self, source: &QuerySource, how: &str, body: RawDocumentBuf) -> Result<Answer, ReadError> {
        source.validate()?;
        let kind = match source {
            QuerySource::Snapshots(_) => "snapshots",
            QuerySource::Commits(_) => "commits",
        };
        let path = Path::below(&["query", source.aggregate(), kind, how]).done();
        let body = Bytes::from(body.into_bytes());
        let answer = match self.0.http.document(Method::POST, &path, body.clone()).await {
            Ok(answer) => answer,
            Err(_) => self.0.http.document(Method::POST, &path, body).await.map_err(StoreError::Unreachable)?,
        };
        if answer.status.is_success() { Ok(answer) } else { Err(refused(&answer).of_reading()) }
    }
}

fn read<T>(answer: &Answer, read: impl Fn(&[u8]) -> Result<T, String>) -> Result<T, ReadError> {
    Ok(read(&answer.body).map_err(|error| answers::unknown(&format!("{} with {error}", answer.status)))?)
}

/// Enforces the caller's limit in bytes; the server enforces its own.
fn fits(documents: Vec<RawDocumentBuf>, bytes_max: Option<usize>) -> Result<Vec<RawDocumentBuf>, ReadError> {
    let bytes: usize = documents.iter().map(|document| document.as_bytes().len()).sum();
    match bytes_max.filter(|most| bytes > *most) {
        None => Ok(documents),
        Some(most) => {
            let message = format!("is more than {most} bytes; request fewer documents, or fewer of their fields");
            Err(Invalid::new(Code::QueryAnswerTooLarge, "answer", message).into())
        }
    }
}

#[async_trait]
impl Queries for QueriesClient {
    async fn list(
        &self,
        source: &QuerySource,
        query: DocumentQuery,
        limit: u64,
    ) -> Result<Vec<RawDocumentBuf>, ReadError> {
        let answer = self.ask(source, "list", wire::write_list_query(&query, limit)?).await?;
        fits(read(&answer, wire::read_documents)?, query.bytes_max)
    }

    async fn paged(
        &self,
        source: &QuerySource,
        query: DocumentQuery,
        page: Pagination,
    ) -> Result<Paged<RawDocumentBuf>, ReadError> {
        let answer = self.ask(source, "paged", wire::write_paged_query(&query, page)?).await?;
        let Paged { total, list } = read(&answer, wire::read_paged)?;
        Ok(Paged { total, list: fits(list, query.bytes_max)? })
    }

    async fn count(&self, source: &QuerySource, condition: &Condition) -> Result<u64, ReadError> {
        let answer = self.ask(source, "count", records::write_condition(condition)?).await?;
        read(&answer, records::read_count)
    }

    async fn explain(&self, source: &QuerySource, query: DocumentQuery, limit: u64) -> Result<Explained, ReadError> {
        let answer = self.ask(source, "explain", wire::write_list_query(&query, limit)?).await?;
        read(&answer, records::read_explained)
    }

    async fn single(&self, source: &QuerySource, query: DocumentQuery) -> Result<Option<RawDocumentBuf>, ReadError> {
        match self.ask(source, "single", wire::write_single_query(&query)?).await {
            Ok(answer) => {
                let document =
                    |body: &[u8]| RawDocumentBuf::from_bytes(body.to_vec()).map_err(|error| error.to_string());
                Ok(fits(vec![read(&answer, document)?], query.bytes_max)?.pop())
            }
            Err(ReadError::Invalid(invalid)) if invalid.code == Code::NothingFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
