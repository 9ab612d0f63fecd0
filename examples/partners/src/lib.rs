//! A shop and its supplier, each with a store, a server and a process of its own. They share a secret and nothing else.
//!
//! ```text
//!  shop                                            supplier
//!  order_placed ─▶ partner `supplier` ── POST ──▶ order_received ─▶ handler `invoice` ─▶ order_invoiced
//!  invoice_received ◀────────────────── POST ─────────── partner `shop` ◀──────────────────────┘
//! ```
//!
//! Either process can be killed at any time. Once both run again, both books have the same orders and the same invoices, each once.

mod books;
mod party;

pub mod play;

pub use books::{Books, Line};
pub use party::{Party, Role};

/// An error that ends the example early.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
