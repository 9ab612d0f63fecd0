//! The store on a real mongod: the suite of its port, and what a database can do to it.

mod conformance;
mod server;
