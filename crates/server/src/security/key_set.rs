//! The public keys of an issuer: fetched on demand, cached, and refetched at a limited rate.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use annals_core::Code;
use annals_system::Instant;
use bytes::Bytes;
use serde::Deserialize;

use super::issuers::{Issuer, Keys};
use super::jwt::{PublicKey, Token, read_keys};
use crate::problem::Problem;

/// For keys from a URL: how long they stay fresh, and the minimum time between fetches for tokens with unknown keys.
const URL_PACE: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(30));
/// The same for keys from a file.
const FILE_PACE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(1));
/// How long keys are used although they cannot be refetched.
const STALE_MAX: Duration = Duration::from_secs(24 * 3_600);
/// How long a fetch may take.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// The largest key set.
const KEYS_BYTES_MAX: usize = 1024 * 1024;

/// Keys, and when they were fetched.
type Known = (Arc<Vec<PublicKey>>, Instant);

/// The keys of one issuer.
pub(super) struct KeySet {
    issuer: String,
    source: Option<Keys>,
    /// How long keys stay fresh, and the minimum time between fetches.
    pace: (Duration, Duration),
    known: RwLock<Option<Known>>,
    /// When the last fetch was attempted. Locked during a fetch, so that only one runs at a time.
    tried: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Deserialize)]
struct Discovery {
    jwks_uri: String,
}

impl KeySet {
    pub fn new(issuer: &Issuer) -> Self {
        let (look, fetch) = if matches!(issuer.keys, Some(Keys::File(_))) { FILE_PACE } else { URL_PACE };
        Self {
            pace: (look, issuer.fetch_pace.unwrap_or(fetch)),
            issuer: issuer.issuer.clone(),
            source: issuer.keys.clone(),
            known: RwLock::default(),
            tried: tokio::sync::Mutex::default(),
        }
    }

    fn known(&self) -> Option<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether a key of the issuer signed the token. Keys are fetched if none are known, if they are stale, and for a token with
    /// an unknown key id.
    pub async fn signed(&self, token: &Token<'_>) -> Result<bool, Problem> {
        let known = self.known();
        let has = |keys: &[PublicKey]| token.key_id.is_none() || keys.iter().any(|key| key.id == token.key_id);
        let fresh = known.as_ref().is_some_and(|(keys, at)| at.elapsed() < self.pace.0 && has(keys));
        let known = if fresh { known } else { self.fetch_again(known).await? };
        let Some((keys, _)) = known else { return Ok(false) };
        let candidates = keys.iter().filter(|key| token.key_id.is_none() || key.id.is_none() || key.id == token.key_id);
        Ok(candidates.into_iter().any(|key| token.is_signed_by(key)))
    }

    async fn fetch_again(&self, before: Option<Known>) -> Result<Option<Known>, Problem> {
        let mut tried = self.tried.lock().await;
        // Another request may have fetched them while this one waited.
        if let Some((keys, at)) = self.known()
            && before.as_ref().is_none_or(|(_, seen)| *seen < at)
        {
            return Ok(Some((keys, at)));
        }
        let may_fetch = tried.is_none_or(|at| at.elapsed() >= self.pace.1);
        let usable = before.filter(|(_, at)| at.elapsed() < STALE_MAX);
        if !may_fetch {
            return match usable {
                Some(known) => Ok(Some(known)),
                None => Err(self.unreachable("fetching them failed a moment ago")),
            };
        }
        *tried = Some(Instant::now());
        let fetched = tokio::time::timeout(FETCH_MAX, self.fetch()).await;
        match fetched.unwrap_or_else(|_| Err(format!("no response within {} s", FETCH_MAX.as_secs()))) {
            Ok(keys) => {
                let known = (Arc::new(keys), Instant::now());
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(known.clone());
                Ok(Some(known))
            }
            Err(error) => {
                tracing::warn!(issuer = self.issuer, error, "cannot fetch the keys of an issuer");
                match usable {
                    Some(known) => Ok(Some(known)),
                    None => Err(self.unreachable(&error)),
                }
            }
        }
    }

    async fn fetch(&self) -> Result<Vec<PublicKey>, String> {
        let document = match &self.source {
            Some(Keys::Url(url, fetch)) => fetch.fetch(url).await?,
            Some(Keys::Discovered(fetch)) => {
                let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
                let found = fetch.fetch(&url).await?;
                let found: Discovery = serde_json::from_slice(&found).map_err(|error| format!("{url}: {error}"))?;
                fetch.fetch(&found.jwks_uri).await?
            }
            Some(Keys::File(path)) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || std::fs::read(&path).map_err(|error| (path, error)));
                let read = read.await.map_err(|error| error.to_string())?;
                Bytes::from(read.map_err(|(path, error)| format!("{}: {error}", path.display()))?)
            }
            None => return Err("no jwks_url, jwks_file or discovery is configured".to_owned()),
        };
        if document.len() > KEYS_BYTES_MAX {
            return Err(format!("the key set is larger than {KEYS_BYTES_MAX} bytes"));
        }
        read_keys(&document)
    }

    fn unreachable(&self, why: &str) -> Problem {
        let message = format!("the keys of the issuer {} are not available: {why}", self.issuer);
        Problem::new(Code::NotReady, message).advise("Retry in a moment; the log of the server has the cause.")
    }
}
