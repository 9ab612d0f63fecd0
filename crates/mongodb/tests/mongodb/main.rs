//! The store on a real mongod: the suite of its port, the layouts that other software reads and writes, and what a database and other
//! software can do to it.

mod adopt_commits;
mod adopt_events;
mod adopting;
mod closing;
mod commits;
mod conformance;
mod connection;
mod extremes;
mod failover;
mod held;
mod keys;
mod layout;
mod long_values;
mod network;
mod proxy;
mod readers;
mod reading;
mod records;
mod records_differences;
mod rights;
mod rounds;
mod schema;
mod scopes;
mod sequencer;
mod server;
mod servers;
mod snapshots;
mod starting;
mod streams;
mod streams_differences;
mod streams_faults;
mod streams_layout;
mod takeover;
mod whole;
mod writers;
