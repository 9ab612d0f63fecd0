//! The port for sending requests to partners. This crate contains no network code.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

/// A request to a partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The URL to which it is posted.
    pub url: String,
    /// Its headers.
    pub headers: Vec<(&'static str, String)>,
    /// Its body.
    pub body: Bytes,
    /// The time limit, including the response.
    pub timeout: Duration,
}

/// The response of a partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Its status.
    pub status: u16,
    /// The requested wait, if it is given in seconds.
    pub retry_after: Option<Duration>,
    /// The beginning of its body.
    pub said: String,
}

/// Posts requests to partners. An implementation follows no redirect, refuses addresses that are not allowed, connects to exactly the
/// address that it has checked, and reads a bounded part of the response.
#[async_trait]
pub trait Sending: Send + Sync + 'static {
    /// Posts a request and returns the response.
    ///
    /// # Errors
    /// A sentence that says why there is no response. Whether the partner has accepted the event is then unknown.
    async fn send(&self, request: Outgoing) -> Result<Answered, String>;

    /// Checks a URL without sending, as far as possible: a literal address that is not allowed is refused.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the URL.
    fn check(&self, url: &str) -> Result<(), String>;
}

/// Refuses to send: for programs that have no HTTP client.
pub struct NoSending;

#[async_trait]
impl Sending for NoSending {
    async fn send(&self, request: Outgoing) -> Result<Answered, String> {
        self.check(&request.url).map(|()| Answered { status: 503, retry_after: None, said: String::new() })
    }

    fn check(&self, url: &str) -> Result<(), String> {
        Err(format!("{url} cannot be reached from this program; give its task host `annals::HttpSending`"))
    }
}
