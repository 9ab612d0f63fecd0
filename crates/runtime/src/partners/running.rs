//! Running the owner once there are partners, and following definitions by other processes on the same store.

use std::sync::Arc;

use annals_core::partners::{PARTNERS, PartnerRecord};
use annals_core::{ChangeFollower, ChangesError, RecordError, StoreError, TypedRecords};

use super::owner::Owner;
use super::{TenantPartners, absent};
use crate::host::{Ended, Supervised, is_set, locked, supervise};

/// Starts the owner.
struct Watch {
    partners: Arc<TenantPartners>,
}

impl TenantPartners {
    /// Starts running the partners.
    pub(super) fn watch(&self) {
        if std::mem::replace(&mut *locked(&self.watching), true) {
            return;
        }
        if let Some(partners) = self.me.upgrade() {
            supervise(&self.shared, format!("partners-watch/{}", self.tenant), Watch { partners });
        }
    }

    /// Starts the owner of the tenant's partners, unless it runs already.
    pub(super) fn start(&self) {
        let Some(partners) = self.me.upgrade() else { return };
        if !std::mem::replace(&mut *locked(&self.runs), true) {
            supervise(&self.shared, format!("partners/{}", self.tenant), Owner { partners });
        }
    }

    async fn any(&self) -> Result<bool, RecordError> {
        let records = TypedRecords::<PartnerRecord>::declared(Arc::clone(&self.records));
        let (found, _) = absent(records.find(TypedRecords::<PartnerRecord>::query().limit(1)).await)?;
        Ok(!found.is_empty())
    }
}

impl Watch {
    async fn follow(&self) -> Result<(), String> {
        let partners = &self.partners;
        let text = |error: RecordError| error.to_string();
        if !partners.shared.may_share() {
            if partners.any().await.map_err(text)? {
                partners.start();
            }
            return Ok(());
        }
        partners.declare().await.map_err(text)?;
        let last = partners.records.last_change(PARTNERS).await.map_err(|error| error.to_string())?;
        if partners.any().await.map_err(text)? {
            partners.start();
            return Ok(());
        }
        let mut follower = ChangeFollower::new(Arc::clone(&partners.records), PARTNERS, last);
        match follower.next_page().await {
            Ok(_) => partners.start(),
            Err(ChangesError::Store(StoreError::Closed)) => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }
}

impl Supervised for Watch {
    async fn run(&mut self) -> Ended {
        let mut stop = self.partners.shared.stop.subscribe();
        tokio::select! {
            () = is_set(&mut stop) => Ended::Done,
            followed = self.follow() => followed.map_or_else(Ended::Failed, |()| Ended::Done),
        }
    }
}
