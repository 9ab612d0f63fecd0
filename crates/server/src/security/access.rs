//! An authenticated caller: its grant, its rate limits, and when its access ends.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_core::credentials::{Bucket, Grant, Rate};
use annals_core::{Clock, Code, Timestamp, limits};
use annals_runtime::KnownCredential;
use annals_system::{Instant, sleep};
use axum::http::{HeaderMap, header};
use futures_util::future::BoxFuture;

use crate::problem::Problem;

/// An authenticated caller. Its `Debug` form is its identity.
pub(crate) struct Access {
    /// Its identity: `key:ID`, `jwt:ISSUER/SUBJECT` or `certificate:SUBJECT`.
    pub who: String,
    /// The name of its credential.
    pub name: Option<String>,
    pub grant: Grant,
    pub limits: Arc<Limits>,
    /// When its access expires.
    expires: Option<(Timestamp, Arc<dyn Clock>)>,
    key: Option<Arc<KnownCredential>>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.who)
    }
}

impl Access {
    /// Creates a caller whose access does not expire.
    pub fn new(who: String, name: Option<String>, grant: Grant, limits: Arc<Limits>) -> Self {
        Self { who, name, grant, limits, expires: None, key: None }
    }

    /// Sets when its access expires.
    pub fn until(self, expires: Timestamp, clock: Arc<dyn Clock>) -> Self {
        Self { expires: Some((expires, clock)), ..self }
    }

    /// Creates the holder of a key.
    pub fn of_key(key: Arc<KnownCredential>, limits: Arc<Limits>, clock: Arc<dyn Clock>) -> Self {
        let record = &key.record;
        let access = Self::new(format!("key:{}", record.id), Some(record.name.clone()), record.grant(), limits);
        let expires = record.expires_at().map(|at| (at, clock));
        Self { expires, key: Some(key), ..access }
    }

    /// Returns whether it is the holder of this key in its current version.
    pub fn is_of(&self, key: &Arc<KnownCredential>) -> bool {
        self.key.as_ref().is_some_and(|own| Arc::ptr_eq(own, key))
    }

    /// Returns whether its access has ended.
    pub fn is_ended(&self) -> bool {
        let expired = self.expires.as_ref().is_some_and(|(at, clock)| *at <= clock.now());
        expired || self.key.as_ref().is_some_and(|key| key.is_ended())
    }

    /// Waits until its access ends.
    pub fn ended(&self) -> BoxFuture<'static, ()> {
        let expires = self.expires.clone();
        let revoked = self.key.as_ref().map(|key| key.ended());
        Box::pin(async move {
            let expired = async {
                match expires {
                    Some((at, clock)) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let revoked = async {
                match revoked {
                    Some(revoked) => revoked.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = expired => {}
                () = revoked => {}
            }
        })
    }
}

/// Most bytes of a body that are counted before they arrive. The rest of a larger one is counted once it has been read.
pub(crate) const CHARGED_AHEAD_MAX: u64 = limits::BODY_DRAIN_BYTES_MAX as u64;

/// The rate limits of a caller, over all of its connections to this process.
pub(crate) struct Limits {
    rates: (Rate, Rate),
    begun: Instant,
    /// Requests and bytes.
    used: Mutex<(Bucket, Bucket)>,
}

impl Limits {
    /// Creates limits of requests and bytes per second.
    pub fn new(rates: (Rate, Rate)) -> Self {
        Self { rates, begun: Instant::now(), used: Mutex::default() }
    }

    pub fn rates(&self) -> (Rate, Rate) {
        self.rates
    }

    fn now(&self) -> u64 {
        // The offset makes a burst of one second available from the beginning.
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(2_000_000_000)
    }

    /// Counts a request and its body, or refuses it if a limit is used up.
    pub fn admit(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.rates == (Rate(0), Rate(0)) {
            return Ok(());
        }
        let now = self.now();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.0.check(self.rates.0, now).map_err(|wait| limited("requests", self.rates.0, wait))?;
        used.1.check(self.rates.1, now).map_err(|wait| limited("bytes", self.rates.1, wait))?;
        used.0.charge(self.rates.0, now, 1);
        let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        // Nothing has arrived yet. A length that no body may have must not use up the limit for years.
        used.1.charge(self.rates.1, now, length.unwrap_or(0).min(CHARGED_AHEAD_MAX));
        Ok(())
    }

    /// Waits until the limits allow another message of a call in progress, and counts it as a request.
    pub async fn admitted(&self) {
        while let Err(wait) = self.admit_message() {
            sleep(wait).await;
        }
    }

    fn admit_message(&self) -> Result<(), Duration> {
        if self.rates == (Rate(0), Rate(0)) {
            return Ok(());
        }
        let now = self.now();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.0.check(self.rates.0, now)?;
        used.1.check(self.rates.1, now)?;
        used.0.charge(self.rates.0, now, 1);
        Ok(())
    }

    /// Counts bytes that were received or sent, even beyond the limit. The next request then has to wait.
    pub fn charge(&self, bytes: u64) {
        if self.rates.1 == Rate(0) || bytes == 0 {
            return;
        }
        let now = self.now();
        self.used.lock().unwrap_or_else(PoisonError::into_inner).1.charge(self.rates.1, now, bytes);
    }
}

fn limited(what: &str, rate: Rate, wait: Duration) -> Problem {
    let message = format!("the credential may use {} {what} a second; retry in {} ms", rate.0, wait.as_millis() + 1);
    Problem::new(Code::RateLimited, message).retry_after(wait)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use futures_util::FutureExt;

    use super::*;

    fn declaring(length: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static(length));
        headers
    }

    #[test]
    fn a_length_that_no_body_has_does_not_use_up_the_limit_for_years() {
        let limits = Limits::new((Rate(0), Rate(CHARGED_AHEAD_MAX)));
        limits.admit(&declaring("18446744073709551615")).expect("nothing was used before");
        let later = limits.now() + 2_000_000_000;
        limits.used.lock().expect("no panic").1.check(limits.rates.1, later).expect("it is earned again in a second");
        let limits = Limits::new((Rate(0), Rate(10)));
        limits.admit(&declaring("1000")).expect("nothing was used before");
        assert_eq!(limits.admit(&HeaderMap::new()).expect_err("used up").code(), Code::RateLimited);
    }

    #[tokio::test]
    async fn a_message_of_a_call_that_goes_on_waits_while_the_limits_are_used_up() {
        let limits = Limits::new((Rate(0), Rate(10)));
        assert!(limits.admitted().now_or_never().is_some());
        limits.charge(1_000);
        assert!(limits.admitted().now_or_never().is_none());
        let unlimited = Limits::new((Rate(0), Rate(0)));
        unlimited.charge(1_000);
        assert!(unlimited.admitted().now_or_never().is_some());
    }
}
