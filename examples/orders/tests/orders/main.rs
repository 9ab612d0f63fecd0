//! Orders without a store, and the program with each kind of store.

mod order;
mod stores;
