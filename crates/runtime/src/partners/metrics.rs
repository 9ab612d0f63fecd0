//! Counters of partners in this process.

use std::collections::BTreeMap;
use std::sync::Mutex;

use annals_core::partners::{DELIVERIES, DeliveryRecord, EventDirection, Outcome};
use annals_core::{GroupQuery, RecordError, limits};

use super::{TenantPartners, absent};
use crate::host::{Host, locked};

/// The counters of a partner since the process started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartnerMetrics {
    /// The tenant.
    pub tenant: String,
    /// The partner.
    pub partner: String,
    /// Attempts by direction and outcome: `delivered`, `failed` or `refused`.
    pub attempts: Vec<(&'static str, &'static str, u64)>,
    /// Retries by direction.
    pub retries: Vec<(&'static str, u64)>,
    /// Requests of the partner by outcome: `accepted`, `repeated` or `refused`.
    pub received: Vec<(&'static str, u64)>,
    /// Whether the breaker is open.
    pub is_failing: bool,
}

/// The events of a partner and direction that failed for the last time and wait for a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartnerFailures {
    /// The tenant.
    pub tenant: String,
    /// The partner.
    pub partner: String,
    /// The direction of the events.
    pub direction: EventDirection,
    /// The number of events.
    pub count: u64,
}

impl Host {
    /// Counts the events that failed for the last time and were neither resent nor cancelled.
    ///
    /// Tenants whose events cannot be read are left out.
    pub async fn partner_failures(&self) -> Vec<PartnerFailures> {
        let mut failures = Vec::new();
        for tenant in self.store().tenants() {
            if let Ok(partners) = self.partners_of(&tenant)
                && let Ok(counted) = partners.failures().await
            {
                failures.extend(counted);
            }
        }
        failures
    }
}

/// The counters of a tenant.
#[derive(Default)]
pub(super) struct Counters(Mutex<BTreeMap<String, Counted>>);

#[derive(Default)]
struct Counted {
    attempts: BTreeMap<(&'static str, &'static str), u64>,
    retries: BTreeMap<&'static str, u64>,
    received: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// Counts an attempt that is about to be made. A partner without retries is listed with 0.
    pub fn begun(&self, partner: &str, direction: EventDirection, attempt: i32) {
        let mut counters = locked(&self.0);
        let counted = counters.entry(partner.to_owned()).or_default();
        *counted.retries.entry(direction.as_str()).or_default() += u64::from(attempt > 1);
    }

    pub fn attempted(&self, partner: &str, direction: EventDirection, outcome: &Outcome) {
        let outcome = match outcome {
            Outcome::Delivered { .. } => "delivered",
            Outcome::Failed { .. } => "failed",
            Outcome::Refused { .. } => "refused",
        };
        let mut counters = locked(&self.0);
        let counted = counters.entry(partner.to_owned()).or_default();
        *counted.attempts.entry((direction.as_str(), outcome)).or_default() += 1;
    }

    pub fn received(&self, partner: &str, outcome: &'static str) {
        let mut counters = locked(&self.0);
        *counters.entry(partner.to_owned()).or_default().received.entry(outcome).or_default() += 1;
    }
}

impl TenantPartners {
    async fn failures(&self) -> Result<Vec<PartnerFailures>, RecordError> {
        let query = GroupQuery {
            condition: DeliveryRecord::failed(),
            by: Some("lane".to_owned()),
            limit: limits::PAGE_MAX,
            ..GroupQuery::new(DELIVERIES)
        };
        let found = absent(self.records.group(query).await)?;
        let counted = found.groups.into_iter().filter_map(|group| {
            let (direction, partner) = group.key.as_str()?.split_once('/')?;
            let direction = EventDirection::ALL.iter().copied().find(|it| it.as_str() == direction)?;
            let (tenant, partner) = (self.tenant.clone(), partner.to_owned());
            Some(PartnerFailures { tenant, partner, direction, count: group.count })
        });
        Ok(counted.collect())
    }

    /// Returns the counters of each partner.
    pub(super) fn counted(&self) -> Vec<PartnerMetrics> {
        let breakers = locked(&self.breakers).clone();
        let counters = locked(&self.metrics.0);
        let metrics = counters.iter().map(|(partner, counted)| PartnerMetrics {
            tenant: self.tenant.clone(),
            partner: partner.clone(),
            attempts: counted.attempts.iter().map(|((to, outcome), count)| (*to, *outcome, *count)).collect(),
            retries: counted.retries.iter().map(|(direction, count)| (*direction, *count)).collect(),
            received: counted.received.iter().map(|(outcome, count)| (*outcome, *count)).collect(),
            is_failing: breakers.contains_key(&format!("OUT/{partner}")),
        });
        metrics.collect()
    }
}
