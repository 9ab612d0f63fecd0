//! The port of sending: how a request reaches a partner. This crate knows no network.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

/// A request to a partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Where it is posted to.
    pub url: String,
    /// Its headers.
    pub headers: Vec<(&'static str, String)>,
    /// Its body.
    pub body: Bytes,
    /// How long it may take, with its answer.
    pub timeout: Duration,
}

/// The answer of a partner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Its status.
    pub status: u16,
    /// How long it asks to wait, if it says so in seconds.
    pub retry_after: Option<Duration>,
    /// The beginning of its body.
    pub said: String,
}

/// Posts requests to partners. Implementations follow no redirect, refuse addresses that are not allowed, connect to the very address that
/// they have checked, and read a bounded part of the answer.
#[async_trait]
pub trait Sending: Send + Sync + 'static {
    /// Posts a request and returns the answer.
    ///
    /// # Errors
    /// A sentence that says why there is no answer. Whether the partner has taken the event is then unknown.
    async fn send(&self, request: Outgoing) -> Result<Answered, String>;

    /// Checks what can be checked of a URL without sending: a literal address that is not allowed is refused.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    fn check(&self, url: &str) -> Result<(), String>;
}

/// Reaches no partner.
pub struct NoSending;

#[async_trait]
impl Sending for NoSending {
    async fn send(&self, request: Outgoing) -> Result<Answered, String> {
        self.check(&request.url).map(|()| Answered { status: 503, retry_after: None, said: String::new() })
    }

    fn check(&self, url: &str) -> Result<(), String> {
        Err(format!("{url} is not reached from this program: give its task host `annals::HttpSending`"))
    }
}
