//! Fetches the public keys of token issuers for a server, which has no HTTP client of its own.

use annals_server::FetchKeys;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use hyper::Uri;

use super::ClientOptions;
use super::http::Http;

/// Fetches documents over HTTPS, or over plain HTTP from this machine. Sends no credential and follows no redirects.
#[derive(Debug, Clone, Default)]
pub struct KeyFetcher {
    options: ClientOptions,
}

impl KeyFetcher {
    /// Creates a fetcher that trusts the authorities in `options`. The credential in `options` is not sent.
    pub fn new(options: ClientOptions) -> Self {
        Self { options: ClientOptions { credential: None, ..options } }
    }
}

impl FetchKeys for KeyFetcher {
    fn fetch(&self, url: &str) -> BoxFuture<'_, Result<Bytes, String>> {
        let url = url.to_owned();
        async move {
            let uri: Uri = url.parse().map_err(|error| format!("{url:?}: {error}"))?;
            let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
                return Err(format!("{url:?} is not a URL"));
            };
            let is_local = matches!(authority.host(), "localhost" | "127.0.0.1" | "[::1]");
            if scheme != "https" && !is_local {
                return Err(format!("{url}: keys are fetched over https, or over http from this machine"));
            }
            let http = Http::new(&format!("{scheme}://{authority}"), annals_core::DEFAULT_TENANT, &self.options)?;
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            let answer = http.get(path, "application/json").await?;
            if answer.status.is_success() { Ok(answer.body) } else { Err(format!("{url} answered {}", answer.status)) }
        }
        .boxed()
    }
}
