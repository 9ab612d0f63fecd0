//! Orders as aggregates: what to write to keep an aggregate in Annals, and nothing else.
//!
//! Read [`order`](self::Order): a state, the events that can happen to it, and commands as its methods. Its tests need no store
//! (`tests/orders/order.rs`); the program (`main.rs`) loads orders from a store and gives them commands.

mod order;

pub use order::{Line, Order, OrderError, OrderEvent, Status};
