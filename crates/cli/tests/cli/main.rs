//! The command line as its users meet it: the real binary, real files, real pipes.

#[path = "../../../console/tests/console/browser.rs"]
#[allow(dead_code, reason = "the console's tests drive more of it")]
mod browser;
#[path = "../process/mod.rs"]
mod process;
mod run;

mod archive;
mod bad_input;
mod browse;
mod command_line;
mod configuration;
mod crowds;
mod dead_letters;
mod demo;
mod doctor;
mod documents;
mod exporting;
mod filters;
mod following;
mod handlers;
mod histories;
mod horizon;
mod importing;
mod keys;
mod operations;
mod partners;
mod pipes;
mod projections;
mod queries;
mod queue;
mod records;
mod restored;
mod sagas;
mod security;
mod serving;
mod snapshots;
mod stores;
mod streams;
mod traces;
mod transactions;
mod waiting;
mod with_chromium_demo;
mod with_chromium_newcomer;
#[cfg(feature = "kafka")]
mod with_kafka_demo;
#[cfg(feature = "kafka")]
mod with_kafka_serve;
mod with_mongodb_adopt;
mod with_mongodb_demo;
mod with_mongodb_documents;
mod with_mongodb_handlers;
mod with_mongodb_import;
mod with_mongodb_partners;
mod with_mongodb_security;
mod with_mongodb_serve;
mod with_python;
#[cfg(feature = "redis")]
mod with_redis_serve;
