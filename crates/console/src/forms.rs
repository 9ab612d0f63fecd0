//! Parses the queries and forms that a browser sends, and checks that a page of this server sent them.

use std::collections::BTreeMap;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, StatusCode, Uri, header};

use crate::view::{Parameters, Refused};

/// The largest form.
const FORM_BYTES_MAX: usize = 64 * 1024;

/// Reads a form.
pub(crate) async fn read(headers: &HeaderMap, uri: &Uri, body: Body) -> Result<Parameters, Refused> {
    if !is_own(headers, uri) {
        let detail = "The request comes from a page of another site, but only this server's own pages may act.";
        return Err(Refused::new(StatusCode::FORBIDDEN, "The form was not sent by this server's page.", detail));
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        let detail = "Forms must be sent as application/x-www-form-urlencoded.";
        return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "This is not a form.", detail));
    }
    let bytes = to_bytes(body, FORM_BYTES_MAX).await;
    let bytes = bytes.map_err(|_| {
        let detail = format!("A form may have at most {FORM_BYTES_MAX} bytes.");
        Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "The form is too large.", detail)
    })?;
    parameters(&bytes)
}

/// Reads a query.
pub(crate) fn query(uri: &Uri) -> Result<Parameters, Refused> {
    parameters(uri.query().unwrap_or_default().as_bytes())
}

fn parameters(bytes: &[u8]) -> Result<Parameters, Refused> {
    let pairs: Vec<(String, String)> = serde_html_form::from_bytes(bytes)
        .map_err(|error| Refused::new(StatusCode::BAD_REQUEST, "The parameters cannot be read.", error.to_string()))?;
    Ok(pairs.into_iter().collect::<BTreeMap<_, _>>())
}

/// Returns whether a request that changes something comes from a page of this server, according to the browser's headers. Programs send
/// no such headers; they need the token nevertheless.
fn is_own(headers: &HeaderMap, uri: &Uri) -> bool {
    if let Some(site) = headers.get("sec-fetch-site")
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        return false;
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| uri.authority().map(axum::http::uri::Authority::as_str)).unwrap_or_default();
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_of_another_site_is_told_by_its_headers() {
        let own = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().expect("a header value"));
            }
            is_own(&headers, &Uri::from_static("/console/x"))
        };
        let host = ("host", "127.0.0.1:4000");
        assert!(own(&[host]));
        assert!(own(&[host, ("origin", "http://127.0.0.1:4000"), ("sec-fetch-site", "same-origin")]));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:4001", "http://127.0.0.1:4000.evil.example"] {
            assert!(!own(&[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site"] {
            assert!(!own(&[host, ("sec-fetch-site", site)]), "{site}");
        }
    }
}
