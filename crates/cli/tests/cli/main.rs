//! The command line as its users meet it: the real binary, real files, real pipes.

#[path = "../process/mod.rs"]
mod process;
mod run;

mod bad_input;
mod browse;
mod command_line;
mod configuration;
mod crowds;
mod demo;
mod doctor;
mod documents;
mod exporting;
mod filters;
mod following;
mod handlers;
mod horizon;
mod importing;
mod keys;
mod operations;
mod pipes;
mod projections;
mod queries;
mod records;
mod restored;
mod security;
mod serving;
mod snapshots;
mod stores;
mod streams;
mod traces;
mod transactions;
mod waiting;
#[cfg(feature = "kafka")]
mod with_kafka_serve;
mod with_mongodb_adopt;
mod with_mongodb_handlers;
mod with_mongodb_import;
mod with_mongodb_serve;
#[cfg(feature = "redis")]
mod with_redis_serve;
