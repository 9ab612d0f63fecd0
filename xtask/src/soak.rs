//! Runs the tests with random operations, faults and kills for longer than a CI run can.

use crate::command::{cargo, number, only, run as run_command};

const TLS: &str = "annals-kafka/tls-vendored";

pub fn run(arguments: &[String]) -> Result<(), String> {
    only(arguments, &[], &["--seconds"])?;
    let seconds = number(arguments, "--seconds")?.unwrap_or(600);
    println!("every test that looks at ANNALS_SOAK_SECONDS runs for {seconds} s");
    let mut tests = cargo();
    tests.env("ANNALS_SOAK_SECONDS", seconds.to_string());
    // TLS of Kafka is tested here, where there is time to compile OpenSSL for minutes.
    run_command(tests.args(["test", "--locked", "--workspace", "--features", TLS, "--tests"]))
}
