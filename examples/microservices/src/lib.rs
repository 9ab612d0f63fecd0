//! Two services, each with a store and a server of its own. They share nothing but public events.
//!
//! ```text
//!  orders                                   shipping
//!  order_placed ─▶ public-orders    ──────▶ inbox ─▶ handler `ship` ─▶ shipment_sent
//!  order_shipped ◀─ handler `close` ◀─ inbox ◀────── public-shipments ◀──────┘
//! ```
//!
//! Each service gives the other its consent to receive its public stream, and subscribes to the other's.

mod service;

pub mod orders;
pub mod shipping;

pub use service::{Failure, Service};
