//! The definition of a queue.

use std::time::Duration;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::{Code, Invalid, valid_name};

/// Most items that a queue may have active: all of their leases may end at once, and what changes is one batch of records.
const CAP_MAX: u32 = 2_000;
/// Most items that a queue may have pending.
const PENDING_MAX: u32 = 100_000;
/// The longest lease, and the longest time of ageing: a day.
pub(super) const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// What an item is worth, highest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueuePriority {
    /// Before everything else.
    Critical,
    /// Before what is usual.
    High,
    /// What is usual.
    #[default]
    Normal,
    /// After what is usual.
    Low,
    /// When nothing else is there.
    Background,
}

impl QueuePriority {
    /// Every priority, highest first.
    pub const ALL: [Self; 5] = [Self::Critical, Self::High, Self::Normal, Self::Low, Self::Background];

    /// The place of the priority: 0 is the highest.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The priority as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Background => "background",
        }
    }

    /// The priority of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.as_str() == name)
    }
}

/// A queue as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueDefinition {
    /// Its name.
    pub name: ByteString,
    /// How many items are active at most.
    pub cap: u32,
    /// Whether users of one priority are served in turn. Otherwise the item that was enqueued first is.
    pub fair: bool,
    /// How long the oldest item waits before its priority is served in between, in milliseconds; 0 is never.
    pub ageing_ms: u64,
    /// The length of a lease that names none, in milliseconds.
    pub lease_ms: u64,
    /// How many items are pending at most.
    pub pending_max: u32,
    /// How many items of one user are pending at most; 0 is no limit of its own.
    pub pending_max_per_user: u32,
}

impl QueueDefinition {
    /// A queue with the defaults: 10 active items, fair shares, ageing after a minute, leases of 30 s, 10,000 pending items.
    pub fn new(name: impl Into<ByteString>) -> Self {
        Self {
            name: name.into(),
            cap: 10,
            fair: true,
            ageing_ms: 60_000,
            lease_ms: 30_000,
            pending_max: 10_000,
            pending_max_per_user: 0,
        }
    }

    /// The same queue with another cap.
    #[must_use]
    pub fn capped(self, cap: u32) -> Self {
        Self { cap, ..self }
    }

    /// The same queue in strict order: neither fair shares nor ageing.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { fair: false, ageing_ms: 0, ..self }
    }

    /// The length of a lease that names none.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Checks name and numbers.
    ///
    /// # Errors
    /// `invalid_name`; `invalid_queue` with the setting.
    pub fn validate(&self) -> Result<(), Invalid> {
        valid_name("queue", &self.name)?;
        let within = |path: &str, number: u64, (least, most): (u64, u64)| {
            if (least..=most).contains(&number) {
                return Ok(());
            }
            let message = format!("{number} is not between {least} and {most}");
            Err(Invalid::new(Code::InvalidQueue, path, message))
        };
        within("cap", self.cap.into(), (1, CAP_MAX.into()))?;
        within("ageing_ms", self.ageing_ms, (0, DAY_MS))?;
        within("lease_ms", self.lease_ms, (1, DAY_MS))?;
        within("pending_max", self.pending_max.into(), (1, PENDING_MAX.into()))?;
        within("pending_max_per_user", self.pending_max_per_user.into(), (0, PENDING_MAX.into()))
    }
}

/// The body of `PUT /v1/queues/{queue}`: absent settings have their defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueBody {
    /// [`QueueDefinition::cap`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
    /// [`QueueDefinition::fair`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair: Option<bool>,
    /// [`QueueDefinition::ageing_ms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ageing_ms: Option<u64>,
    /// [`QueueDefinition::lease_ms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// [`QueueDefinition::pending_max`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_max: Option<u32>,
    /// [`QueueDefinition::pending_max_per_user`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_max_per_user: Option<u32>,
}

impl QueueBody {
    /// The definition of a queue of this name.
    pub fn of(self, name: &str) -> QueueDefinition {
        let usual = QueueDefinition::new(name);
        QueueDefinition {
            cap: self.cap.unwrap_or(usual.cap),
            fair: self.fair.unwrap_or(usual.fair),
            ageing_ms: self.ageing_ms.unwrap_or(usual.ageing_ms),
            lease_ms: self.lease_ms.unwrap_or(usual.lease_ms),
            pending_max: self.pending_max.unwrap_or(usual.pending_max),
            pending_max_per_user: self.pending_max_per_user.unwrap_or(usual.pending_max_per_user),
            ..usual
        }
    }
}

impl From<QueueDefinition> for QueueBody {
    fn from(it: QueueDefinition) -> Self {
        Self {
            cap: Some(it.cap),
            fair: Some(it.fair),
            ageing_ms: Some(it.ageing_ms),
            lease_ms: Some(it.lease_ms),
            pending_max: Some(it.pending_max),
            pending_max_per_user: Some(it.pending_max_per_user),
        }
    }
}
