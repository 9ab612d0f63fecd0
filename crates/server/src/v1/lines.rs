//! The log as lines of JSON: any number of events in one response, in constant memory, at the client's pace.

use annals_core::{Filter, LogQuery, RecordedEvent, SequenceNumber};
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;

use crate::answer::not_written;
use crate::media;
use crate::options::Stop;
use crate::problem::Problem;
use crate::source::Source;
use crate::state::Server;

/// The approximate number of bytes that are handed to the connection at once.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// Responds with what `query` finds among the events that exist now, at most `limit`.
///
/// If the response cannot be finished (the server stops, the disk fails, the log is damaged), the connection is cut, so that no client
/// takes a part for the whole.
pub(crate) async fn answer(
    server: &Server,
    source: Source,
    query: LogQuery,
    limit: Option<usize>,
) -> Result<Response, Problem> {
    if limit == Some(0) {
        return Err(Problem::query("limit", "must be at least 1"));
    }
    query.validate()?;
    let head = source.log.head().await?;
    let mut lines = Lines {
        source,
        page: Vec::new().into_iter(),
        query,
        head,
        left: limit.unwrap_or(usize::MAX),
        ended: false,
        stop: server.options.stop.clone(),
    };
    // A failure before the first page is still reported as a problem.
    lines.turn_page().await?;
    let chunks = stream::try_unfold(lines, |mut lines| async move {
        match lines.chunk().await {
            Ok(chunk) => Ok(chunk.map(|chunk| (chunk, lines))),
            Err(problem) => {
                lines.source.caller.warn_broken_off(problem.code(), "a stream of lines");
                // An error makes the connection discard what it has not sent, so it gets a chance to send the last lines first.
                tokio::task::yield_now().await;
                Err(std::io::Error::other("the log could not be read completely"))
            }
        }
    });
    Ok(([(header::CONTENT_TYPE, media::LINES)], Body::from_stream(chunks)).into_response())
}

struct Lines {
    source: Source,
    /// The rest of the page that was read last.
    page: std::vec::IntoIter<RecordedEvent>,
    /// The query for the next page.
    query: LogQuery,
    /// The head at the time of the request; later events are left out.
    head: SequenceNumber,
    /// How many events may still be sent.
    left: usize,
    ended: bool,
    stop: Stop,
}

impl Lines {
    async fn turn_page(&mut self) -> Result<(), Problem> {
        if !self.query.backwards && self.query.from.unwrap_or(0) >= self.head {
            return self.reach_end().await;
        }
        self.query.limit = self.query.limit.min(self.left);
        let mut found = self.source.log.read(self.query.clone()).await?;
        self.ended = found.events.is_empty();
        self.query.from = Some(found.next);
        found.events.retain(|event| event.sequence_number < self.head);
        self.left -= found.events.len().min(self.left);
        self.ended |= self.left == 0;
        self.page = found.events.into_iter();
        Ok(())
    }

    /// Ends at the head. A damaged log has a head too, and only a read at the head reports that events are missing after it.
    async fn reach_end(&mut self) -> Result<(), Problem> {
        let at_head = LogQuery { from: Some(self.head), limit: 1, backwards: false, filter: Filter::default() };
        self.source.log.read(at_head).await?;
        self.ended = true;
        Ok(())
    }

    /// Returns the next lines, or `None` at the end.
    async fn chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        while self.page.as_slice().is_empty() {
            if self.ended {
                return Ok(None);
            }
            self.turn_page().await?;
        }
        if self.stop.is_stopped() {
            return Err(annals_core::ReadError::Store(annals_core::StoreError::Closed).into());
        }
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        while chunk.len() < CHUNK_BYTES
            && let Some(event) = self.page.next()
        {
            serde_json::to_writer(&mut chunk, &self.source.view(&event)).map_err(not_written)?;
            chunk.push(b'\n');
        }
        Ok(Some(chunk.into()))
    }
}
