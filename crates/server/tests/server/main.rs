//! The server as a client sees it: a real server on the loopback interface over the embedded store on a memory disk, and a real HTTP
//! client. All in one binary, because linking it costs more than running it.

mod aggregates;
mod bad_input;
mod changes;
mod commits;
mod connections;
mod damaged;
mod docs;
mod documents;
mod faults;
mod floods;
mod follow;
mod handlers;
mod health;
mod keys;
mod limits;
mod lines;
mod log;
mod many;
mod openapi;
mod operations;
mod prepare;
mod problems;
mod queries;
mod raw;
mod records;
mod running;
mod site;
mod snapshots;
mod stopping;
mod streams;
mod tapped;
mod tenants;
mod transactions;
mod waiting;
