//! The store on a real mongod: the suite of its port, the layouts that other software reads and writes, and what a database and other
//! software can do to it.

mod adopt_commits;
mod adopt_events;
mod adopting;
mod commits;
mod conformance;
mod connection;
mod layout;
mod records;
mod records_differences;
mod schema;
mod sequencer;
mod server;
