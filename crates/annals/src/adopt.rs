//! Opening what exists: a MongoDB database that Wow or a Dolittle Runtime wrote becomes a store.
//!
//! ```no_run
//! use annals::OpenOptions;
//! use annals::adopt::{AdoptNames, adopt, inspect};
//!
//! # async fn example() -> Result<(), annals::OpenError> {
//! let url = "mongodb://127.0.0.1/shop?replicaSet=rs0";
//! let (options, names) = (OpenOptions::default(), AdoptNames::default());
//! let found = inspect(url, "default", options.clone(), &names, &mut |_done, _all| {}).await?;
//! println!("{:?} {:?}", found.steps, found.obstacles);
//! adopt(url, "default", options, &names, &mut |_done, _all| {}).await?;
//! # Ok(())
//! # }
//! ```

pub use annals_mongodb::adopt::{AdoptNames, AdoptReport, Finding, FoundCommits, FoundLog, Obstacle, Progress};

use annals_core::OpenError;

use crate::OpenOptions;
use crate::compose::mongodb_to_adopt;

/// Says what there is in the database of `tenant`, and what [`adopt`] would do. Nothing is written. `progress` counts commits and events
/// that were looked through.
///
/// # Errors
/// `not_supported_by_store` for a store that is no MongoDB; `invalid_config`, `unknown_tenant`, `invalid_names`, `unsuitable_server`,
/// `unreachable`. What is in the way of an adoption is in the report and no error.
pub async fn inspect(
    url: &str,
    tenant: &str,
    options: OpenOptions,
    names: &AdoptNames,
    progress: &mut Progress<'_>,
) -> Result<AdoptReport, OpenError> {
    annals_mongodb::adopt::inspect(url, tenant, &mongodb_to_adopt(url, options)?, names, progress).await
}

/// Adopts the database of `tenant`, which no process of Annals has open. `progress` counts commits and events that were looked through,
/// then events that got their place.
///
/// # Errors
/// As [`inspect`]; what is in the way: `cannot_adopt`, `foreign_numbers`; `store_locked` when a process of Annals has it open.
/// What was done before an error is taken up by the next call.
pub async fn adopt(
    url: &str,
    tenant: &str,
    options: OpenOptions,
    names: &AdoptNames,
    progress: &mut Progress<'_>,
) -> Result<AdoptReport, OpenError> {
    annals_mongodb::adopt::adopt(url, tenant, &mongodb_to_adopt(url, options)?, names, progress).await
}
