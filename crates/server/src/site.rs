//! Refuses requests from pages of other sites, and requests that address the server by a name which is not its own. Without credentials,
//! any caller that reaches the server may do everything. So a page that the user happens to have open must not get through, neither with
//! cross-site requests nor by pointing its own name at this machine's address.

use std::net::IpAddr;
use std::sync::Arc;

use annals_core::Code;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use crate::cors::Origins;
use crate::options::{Callers, Options};
use crate::problem::Problem;

/// Admits only this machine's own pages and programs to the routes of `router`; everything else is `forbidden_origin` (403).
///
/// The host that a request names (`Host`, or `:authority`) must be `localhost` or a loopback address. A request with an `Origin`, as
/// browsers send it, must come from a page of this server. Programs other than browsers send no `Origin` and pass.
///
/// Use it for servers that listen on loopback and require no credentials. Apply it to the complete router, because it only covers routes
/// that were added before.
pub fn this_machine_only(router: Router) -> Router {
    Site { names: None, origin: "http://", others: Origins::default() }.around(router)
}

/// The names of a server, which determine the requests that are meant for it.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    /// Names in addition to those of this machine and IP addresses; `None` if only the names of this machine are allowed.
    names: Option<Arc<[String]>>,
    /// The prefix of the origin of its own pages.
    origin: &'static str,
    /// The origins of other pages that may call the API.
    others: Origins,
}

async fn guard(State(site): State<Site>, request: Request, next: Next) -> Response {
    match site.refuse(request.headers(), request.uri()) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

impl Site {
    /// Creates the site of a server with these options, or `None` if any name is allowed.
    pub fn of(options: &Options) -> Option<Self> {
        let origin = if options.tls.is_some() { "https://" } else { "http://" };
        let names = match options.callers {
            Callers::Anyone => return None,
            Callers::ThisMachine => None,
            Callers::Named => Some(options.names.clone().into()),
        };
        Some(Self { names, origin, others: options.cors_origins.clone() })
    }

    /// Applies the check to every route of a router.
    pub fn around(self, router: Router) -> Router {
        router.layer(from_fn_with_state(self, guard))
    }

    /// Returns the error for a request that is refused, or `None` if it is admitted.
    pub fn refuse(&self, headers: &HeaderMap, uri: &Uri) -> Option<Problem> {
        self.foreign(headers, uri).map(|why| Problem::new(Code::ForbiddenOrigin, why))
    }

    fn is_its_own(&self, host: &str) -> bool {
        match &self.names {
            None => is_this_machine(host),
            Some(names) => is_this_machine(host) || is_address(host) || is_named(names, host),
        }
    }

    /// Returns why a request is refused, or `None` if it is admitted.
    fn foreign(&self, headers: &HeaderMap, uri: &Uri) -> Option<String> {
        let mut hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
        let (named, authority) = (hosts.next(), uri.authority().map(Authority::as_str));
        // A proxy may have acted on one of them, and this server would act on the other.
        if hosts.next().is_some() {
            return Some("the request has two Host headers; send one".to_owned());
        }
        if let (Some(named), Some(authority)) = (named, authority)
            && !named.eq_ignore_ascii_case(authority)
        {
            return Some(format!(
                "the request is for {authority:?}, but its Host header is {named:?}; make them equal"
            ));
        }
        let host = named.or(authority);
        if let Some(host) = host.filter(|host| !self.is_its_own(host)) {
            return Some(match self.names {
                None => format!("{host:?} is not a name of this machine; use 127.0.0.1 or localhost"),
                Some(_) => format!("{host:?} is not a name of this server; an operator can add it to server.names"),
            });
        }
        if self.others.allow(headers, uri) {
            return None;
        }
        // Browsers send this header with every request, including those without an origin. `none` means that the user entered the
        // address.
        if let Some(site) = headers.get("sec-fetch-site")
            && !matches!(site.as_bytes(), b"same-origin" | b"none")
        {
            return Some(format!("the request comes from a page of another site ({site:?})"));
        }
        // Browsers send it with every request that could change something.
        let origin = headers.get(header::ORIGIN)?.to_str().unwrap_or_default();
        let authority = origin.strip_prefix(self.origin);
        let same = authority.zip(host).is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host));
        (!same).then(|| {
            format!("the request comes from a page of {origin:?}, but only this service's own page may send it")
        })
    }
}

/// Returns whether the host is an IP address, which a page cannot make resolve to something else.
fn is_address(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    authority.host().trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok() && !host.contains('@')
}

/// Returns whether the host is one of the names, with or without a port.
fn is_named(names: &[String], host: &str) -> bool {
    let without_port = host.rsplit_once(':').map_or(host, |(name, _)| name);
    names.iter().any(|name| name.eq_ignore_ascii_case(host) || name.eq_ignore_ascii_case(without_port))
}

fn is_this_machine(host: &str) -> bool {
    // Fast path for the usual names, without parsing them as an address.
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

    fn foreign(headers: &HeaderMap, uri: &Uri) -> Option<String> {
        Site { names: None, origin: "http://", others: Origins::default() }.foreign(headers, uri)
    }

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

    #[test]
    fn a_server_with_names_is_called_by_them_by_addresses_and_by_no_other_name() {
        let names: Arc<[String]> = ["annals.example".to_owned(), "annals:4000".to_owned()].into();
        let site = Site { names: Some(names), origin: "https://", others: Origins::default() };
        let refused = |host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().expect("a header value"));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().expect("a header value"));
            }
            site.foreign(&headers, &Uri::from_static("/")).is_some()
        };
        for host in
            ["annals.example", "ANNALS.example:8443", "annals:4000", "192.0.2.1:4000", "[2001:db8::1]", "localhost"]
        {
            assert!(!refused(host, None), "{host}");
            assert!(!refused(host, Some(&format!("https://{host}"))), "{host}");
            assert!(refused(host, Some(&format!("http://{host}"))), "{host}");
        }
        for host in ["annals", "annals:4001", "evil.example", "annals.example.evil", "a@192.0.2.1", ""] {
            assert!(refused(host, None), "{host}");
        }
    }
}
