//! What must hold for any input, one module per fuzz target. The targets under `targets/` only hand the bytes over, so that the
//! checks read as code and a found input can be replayed from anywhere.

pub mod canary;
pub mod commit;
pub mod condition;
pub mod frames;
pub mod http;
pub mod index;
pub mod payload;
