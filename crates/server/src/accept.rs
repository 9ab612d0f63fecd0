//! The response formats that a caller accepts.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};

use crate::media;

/// The formats besides JSON that an `Accept` header lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Accept {
    /// BSON documents.
    pub bson: bool,
    /// One JSON text per line.
    pub lines: bool,
}

impl Accept {
    /// Parses the `Accept` headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let kinds = values.flat_map(|value| value.split(',')).filter_map(|kind| kind.split(';').next());
        kinds.fold(Self::default(), |found, kind| {
            let is = |known: &str| kind.trim().eq_ignore_ascii_case(known);
            Self { bson: found.bson || is(media::BSON), lines: found.lines || is(media::LINES) }
        })
    }
}

impl<S: Sync> FromRequestParts<S> for Accept {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}
