//! `store.json`: what the folder is, and which tenants must be in it.

use std::collections::BTreeSet;

use annals_core::{Code, DEFAULT_SCOPE, OpenError};
use serde::{Deserialize, Serialize};

use super::{FIRST_SEGMENT, STORE_FILE, TENANT_FILE, has, make_durable_again};
use crate::disk::Disk;
use crate::refused::cannot_open;
use crate::whole::seal;

/// The folder of the tenants.
pub(crate) const TENANTS: &str = "tenants";

/// What `store.json` says.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StoreFile {
    what: String,
    /// Tenants whose folders were made durable before they were named here. One whose folder is not there has lost it. A store of a
    /// version that kept no list gets it when it is opened.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) tenants: BTreeSet<String>,
}

impl Default for StoreFile {
    fn default() -> Self {
        Self::of(BTreeSet::new())
    }
}

impl StoreFile {
    /// A store that these tenants were begun in.
    pub(crate) fn of(tenants: BTreeSet<String>) -> Self {
        Self { what: "annals embedded store".to_owned(), tenants }
    }

    /// Sees that no tenant that was begun has lost its folder. A lost tenant that is declared refuses the store, because making its
    /// folder again would make an empty log of it; one that is not declared is not opened, and only said.
    ///
    /// # Errors
    /// `store_damaged`. Nothing was changed.
    pub(super) fn check_begun(&self, disk: &dyn Disk, declared: &[String]) -> Result<(), OpenError> {
        for tenant in &self.tenants {
            let dir = format!("{TENANTS}/{tenant}");
            // Beside a log, a tenant.json that is missing is told by itself.
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

    /// Names the tenants that are there, durably. Their folders are durable, because they are open, or were.
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
