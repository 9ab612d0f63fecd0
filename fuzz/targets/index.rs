//! Hands the fuzzer's bytes to `annals_fuzz::index`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| annals_fuzz::index::check(bytes));
