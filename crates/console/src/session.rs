//! Sessions. A credential is presented once and kept in this process under a random id, which the browser sends as a cookie. Every
//! request checks the credential again, so a session ends when its credential is revoked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_core::{Clock, Timestamp};
use axum::http::{HeaderMap, HeaderValue, header};
use sha2::{Digest, Sha256};

/// How long a session lasts.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// How long a session may be idle.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(2 * 60 * 60);
/// The maximum number of sessions. When another one begins, the session that has been idle longest ends.
const SESSIONS_MAX: usize = 1_000;
/// The longest key or token.
const CREDENTIAL_BYTES_MAX: usize = 16 * 1024;
const COOKIE: &str = "annals_session";

/// The sessions of a server.
pub(crate) struct Sessions {
    /// By the digest of their id, so that no usable id is in memory.
    open: Mutex<HashMap<[u8; 32], Session>>,
    clock: Arc<dyn Clock>,
    /// The secret that tokens are derived from.
    secret: [u8; 32],
    /// Whether cookies are sent over encrypted connections only.
    secure: bool,
}

struct Session {
    credential: HeaderValue,
    begun: Timestamp,
    used: Timestamp,
}

/// The session that a request presents.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    /// The id of the session.
    pub id: Option<String>,
    /// The credential as headers; empty if there is no session.
    pub credential: HeaderMap,
}

impl Sessions {
    /// Creates an empty set of sessions.
    pub fn new(clock: Arc<dyn Clock>, secure: bool) -> Result<Self, String> {
        Ok(Self { open: Mutex::default(), clock, secret: annals_system::secret_bytes()?, secure })
    }

    /// Begins a session, and returns its cookie.
    pub fn begin(&self, credential: HeaderValue) -> Result<HeaderValue, String> {
        let id = hex(&annals_system::secret_bytes::<32>()?);
        let now = self.clock.now();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, session| session.is_open(now));
        if open.len() >= SESSIONS_MAX
            && let Some(idle) = open.iter().min_by_key(|(_, session)| session.used.as_millis()).map(|(id, _)| *id)
        {
            open.remove(&idle);
        }
        open.insert(digest(&[id.as_bytes()]), Session { credential, begun: now, used: now });
        self.cookie(&id, AGE_MAX)
    }

    /// Returns the session that a request presents, if it is open.
    pub fn shown(&self, headers: &HeaderMap) -> Shown {
        let Some(id) = cookie(headers) else { return Shown::default() };
        let now = self.clock.now();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let key = digest(&[id.as_bytes()]);
        let Some(session) = open.get_mut(&key) else { return Shown::default() };
        if !session.is_open(now) {
            open.remove(&key);
            return Shown::default();
        }
        session.used = now;
        let mut credential = HeaderMap::new();
        credential.insert(header::AUTHORIZATION, session.credential.clone());
        Shown { id: Some(id.to_owned()), credential }
    }

    /// Ends a session, and returns a cookie that deletes the session's cookie.
    pub fn end(&self, shown: &Shown) -> Result<HeaderValue, String> {
        if let Some(id) = &shown.id {
            self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&digest(&[id.as_bytes()]));
        }
        self.cookie("", Duration::ZERO)
    }

    /// Returns the token that the acts of a caller must contain. A page of another origin cannot read it.
    pub fn token(&self, shown: &Shown, who: &str) -> String {
        hex(&digest(&[&self.secret, shown.id.as_deref().unwrap_or_default().as_bytes(), b" ", who.as_bytes()]))
    }

    fn cookie(&self, id: &str, age: Duration) -> Result<HeaderValue, String> {
        let secure = if self.secure { "; Secure" } else { "" };
        let cookie = format!("{COOKIE}={id}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", age.as_secs());
        HeaderValue::from_str(&cookie).map_err(|error| error.to_string())
    }
}

impl Session {
    fn is_open(&self, now: Timestamp) -> bool {
        now.since(self.begun) < AGE_MAX && now.since(self.used) < IDLE_MAX
    }
}

