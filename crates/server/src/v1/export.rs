//! Exports of the browse view: any number of rows in one response, of which one page is in memory, at the client's pace.

use std::sync::Arc;

use annals_core::browse::{Browse, BrowseQuery, CSV_HEADER, ExportFormat};
use annals_core::bson::RawDocumentBuf;
use annals_core::{ReadError, StoreError};
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;

use super::lines::CHUNK_BYTES;
use crate::caller::Caller;
use crate::media;
use crate::options::Stop;
use crate::problem::Problem;
use crate::state::Server;

/// Responds with at most `rows` of the rows that a query finds. If the response cannot be finished, the connection is cut, so that no
/// client takes a part for the whole.
pub(super) async fn answer(
    server: &Server,
    browse: Arc<dyn Browse>,
    caller: Caller,
    (format, query, rows): (ExportFormat, BrowseQuery, Option<usize>),
) -> Result<Response, Problem> {
    let (media_type, extension) = match format {
        ExportFormat::Csv => (media::CSV, "csv"),
        ExportFormat::JsonLines => (media::LINES, "jsonl"),
    };
    let mut export = Export {
        browse,
        caller,
        format,
        query,
        left: rows.unwrap_or(usize::MAX),
        page: Vec::new().into_iter(),
        ended: false,
        begun: matches!(format, ExportFormat::JsonLines),
        stop: server.options.stop.clone(),
    };
    // A failure before the first page is still reported as a problem.
    export.turn_page().await?;
    let now: String = server.host.clock().now().nearest_writable().to_string();
    let stamp: String = now.chars().filter(char::is_ascii_digit).take(14).collect();
    let (day, time) = stamp.split_at(stamp.len().min(8));
    let name = format!("attachment; filename=\"events_export_{day}_{time}.{extension}\"");
    let chunks = stream::try_unfold(export, |mut export| async move {
        match export.chunk().await {
            Ok(chunk) => Ok(chunk.map(|chunk| (chunk, export))),
            Err(problem) => {
                export.caller.warn_broken_off(problem.code(), "an export");
                // An error makes the connection discard what it has not sent, so it gets a chance to send the last lines first.
                tokio::task::yield_now().await;
                Err(std::io::Error::other("the events could not be read completely"))
            }
        }
    });
    let headers = [(header::CONTENT_TYPE, media_type), (header::CONTENT_DISPOSITION, name.as_str())];
    Ok((headers, Body::from_stream(chunks)).into_response())
}

struct Export {
    browse: Arc<dyn Browse>,
    caller: Caller,
    format: ExportFormat,
    query: BrowseQuery,
    /// How many rows may still be sent.
    left: usize,
    /// The rest of the page that was read last.
    page: std::vec::IntoIter<RawDocumentBuf>,
    ended: bool,
    /// Whether the header was written, if the format has one.
    begun: bool,
    stop: Stop,
}

impl Export {
    async fn turn_page(&mut self) -> Result<(), Problem> {
        self.query.limit = self.query.limit.min(self.left);
        let (found, cursor) = self.browse.rows(self.query.clone()).await?;
        self.left -= found.len().min(self.left);
        self.ended = cursor.is_none() || self.left == 0;
        self.query.cursor = cursor;
        self.page = found.into_iter();
        Ok(())
    }

    /// Returns the next rows, or `None` at the end.
    async fn chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        if !std::mem::replace(&mut self.begun, true) {
            return Ok(Some(Bytes::from_static(CSV_HEADER.as_bytes())));
        }
        while self.page.as_slice().is_empty() {
            if self.ended {
                return Ok(None);
            }
            self.turn_page().await?;
        }
        if self.stop.is_stopped() {
            return Err(ReadError::Store(StoreError::Closed).into());
        }
        let mut chunk = String::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        while chunk.len() < CHUNK_BYTES
            && let Some(document) = self.page.next()
        {
            chunk.push_str(&self.format.row(&document));
        }
        Ok(Some(chunk.into()))
    }
}
