//! Live pages, which are rendered again while they are open and sent as server-sent events. The caller is checked each time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream;

use crate::console::Console;
use crate::page::Page;

/// How often a page is rendered.
const EVERY: Duration = Duration::from_secs(2);

struct Looking {
    console: Arc<Console>,
    page: &'static Page,
    headers: HeaderMap,
    uri: Uri,
    /// The content that was sent last.
    last: String,
    begun: bool,
}

/// Returns the events of a page: `page` with its content whenever that has changed, and comments in between.
pub(crate) fn events(console: Arc<Console>, page: &'static Page, headers: HeaderMap, uri: Uri) -> Response {
    let looking = Looking { console, page, headers, uri, last: String::new(), begun: false };
    let body = Body::from_stream(stream::unfold(looking, |mut looking| async move {
        let event = looking.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(event)), looking))
    }));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

impl Looking {
    /// Returns the next event, or `None` when the stream ends.
    async fn next(&mut self) -> Option<String> {
        let api = self.console.api().clone();
        if self.begun {
            let stopped = Box::pin(api.stop().stopped());
            if let Either::Left(_) = select(stopped, api.clock().sleep(EVERY)).await {
                return None;
            }
        }
        self.begun = true;
        let view = self.console.look(self.page, &self.headers, &self.uri).await.ok()?;
        if Console::forbidden(&view, self.page.permission).is_some() {
            return None;
        }
        let content = match (self.page.render)(&view).await {
            Ok(content) => content,
            Err(refused) => refused.notice().to_string(),
        };
        if content == self.last {
            return Some(": unchanged\n\n".to_owned());
        }
        let mut event = "event: page\n".to_owned();
        // A carriage return would end the line, and the rest would be parsed as a field of the event.
        for line in content.replace('\r', "&#13;").lines() {
            event.push_str("data: ");
            event.push_str(line);
            event.push('\n');
        }
        event.push('\n');
        self.last = content;
        Some(event)
    }
}
