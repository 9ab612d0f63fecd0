//! HTTP, server-sent events, gRPC, health and metrics over the ports. It is a separate crate, so that a program that embeds a store does
//! not pay for a web server.
//!
//! [`router`] returns the API as an [`axum::Router`], which can be combined with routes of your own. [`serve`] runs the API on a
//! listener, with limits and a graceful shutdown. [`this_machine_only`] keeps the pages of other sites out of a server without
//! credentials. `docs/http.md` describes the API and `docs/errors.md` its errors.

mod accept;
mod answer;
mod asked;
mod audited;
mod body;
mod caller;
mod connections;
mod cors;
mod date;
mod direct;
mod documents;
mod door;
mod errors;
mod event_types;
mod following;
mod gate;
mod granted_streams;
mod grpc;
mod handover;
mod health;
mod media;
mod metrics;
mod openapi;
mod opening;
mod options;
mod pages;
mod payload;
mod pool;
mod problem;
mod query;
mod reader;
mod relays;
mod room;
mod route;
mod router;
mod schemas;
mod scoped;
mod security;
mod serve;
mod site;
mod source;
mod state;
mod streaming;
mod tls;
mod traced;
mod unread;
mod v1;
mod wire;
mod wire_guard;

pub use cors::Origins;
pub use door::raise_open_files;
pub use opening::Obstacle;
pub use options::{Callers, Options, Stop};
pub use pages::{Api, Pages, Who};
pub use problem::Problem;
pub use relays::Relays;
pub use router::router;
pub use security::{FetchKeys, Issuer, Keys, Security};
pub use serve::{serve, serve_opening, serve_router};
pub use site::this_machine_only;
pub use tls::{ClientCertificates, Tls};
