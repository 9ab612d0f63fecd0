//! The binary `annals`.
fn main() {}
