//! Hands the fuzzer's bytes to `annals_fuzz::condition`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| annals_fuzz::condition::check(bytes));
