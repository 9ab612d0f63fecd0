//! `store.json`: identifies the folder as a store, and names the tenants that it must contain.

use std::collections::BTreeSet;

use annals_core::{Code, DEFAULT_SCOPE, OpenError};
use serde::{Deserialize, Serialize};

use super::{FIRST_SEGMENT, STORE_FILE, TENANT_FILE, has, make_durable_again};
use crate::disk::Disk;
use crate::refused::cannot_open;
use crate::whole::seal;

/// The folder that contains the tenants.
pub(crate) const TENANTS: &str = "tenants";

/// The content of `store.json`.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StoreFile {
    what: String,
    /// The tenants whose folders were durable before they were named here. If such a folder is missing, that is a loss. A store of a
    /// version that kept no list gets one when it is opened.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) tenants: BTreeSet<String>,
}

impl Default for StoreFile {
    fn default() -> Self {
        Self::of(BTreeSet::new())
    }
}

impl StoreFile {
    /// Creates the content for a store in which these tenants were begun.
    pub(crate) fn of(tenants: BTreeSet<String>) -> Self {
        Self { what: "annals embedded store".to_owned(), tenants }
    }

    /// Checks that no begun tenant has lost its folder. If a declared tenant is lost, the store does not open, because recreating the
    /// folder would make its log empty. An undeclared tenant is not opened, so its loss is only logged.
    ///
    /// # Errors
    /// `store_damaged`. Nothing has been changed.
    pub(super) fn check_begun(&self, disk: &dyn Disk, declared: &[String]) -> Result<(), OpenError> {
        for tenant in &self.tenants {
            let dir = format!("{TENANTS}/{tenant}");
            // If a log exists, opening the tenant reports a missing tenant.json.
            if has(disk, &dir, TENANT_FILE)? || has(disk, &format!("{dir}/{DEFAULT_SCOPE}"), FIRST_SEGMENT)? {
                continue;
            }
            let lost = format!(
                "{dir} is missing, or empty, and {STORE_FILE} says that the tenant was begun; restore the folder from a backup"
            );
            if declared.contains(tenant) {
                return Err(OpenError::new(Code::StoreDamaged, lost));
            }
            tracing::warn!(tenant, "{lost}");
        }
        Ok(())
    }

    /// Durably adds the tenants that exist. Their folders are durable, because they are or were open.
    ///
    /// # Errors
    /// Why the file cannot be written.
    pub(super) fn note(&mut self, disk: &dyn Disk, open: impl Iterator<Item = String>) -> Result<(), OpenError> {
        let before = self.tenants.len();
        self.tenants.extend(open);
        for tenant in disk.list(TENANTS).map_err(|error| cannot_open(TENANTS, &error))? {
            if !self.tenants.contains(&tenant) && has(disk, &format!("{TENANTS}/{tenant}"), TENANT_FILE)? {
                self.tenants.insert(tenant);
            }
        }
        if self.tenants.len() == before {
            return Ok(());
        }
        let written = seal(self).and_then(|bytes| make_durable_again(disk, "", STORE_FILE, &bytes));
        written.map_err(|error| cannot_open(STORE_FILE, &error))
    }
}
