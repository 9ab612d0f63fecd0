//! gRPC: commits, the log, streams and handlers, for clients that are generated from `proto/annals/v1/annals.proto`.
//!
//! Calls come over the same connections as HTTP requests and pass the same gate, each method with a permission of its own. Below their
//! messages they call what the routes of `v1` call.
//!
//! ```text
//!  connection ─▶ site ─▶ router ─▶ speaking ─▶ gate ─▶ method ─▶ v1, scoped, the ports
//!                                  content type,        messages: frames, documents
//!                                  deadline, status
//! ```

mod attached;
mod commits;
mod documents;
mod feed;
mod frames;
// prost writes it, and some of it is for clients; `cargo test -p annals-server --test server messages` compares it with the protocol.
#[allow(clippy::all, dead_code, missing_docs)]
#[rustfmt::skip]
mod generated;
mod handlers;
mod log;
mod speaking;
mod status;
mod streams;
mod whole;

use std::sync::{Arc, LazyLock};

use axum::handler::Handler;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};

use crate::payload::Payload;
use crate::route::{Feature, Permission, get};
use crate::security::Needs;
use crate::state::Server;

pub(crate) use speaking::{is_grpc, speaking};
pub(crate) use status::{trailers, translated};

const PROTOCOL: &str = include_str!("../../../proto/annals/v1/annals.proto");
const TEXT: &str = "text/plain; charset=utf-8";

/// Returns the operation that serves the protocol.
pub(crate) fn feature() -> Feature {
    let protocol = get("/annals.proto", Permission::Open, protocol).described(
        "protocol",
        "Returns the protocol of gRPC, from which clients are generated.",
        Payload::raw(TEXT, "A file of Protocol Buffers."),
    );
    Feature::new("Index", [protocol])
}

async fn protocol() -> Response {
    ([(header::CONTENT_TYPE, TEXT)], PROTOCOL).into_response()
}

/// One method of a service.
pub(crate) struct Method {
    /// Its path, `/annals.v1.SERVICE/METHOD`, which is also the metrics label.
    pub path: &'static str,
    pub needs: Needs,
    pub methods: MethodRouter<Arc<Server>>,
}

impl Method {
    /// Creates a method that requires this permission.
    fn new<H, T>(path: &'static str, permission: Permission, handler: H) -> Self
    where
        H: Handler<T, Arc<Server>>,
        T: 'static,
    {
        let methods = on(MethodFilter::POST, handler);
        Self { path, needs: Needs::new(permission), methods }
    }

    /// Leaves the check of the scope to the method, whose messages name it.
    fn naming_scope(self) -> Self {
        Self { needs: self.needs.without_scope(), ..self }
    }

    /// Admits callers that are restricted to event types: the method checks what it commits or reads.
    fn checking_event_types(self) -> Self {
        Self { needs: self.needs.checking_event_types(), ..self }
    }

    /// Admits callers that are restricted to streams: the method checks the stream that it reads.
    fn checking_streams(self) -> Self {
        Self { needs: self.needs.checking_streams(), ..self }
    }

    /// Returns whether the method only reads, so that the caller's deadline ends it.
    pub fn reads(&self) -> bool {
        self.needs.permission == Permission::Reader
    }
}

/// Returns every method, in the order of the protocol.
pub(crate) fn methods() -> Vec<Method> {
    let services = [commits::methods(), log::methods(), streams::methods(), handlers::methods()];
    services.into_iter().flatten().collect()
}

/// The paths of the methods.
pub(crate) static PATHS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| methods().iter().map(|method| method.path).collect());

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths that the protocol declares, and whether its comment on their service says that they only read.
    fn declared() -> Vec<(String, bool)> {
        let mut declared = Vec::new();
        let (mut service, mut comment) = (String::new(), String::new());
        let mut reads = false;
        for line in PROTOCOL.lines() {
            if let Some(rest) = line.strip_prefix("service ") {
                service = rest.trim_end_matches(" {").to_owned();
                reads = comment.contains("The permission is `reader`");
                assert!(reads || comment.contains("The permission is `writer`"), "{service} has no permission");
            }
            if let Some(rest) = line.trim().strip_prefix("rpc ") {
                let name = rest.split('(').next().unwrap_or_default();
                // A method may say so itself.
                declared.push((format!("/annals.v1.{service}/{name}"), reads && !comment.contains("is `writer`")));
            }
            match line.trim().strip_prefix("//") {
                Some(text) => comment.push_str(text),
                None => comment.clear(),
            }
        }
        declared
    }

    #[test]
    fn every_method_of_the_protocol_has_the_permission_that_the_protocol_says() {
        let served: Vec<_> = methods().iter().map(|method| (method.path.to_owned(), method.reads())).collect();
        assert_eq!(served, declared());
        assert!(methods().iter().all(|method| method.needs.permission != Permission::Open));
    }
}
