//! The definition of a queue.

use std::time::Duration;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::{Code, Invalid, valid_name};

/// The largest cap. All leases of a queue may end at once, and the changes must fit one batch of records.
const CAP_MAX: u32 = 2_000;
/// The most items that a queue may have pending.
const PENDING_MAX: u32 = 100_000;
/// The longest lease, and the longest ageing time: a day.
pub(super) const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// The priority of an item, highest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueuePriority {
    /// Before all others.
    Critical,
    /// Before normal items.
    High,
    /// The default.
    #[default]
    Normal,
    /// After normal items.
    Low,
    /// After all others.
    Background,
}

impl QueuePriority {
    /// All priorities, highest first.
    pub const ALL: [Self; 5] = [Self::Critical, Self::High, Self::Normal, Self::Low, Self::Background];

    /// Returns the index of the priority: 0 is the highest.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Background => "background",
        }
    }

    /// Returns the priority with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.as_str() == name)
    }
}

/// The definition of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueDefinition {
    /// Its name.
    pub name: ByteString,
    /// The most active items.
    pub cap: u32,
    /// Whether users of one priority are served in turn. If not, the item that was enqueued first is served first.
    pub fair: bool,
    /// How long the oldest item waits until its priority is served in between, in milliseconds; 0 disables ageing.
    pub ageing_ms: u64,
    /// The default length of a lease, in milliseconds.
    pub lease_ms: u64,
    /// The most pending items.
    pub pending_max: u32,
    /// The most pending items of one user; 0 means no limit per user.
    pub pending_max_per_user: u32,
}

impl QueueDefinition {
    /// Creates a definition with the defaults: 10 active items, fair shares, ageing after a minute, leases of 30 s, 10,000 pending items.
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

    /// Sets the cap.
    #[must_use]
    pub fn capped(self, cap: u32) -> Self {
        Self { cap, ..self }
    }

    /// Makes the order strict: neither fair shares nor ageing.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { fair: false, ageing_ms: 0, ..self }
    }

    /// Returns the default length of a lease.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Checks the name and the numbers.
    ///
    /// # Errors
    /// `invalid_name`; `invalid_queue`, with the setting.
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

/// The body of `PUT /v1/queues/{queue}`. Absent settings have their defaults.
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
    /// Returns the definition for a queue with this name.
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
