//! Orders as aggregates: all the code that an aggregate in Annals needs, and nothing else.
//!
//! Read [`order`](self::Order): a state, the events that can happen to it, and commands as its methods. Its tests need no store
//! (`tests/orders/order.rs`). The program (`main.rs`) loads orders from a store and sends them commands.

mod order;

pub use order::{Line, Order, OrderError, OrderEvent, Status};
