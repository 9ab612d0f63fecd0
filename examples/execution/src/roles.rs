//! The roles of the service. All of them can be one process, or each can be a process of its own on a store that processes share.

use std::fmt;
use std::str::FromStr;

/// A part of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Accepts, lists, cancels and retries executions, and serves the pages.
    Api,
    /// Runs the sagas and hands out slots. It follows the log, and is not a consumer group.
    Saga,
    /// Runs programs.
    Worker,
    /// Stores results.
    Results,
    /// Notifies users.
    Notifications,
    /// Streams events to browsers. Each process needs every event, so it follows the log, and is not a consumer group.
    Sse,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 6] = [Self::Api, Self::Saga, Self::Worker, Self::Results, Self::Notifications, Self::Sse];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Saga => "saga-orchestrator",
            Self::Worker => "worker",
            Self::Results => "result-processor",
            Self::Notifications => "notification-service",
            Self::Sse => "sse-bridge",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|role| role.name()).collect();
            format!("{text:?} is not a role; the roles are {}", known.join(", "))
        })
    }
}
