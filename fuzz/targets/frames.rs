//! Hands the fuzzer's bytes to `annals_fuzz::frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| annals_fuzz::frames::check(bytes));
