//! Keeps the pages of other sites away from a server without credentials. Whoever reaches it may do everything, so a page that the user
//! happens to have open must not be able to: neither by sending requests across sites, nor by giving its own name this machine's
//! address.

use std::net::IpAddr;

use annals_core::Code;
use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;

/// Lets only this machine's own pages and programs at every route of `router`; everything else is `forbidden_origin` (403).
///
/// The name that a request calls the server by (`Host`, or `:authority`) must be `localhost` or a loopback address. A request with an
/// `Origin`, as browsers send it, must come from a page of this same server; programs that are no browser send none and pass.
///
/// It is for servers that listen on loopback and ask for no credentials. It is to be put around the whole router, because it covers
/// only what was added before.
pub fn this_machine_only(router: Router) -> Router {
    router.layer(from_fn(guard))
}

async fn guard(request: Request, next: Next) -> Response {
    match refuse(request.headers(), request.uri()) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// The answer to a request that is not let in; none when it is.
pub(crate) fn refuse(headers: &HeaderMap, uri: &Uri) -> Option<Problem> {
    foreign(headers, uri).map(|why| Problem::new(Code::ForbiddenOrigin, why))
}

/// Says why a request is refused; none when it is let in.
fn foreign(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let mut hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let (named, authority) = (hosts.next(), uri.authority().map(Authority::as_str));
    // Whoever stands between may go by one, and this by the other.
    if hosts.next().is_some() {
        return Some("the request names its host twice".to_owned());
    }
    if let (Some(named), Some(authority)) = (named, authority)
        && !named.eq_ignore_ascii_case(authority)
    {
        return Some(format!("the request is for {authority:?}, and its Host is {named:?}"));
    }
    let host = named.or(authority);
    if let Some(host) = host.filter(|host| !is_this_machine(host)) {
        return Some(format!("{host:?} is not a name of this machine; use 127.0.0.1 or localhost"));
    }
    // Browsers say this of every request, also of those without an origin: `none` is what the user typed.
    if let Some(site) = headers.get("sec-fetch-site")
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        return Some(format!("a browser sends the request from another site ({site:?})"));
    }
    // Browsers send it with every request that could change something.
    let origin = headers.get(header::ORIGIN)?.to_str().unwrap_or_default();
    let authority = origin.strip_prefix("http://");
    let same = authority.zip(host).is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host));
    (!same)
        .then(|| format!("the request comes from a page of {origin:?}, and only this service's own page may send it"))
}

fn is_this_machine(host: &str) -> bool {
    // What nearly everyone writes, without reading it as an address.
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        .map_or(host, |(name, _)| name);
    if matches!(name, "127.0.0.1" | "localhost") {
        return true;
    }
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a header value"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().expect("a header value"));
        }
        foreign(&headers, &Uri::from_static("/")).is_some()
    }

    #[test]
    fn programs_and_the_service_s_own_page_are_let_in() {
        for host in ["127.0.0.1:7171", "localhost:7171", "LOCALHOST", "[::1]:7171", "127.8.9.1"] {
            assert!(!refused(host, None), "{host}");
            assert!(!refused(host, Some(&format!("http://{host}"))), "{host}");
        }
    }

    #[test]
    fn without_a_host_a_program_is_let_in_and_a_page_is_not() {
        let mut headers = HeaderMap::new();
        assert_eq!(foreign(&headers, &Uri::from_static("/")), None);
        headers.insert(header::ORIGIN, "http://127.0.0.1".parse().expect("a header value"));
        assert!(foreign(&headers, &Uri::from_static("/")).is_some());
        assert!(foreign(&HeaderMap::new(), &Uri::from_static("http://example.org/")).is_some());
    }

    #[test]
    fn a_request_that_names_two_hosts_is_kept_out() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, "127.0.0.1:7171".parse().expect("a header value"));
        let (same, other) = ("http://127.0.0.1:7171/", "http://example.org/");
        assert_eq!(foreign(&headers, &Uri::from_static(same)), None);
        assert!(foreign(&headers, &Uri::from_static(other)).is_some());
        assert!(foreign(&headers, &Uri::from_static("http://localhost:7171/")).is_some());
        headers.append(header::HOST, "127.0.0.1:7171".parse().expect("a header value"));
        assert!(foreign(&headers, &Uri::from_static("/")).is_some());
    }

    #[test]
    fn what_a_browser_fetches_for_another_site_is_kept_out() {
        for (site, kept_out) in [("cross-site", true), ("same-site", true), ("same-origin", false), ("none", false)] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "127.0.0.1:7171".parse().expect("a header value"));
            headers.insert("sec-fetch-site", site.parse().expect("a header value"));
            assert_eq!(foreign(&headers, &Uri::from_static("/v1/log")).is_some(), kept_out, "{site}");
        }
    }

    #[test]
    fn other_sites_are_kept_out() {
        for host in ["example.org", "localhost.example.org", "192.0.2.1:7171", "", "user@127.0.0.1@example.org"] {
            assert!(refused(host, None), "{host}");
        }
        for origin in ["http://example.org", "null", "https://127.0.0.1:7171", "http://127.0.0.1:8080", ""] {
            assert!(refused("127.0.0.1:7171", Some(origin)), "{origin}");
        }
    }
}
