//! Adopts existing data: a MongoDB database that Wow or a Dolittle Runtime wrote becomes a store.
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

/// Reports the content of the database of `tenant` and what [`adopt`] would do, and writes nothing. `progress` counts the commits and
/// events that were inspected.
///
/// # Errors
/// `not_supported_by_store` for a store that is not on MongoDB; `invalid_config`, `unknown_tenant`, `invalid_names`, `unsuitable_server`,
/// `unreachable`. Obstacles to an adoption are in the report and not an error.
pub async fn inspect(
    url: &str,
    tenant: &str,
    options: OpenOptions,
    names: &AdoptNames,
    progress: &mut Progress<'_>,
) -> Result<AdoptReport, OpenError> {
    annals_mongodb::adopt::inspect(url, tenant, &mongodb_to_adopt(url, options)?, names, progress).await
}

/// Adopts the database of `tenant`, which no process of Annals may have open. `progress` counts the commits and events that were inspected,
/// then the events that were assigned a sequence number.
///
/// # Errors
/// As [`inspect`]; `cannot_adopt` and `foreign_numbers` for obstacles; `store_locked` if a process of Annals has it open. The next call
/// resumes after what was done before an error.
pub async fn adopt(
    url: &str,
    tenant: &str,
    options: OpenOptions,
    names: &AdoptNames,
    progress: &mut Progress<'_>,
) -> Result<AdoptReport, OpenError> {
    annals_mongodb::adopt::adopt(url, tenant, &mongodb_to_adopt(url, options)?, names, progress).await
}