/// Returns the header for a credential, or `None` if the text cannot be a credential.
pub(crate) fn authorization(credential: &str) -> Option<HeaderValue> {
    let credential = credential.trim();
    if credential.is_empty() || credential.len() > CREDENTIAL_BYTES_MAX {
        return None;
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {credential}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Compares two tokens in constant time.
pub(crate) fn same(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |differs, (one, other)| differs | (one ^ other));
    one.len() == other.len() && differs == 0
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, id)| id)
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
    }
    digest.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use annals_core::Sleep;

    use super::*;

    #[derive(Debug, Default)]
    struct SetClock(AtomicI64);

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn sleep_until(&self, _: Timestamp) -> Sleep<'_> {
            Box::pin(std::future::pending())
        }

        fn sleep(&self, _: Duration) -> Sleep<'_> {
            Box::pin(std::future::pending())
        }
    }

    fn sent(cookie: &HeaderValue) -> HeaderMap {
        let pair = cookie.to_str().expect("text").split(';').next().expect("a pair").to_owned();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, format!("other=1; {pair}").parse().expect("a header value"));
        headers
    }

    #[test]
    fn a_session_ends_with_its_age_without_requests_and_when_it_is_ended() {
        let clock = Arc::new(SetClock::default());
        let sessions = Sessions::new(Arc::clone(&clock) as Arc<dyn Clock>, true).expect("secrets");
        let begin = || sessions.begin(authorization("ann_x").expect("a header")).expect("a cookie");
        let cookie = begin();
        assert!(cookie.to_str().expect("text").ends_with("HttpOnly; SameSite=Strict; Secure"));
        let shown = sessions.shown(&sent(&cookie));
        assert_eq!(shown.credential.get(header::AUTHORIZATION).expect("it has one"), "Bearer ann_x");
        let idle = i64::try_from(IDLE_MAX.as_millis()).expect("small");
        for step in 1..=6 {
            clock.0.store(step * (idle - 1), Ordering::Relaxed);
            assert!(sessions.shown(&sent(&cookie)).id.is_some(), "{step}");
        }
        clock.0.store(6 * idle, Ordering::Relaxed);
        assert!(sessions.shown(&sent(&cookie)).id.is_none(), "it is too old");
        let cookie = begin();
        clock.0.store(7 * idle, Ordering::Relaxed);
        assert!(sessions.shown(&sent(&cookie)).id.is_none(), "it was idle");
        let cookie = begin();
        sessions.end(&sessions.shown(&sent(&cookie))).expect("a cookie");
        assert!(sessions.shown(&sent(&cookie)).id.is_none());
    }

    #[test]
    fn a_token_belongs_to_one_session_and_one_caller() {
        let sessions = Sessions::new(Arc::new(SetClock::default()), false).expect("secrets");
        let shown = |id: &str| Shown { id: Some(id.to_owned()), credential: HeaderMap::new() };
        let token = sessions.token(&shown("1"), "key:a");
        assert!(same(&token, &sessions.token(&shown("1"), "key:a")));
        assert!(
            !same(&token, &sessions.token(&shown("2"), "key:a")) && !same(&token, &sessions.token(&shown("1"), "b"))
        );
        assert!(!same(&token, "") && !same("", &token));
    }

    #[test]
    fn there_is_a_limit_of_sessions_and_the_idlest_one_goes() {
        let clock = Arc::new(SetClock::default());
        let sessions = Sessions::new(Arc::clone(&clock) as Arc<dyn Clock>, false).expect("secrets");
        let cookies: Vec<HeaderValue> = (0..=SESSIONS_MAX)
            .map(|at| {
                clock.0.store(at as i64, Ordering::Relaxed);
                sessions.begin(authorization("ann_x").expect("a header")).expect("a cookie")
            })
            .collect();
        assert!(sessions.shown(&sent(&cookies[0])).id.is_none());
        assert!(sessions.shown(&sent(&cookies[1])).id.is_some());
        assert_eq!(sessions.open.lock().expect("not poisoned").len(), SESSIONS_MAX);
    }
}
