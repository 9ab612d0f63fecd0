//! A defect on purpose. Guessing blindly would take about 2^48 tries; with feedback from the code each right byte is one small
//! step. A run that does not find it has lost its instrumentation, and then a quiet minute of the other targets proves nothing.

/// Panics on inputs that begin with `canary`.
pub fn check(bytes: &[u8]) {
    // One branch each, so that each is an edge of its own to the fuzzer.
    if bytes.first() == Some(&b'c')
        && bytes.get(1) == Some(&b'a')
        && bytes.get(2) == Some(&b'n')
        && bytes.get(3) == Some(&b'a')
        && bytes.get(4) == Some(&b'r')
        && bytes.get(5) == Some(&b'y')
    {
        panic!("the canary was found, as it should be");
    }
}
